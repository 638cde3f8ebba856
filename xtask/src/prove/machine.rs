//! What a result hangs on: commit, date, seed, machine.

use std::path::Path;
use std::process::Command;

/// A line for each.
pub(super) fn describe(root: &Path, seed: u64) -> Vec<String> {
    let commit = said(root, "git", &["rev-parse", "HEAD"]);
    let changed = said(root, "git", &["status", "--porcelain"]).lines().count();
    let state = if changed == 0 { "clean".to_owned() } else { format!("{changed} files changed since") };
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    vec![
        format!("commit     {commit} ({state})"),
        format!("date       {}", said(root, "date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"])),
        format!("seed       {seed}"),
        format!("system     {}", said(root, "uname", &["-srm"])),
        format!("processor  {cores} cores, {}", field(&read("/proc/cpuinfo"), "model name")),
        format!("memory     {}", field(&read("/proc/meminfo"), "MemTotal")),
        format!("load       {}", read("/proc/loadavg").trim()),
    ]
}

fn said(folder: &Path, program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).current_dir(folder).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}

/// What a file of `name : value` lines says of a name.
pub(super) fn field<'a>(text: &'a str, name: &str) -> &'a str {
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    let mut values = fields.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim());
    values.next().unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_says_something() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(describe(root, 7).contains(&"seed       7".to_owned()));
        assert_eq!(field("a : 1\nmodel name\t: X 3000\n", "model name"), "X 3000");
        assert_eq!(field("", "model name"), "unknown");
    }
}
