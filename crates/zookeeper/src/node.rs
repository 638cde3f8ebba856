//! Names as nodes: a directory for each name, and the sequential nodes in it, as the recipes of others call them.

use leasehold_core::{ClaimId, LockName, MarkKind, Share};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// A plain name is its own directory. Anything else is escaped, above all `/`, so that no name nests in another.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b':');
/// What we keep beside the lines. No escaped name is called so.
const OURS: &str = "%lh";
/// As Curator begins the names of nodes that it must find again.
const PROTECTED: &str = "_c_";
/// As most recipes end the names of a mutex's nodes, before the number.
const LOCK: &str = "-lock-";
/// What stands before the mark of a node that went over to another session.
const MOVED: &str = "-m";
/// The digits of a number.
const DIGITS: usize = 10;
/// How others mark nodes that exclude writers only.
const READERS: [&str; 2] = ["-__READ__", "__rlock__"];
/// A server sends a line as one answer, of a megabyte at most unless told otherwise; this many names fill half of it.
pub(crate) const LONGEST_LINE: usize = 8_000;
/// Numbers are signed and have 32 bits; a directory that was emptied begins anew.
const LAST_NUMBER: i32 = i32::MAX - 1_000_000;

/// Where everything of one store is.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    /// Without a slash at its end; empty for the root of all.
    root: String,
}

impl Paths {
    pub(crate) fn new(root: &str) -> Self {
        Self { root: root.trim_end_matches('/').to_owned() }
    }

    /// The directory of all lines.
    pub(crate) fn root(&self) -> &str {
        if self.root.is_empty() { "/" } else { &self.root }
    }

    /// The directory of a name's line.
    pub(crate) fn line(&self, name: &LockName) -> String {
        format!("{}/{}", self.root, escape(name.as_str()))
    }

    /// A node that is written to learn the server's time.
    pub(crate) fn clock(&self) -> String {
        self.ours("clock")
    }

    /// All closures, and that of one name.
    pub(crate) fn shuts(&self) -> String {
        self.ours("shut")
    }

    pub(crate) fn shut(&self, name: &LockName) -> String {
        format!("{}/{}", self.shuts(), escape(name.as_str()))
    }

    /// All ids that ended before they were heard of, and one of them.
    pub(crate) fn spents(&self) -> String {
        self.ours("spent")
    }

    pub(crate) fn spent(&self, id: ClaimId) -> String {
        format!("{}/{}", self.spents(), guid(id))
    }

    /// The marks of one kind for a name, and one of them.
    pub(crate) fn marks(&self, kind: MarkKind, name: &LockName) -> String {
        format!("{}/{}", self.ours(&format!("mark/{}", kind.word())), escape(name.as_str()))
    }

    pub(crate) fn mark(&self, kind: MarkKind, name: &LockName, key: &str) -> String {
        // The key may be empty, a node's name may not.
        format!("{}/k{}", self.marks(kind, name), escape(key))
    }

    /// The records of all names, and of one.
    pub(crate) fn all_records(&self) -> String {
        self.ours("record")
    }

    pub(crate) fn records(&self, name: &LockName) -> String {
        format!("{}/{}", self.all_records(), escape(name.as_str()))
    }

    fn ours(&self, what: &str) -> String {
        format!("{}/{OURS}/{what}", self.root)
    }
}

/// The directory that a node is in.
pub(crate) fn parent(path: &str) -> &str {
    path.rfind('/').map_or("/", |at| if at == 0 { "/" } else { &path[..at] })
}

