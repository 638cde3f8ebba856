//! What the kernel says of other processes: whose child one is, when it was started, what it is called.

/// A process, as `/proc` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) parent: u32,
    /// In ticks since the machine was started. With the number it names one process for good, since numbers are
    /// used again.
    pub(crate) started: u64,
}

/// More generations than any tree of processes has.
const MOST_GENERATIONS: usize = 1000;

/// The process with this number; `None` if there is none, and where nobody can tell.
pub(crate) fn look(pid: u32) -> Option<Process> {
    parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse(stat: &str) -> Option<Process> {
    // The name stands in brackets and may hold anything, brackets too.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    let started = fields.nth(17)?.parse().ok()?;
    Some(Process { parent, started })
}

/// What a process is called: for a script, the name of its file.
pub(crate) fn name(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned()).filter(|name| !name.is_empty())
}

/// Whether a process is a descendant of another, neither of which has ended.
pub(crate) fn descends(pid: u32, from: u32) -> bool {
    let mut at = pid;
    for _ in 0..MOST_GENERATIONS {
        let Some(Process { parent, .. }) = look(at) else { return false };
        match parent {
            0 => return false,
            parent if parent == from => return true,
            parent => at = parent,
        }
    }
    false
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_confuse() {
        let stat = "7 (a) S 1 (b) R 42 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 98765 0 0";
        assert_eq!(parse(stat), Some(Process { parent: 42, started: 98765 }));
        assert_eq!(parse("7 (a"), None);
    }

    #[test]
    fn children_descend_and_strangers_do_not() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let me = std::process::id();
        assert!(descends(child.id(), me));
        assert!(!descends(me, child.id()) && !descends(me, me));
        let parent = look(me).unwrap().parent;
        assert!(descends(child.id(), parent), "grandchildren too");
        assert_eq!(look(child.id()), look(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(look(child.id()), None);
    }
}
