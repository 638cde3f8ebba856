//! Who this process is, as others will read it.

use std::path::Path;

use leasehold_core::Owner;

/// How many characters tell two clients of one process apart.
const TAG: usize = 4;

/// This process, with a tag of its own for one client.
pub(crate) fn this_process() -> Owner {
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy().into_owned();
    let program = std::env::args_os().next();
    let program = program.as_deref().and_then(|path| Path::new(path).file_name().map(|name| name.to_owned()));
    Owner {
        host: shown(&host),
        user: shown(&user()),
        pid: std::process::id(),
        program: shown(&program.map_or_else(String::new, |name| name.to_string_lossy().into_owned())),
        tag: std::iter::repeat_with(fastrand::alphanumeric).take(TAG).collect::<String>().to_lowercase(),
    }
}

/// The name of the effective user. `/etc/passwd` rather than `$USER`: under sudo and cron the variable is
/// another user's, or not there.
fn user() -> String {
    let uid = rustix::process::geteuid().as_raw();
    let named = |passwd: String| {
        let wanted = uid.to_string();
        let mut lines = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
        lines.find(|fields| fields.get(2) == Some(&wanted.as_str())).map(|fields| fields[0].to_owned())
    };
    std::fs::read_to_string("/etc/passwd").ok().and_then(named).unwrap_or_else(|| format!("uid {uid}"))
}

/// What is printed in other people's terminals is short and has no control characters.
fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).take(128).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_itself() {
        let owner = this_process();
        assert_eq!(owner.pid, std::process::id());
        assert!(!owner.host.is_empty() && !owner.user.is_empty() && !owner.program.is_empty());
        assert_ne!(owner.tag, this_process().tag, "two clients of one process are told apart");
    }
}
