//! Versions of etcd, and which are known to break leases.

use std::fmt;

/// A version, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(u32, u32, u32);

impl Version {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.split(['-', '+']).next()?;
        let mut parts = text.split('.').map(|part| part.parse().ok());
        Some(Self(parts.next()??, parts.next()??, parts.next().flatten().unwrap_or(0)))
    }

    /// Whether what was mended in these versions, one for each line of them, is not mended here.
    fn before(self, mended: &[Self]) -> bool {
        let line = mended.iter().find(|mended| (mended.0, mended.1) == (self.0, self.1));
        // Older lines never got it, younger ones have it from their start.
        let (last, first) = (mended.last(), mended.first());
        line.or(if last.is_some_and(|last| self > *last) { last } else { first })
            .is_some_and(|mended| self < *mended)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// What is known to be wrong with leases in this version.
pub(crate) fn faults(version: Version) -> Vec<&'static str> {
    const KNOWN: [(&[Version], &str); 3] = [
        (
            &[Version(3, 4, 31), Version(3, 5, 13)],
            "a leader that was paused may revoke leases that are held (etcd #15247)",
        ),
        (
            &[Version(3, 4, 38), Version(3, 5, 23), Version(3, 6, 5)],
            "a keep-alive may be answered for a lease that is gone",
        ),
        (
            &[Version(3, 4, 42), Version(3, 5, 28), Version(3, 6, 9)],
            "a member that was paused may answer reads from the past",
        ),
    ];
    KNOWN.iter().filter(|(mended, _)| version.before(mended)).map(|(_, fault)| *fault).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_has_its_faults() {
        for (text, count) in [
            ("3.3.27", 3),
            ("3.4.23", 3),
            ("3.4.31", 2),
            ("3.4.38", 1),
            ("3.4.42", 0),
            ("3.5.1", 3),
            ("3.5.23", 1),
            ("3.5.28-rc.1", 0),
            ("3.6.0", 2),
            ("3.6.9", 0),
            ("3.7.0-alpha.0", 0),
        ] {
            assert_eq!(faults(Version::parse(text).unwrap()).len(), count, "{text}");
        }
        assert_eq!(Version::parse("none"), None);
    }
}
