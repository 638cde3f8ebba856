//! Keeps packages from starting their services while they are installed.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::Result;

/// What Debian asks before it starts a service; 101 is "not allowed". The second line tells our file from one
/// that somebody else put there.
const POLICY: &str =
    "#!/bin/sh\n# Leasehold's tests are installing packages: no service may start now.\nexit 101\n";

/// As long as this lives, no service is started by the installation of its package.
#[derive(Debug)]
pub(super) struct QuietServices {
    policy: PathBuf,
    before: Option<(Vec<u8>, fs::Permissions)>,
}

impl QuietServices {
    /// Forbids services in the system below `root`.
    pub(super) fn below(root: &Path) -> Result<Self> {
        let folder = root.join("usr").join("sbin");
        fs::create_dir_all(&folder)?;
        let policy = folder.join("policy-rc.d");
        let before = match fs::read(&policy) {
            // Left behind by a run of ours that was killed: nothing to be put back.
            Ok(content) if content == POLICY.as_bytes() => None,
            Ok(content) => Some((content, fs::metadata(&policy)?.permissions())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        let quiet = Self { policy, before };
        fs::write(&quiet.policy, POLICY)?;
        fs::set_permissions(&quiet.policy, fs::Permissions::from_mode(0o755))?;
        Ok(quiet)
    }
}

impl Drop for QuietServices {
    fn drop(&mut self) {
        let restored = match &self.before {
            Some((content, permissions)) => fs::write(&self.policy, content)
                .and_then(|()| fs::set_permissions(&self.policy, permissions.clone())),
            None => fs::remove_file(&self.policy),
        };
        if let Err(error) = restored {
            eprintln!("{} was not put back as it was: {error}", self.policy.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn services_are_forbidden_for_the_time_and_no_longer() {
        let root = tempfile::tempdir().unwrap();
        let policy = root.path().join("usr/sbin/policy-rc.d");
        let quiet = QuietServices::below(root.path()).unwrap();
        assert_eq!(Command::new("sh").arg(&policy).status().unwrap().code(), Some(101));
        assert_eq!(fs::metadata(&policy).unwrap().permissions().mode() & 0o777, 0o755);
        drop(quiet);
        assert!(!policy.exists());
    }

    #[test]
    fn what_stood_there_is_put_back_unless_it_is_our_own_leftover() {
        let root = tempfile::tempdir().unwrap();
        let policy = root.path().join("usr/sbin/policy-rc.d");
        drop(QuietServices::below(root.path()).unwrap());
        fs::write(&policy, "#!/bin/sh\nexit 0\n").unwrap();
        fs::set_permissions(&policy, fs::Permissions::from_mode(0o700)).unwrap();
        drop(QuietServices::below(root.path()).unwrap());
        assert_eq!(fs::read_to_string(&policy).unwrap(), "#!/bin/sh\nexit 0\n");
        assert_eq!(fs::metadata(&policy).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(&policy, POLICY).unwrap();
        drop(QuietServices::below(root.path()).unwrap());
        assert!(!policy.exists());
    }
}