pub(crate) fn escape(text: &str) -> String {
    // What a path or ZooKeeper itself reads otherwise.
    if matches!(text, "." | ".." | "zookeeper") {
        let (first, rest) = text.split_at(1);
        return format!("%{:02X}{rest}", first.as_bytes()[0]);
    }
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// The name whose directory is called so.
pub(crate) fn name_of(directory: &str) -> Option<LockName> {
    if directory.starts_with(OURS) {
        return None;
    }
    let name = LockName::parse(&percent_decode_str(directory).decode_utf8().ok()?).ok()?;
    // Others may have nodes here that are no name's.
    (escape(name.as_str()) == directory).then_some(name)
}

/// The id as Curator writes one.
pub(crate) fn guid(id: ClaimId) -> String {
    let hex = format!("{:032x}", u128::from_be_bytes(id.to_bytes()));
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// How the node of a claim is called, up to its number.
pub(crate) fn stem(id: ClaimId, share: Share) -> String {
    let how = match share {
        Share::EXCLUSIVE => String::new(),
        Share::SHARED => "-s".to_owned(),
        share => format!("-{}.{}", share.take(), share.of()),
    };
    format!("{PROTECTED}{}{how}{LOCK}", guid(id))
}

/// How the node of a claim is called that goes over to another session: in the same place, and by a name of its own, so
/// that whoever had it before does not take it for its own.
pub(crate) fn moved(node: &str) -> Option<String> {
    let at = node.rfind(LOCK)?;
    let (before, number) = node.split_at(at);
    let before = before.split(MOVED).next()?;
    Some(format!("{before}{MOVED}{:08x}{number}", fastrand::u32(..)))
}

/// One node in the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) node: String,
    pub(crate) number: i32,
    /// What it takes; that of another client takes all, or all but readers.
    pub(crate) share: Share,
}

/// Why a line cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NumbersUsedUp;

impl Member {
    /// `None` for what stands in no line.
    pub(crate) fn parse(node: &str) -> Result<Option<Self>, NumbersUsedUp> {
        let digits = node.bytes().rev().take_while(u8::is_ascii_digit).count();
        if digits != DIGITS {
            return Ok(None);
        }
        let (before, number) = node.split_at(node.len() - DIGITS);
        // Below zero there is a minus of its own.
        if before.ends_with("--") || before.ends_with("__-") {
            return Err(NumbersUsedUp);
        }
        let number = number.parse().map_err(|_| NumbersUsedUp)?;
        if number > LAST_NUMBER {
            return Err(NumbersUsedUp);
        }
        let share = if READERS.iter().any(|mark| before.ends_with(mark)) {
            Share::SHARED
        } else {
            share_of(before).unwrap_or(Share::EXCLUSIVE)
        };
        Ok(Some(Self { node: node.to_owned(), number, share }))
    }

    /// Whether it is a claim's node.
    pub(crate) fn is(&self, id: ClaimId) -> bool {
        is_of(&self.node, id)
    }

    /// The id of the claim, if its name has one; others have such ids, too.
    pub(crate) fn id(&self) -> Option<ClaimId> {
        let hex = self.node.strip_prefix(PROTECTED)?.get(..36)?.replace('-', "");
        let id = u128::from_str_radix(&hex, 16).ok()?;
        (hex.len() == 32).then(|| ClaimId::from_bytes(id.to_be_bytes()))
    }
}

/// Whether a node is called after this claim.
pub(crate) fn is_of(node: &str, id: ClaimId) -> bool {
    node.strip_prefix(PROTECTED).is_some_and(|rest| rest.starts_with(&guid(id)))
}

/// The share that a stem of ours tells.
fn share_of(stem: &str) -> Option<Share> {
    let how = stem.strip_prefix(PROTECTED)?.get(36..)?.strip_suffix(LOCK)?;
    let how = how.split(MOVED).next()?;
    match how.strip_prefix('-') {
        Some("s") => Some(Share::SHARED),
        Some(how) => {
            let (take, of) = how.split_once('.')?;
            Share::from_parts(take.parse().ok()?, of.parse().ok()?).ok()
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> LockName {
        LockName::parse(text).unwrap()
    }

    #[test]
    fn a_plain_name_is_its_own_directory_and_nothing_nests() {
        let paths = Paths::new("/locks");
        assert_eq!(paths.line(&name("order:10017")), "/locks/order:10017");
        assert_eq!(paths.line(&name("a/b")), "/locks/a%2Fb");
        assert_eq!(Paths::new("/").line(&name("a")), "/a");
        assert_eq!(Paths::new("/").root(), "/");
        assert_eq!(parent("/locks/a"), "/locks");
    }

    #[test]
    fn names_come_back_and_no_two_are_one() {
        let mut seen = std::collections::HashSet::new();
        for text in ["a", "a/b", "a%2Fb", ".", "..", "...", "zookeeper", "%lh", "é", "A", " ", "x:y"] {
            let directory = escape(text);
            assert_eq!(name_of(&directory), Some(name(text)), "{text}");
            assert!(!directory.contains('/') && directory != "." && directory != "..");
            assert!(seen.insert(directory));
        }
        assert_eq!(name_of("%lh"), None);
        assert_eq!(name_of("a b"), None);
    }

    #[test]
    fn nodes_of_ours_and_of_others_are_read() {
        let id = ClaimId::from_bytes([0xab; 16]);
        for share in [Share::EXCLUSIVE, Share::SHARED, Share::permits(2, 5).unwrap()] {
            let node = format!("{}{:010}", stem(id, share), 7);
            let member = Member::parse(&node).unwrap().unwrap();
            assert_eq!((member.number, member.share, member.id()), (7, share, Some(id)), "{node}");
            assert!(member.is(id) && !member.is(ClaimId::from_bytes([1; 16])));
            let mut node = node;
            for _ in 0..2 {
                let next = moved(&node).unwrap();
                assert!(next != node && next.len() <= node.len() + 10);
                let goes_on = Member::parse(&next).unwrap().unwrap();
                assert_eq!((goes_on.number, goes_on.share, goes_on.id()), (7, share, Some(id)), "{next}");
                node = next;
            }
        }
        let share = |node: &str| Member::parse(node).unwrap().map(|member| member.share);
        assert_eq!(share("_c_0f-lock-0000000001"), Some(Share::EXCLUSIVE));
        assert_eq!(share("0a1b__lock__0000000003"), Some(Share::EXCLUSIVE));
        assert_eq!(share("0a1b__rlock__0000000003"), Some(Share::SHARED));
        assert_eq!(share("_c_8f-__READ__0000000003"), Some(Share::SHARED));
        assert_eq!(share("lock-0000000003"), Some(Share::EXCLUSIVE));
        // Directories and permits of others are in no line.
        assert_eq!(share("leases"), None);
        assert_eq!(share("b"), None);
    }

    #[test]
    fn a_line_whose_numbers_are_used_up_is_refused() {
        assert!(Member::parse("_c_0f-lock--2147483648").is_err());
        assert!(Member::parse("0a1b__lock__-2147483648").is_err());
        assert!(Member::parse("_c_0f-lock-2147483647").is_err());
    }
}
