//! The proof `wrappers`: the same scripts under other programs that hold a lock for a command, and under ours.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::wrapper_cases::{CASES, Verdict};
use super::{Proof, own_settings};
use crate::Result;
use crate::servers::{Need, Server, Tools};

/// How long etcd may take until it answers.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// A program that holds a lock while a command runs.
struct Wrapper {
    name: &'static str,
    /// What must be installed, all of it.
    needs: &'static [Need],
    /// Waits for the lock; the command follows.
    hold: &'static str,
    /// Gives up when it is busy, at once or after a second.
    attempt: &'static str,
    /// As `hold`, with its own limit of a second for the command, if it has one.
    limited: Option<&'static str>,
    /// What should be known of it beside the verdicts.
    note: &'static str,
}

const FLOCK: &[Need] = &[Need { tool: "flock", package: "util-linux", uses: "is compared" }];

const WRAPPERS: &[Wrapper] = &[
    Wrapper {
        name: "flock",
        needs: FLOCK,
        hold: "flock lock",
        attempt: "flock -n lock",
        limited: None,
        note: "By design the lock belongs to an open file that the command and its children inherit: the kernel keeps \
               it as long as one of them lives, on this host. By design it is silent, and passes no signal on.",
    },
    Wrapper {
        name: "flock -o",
        needs: FLOCK,
        hold: "flock -o lock",
        attempt: "flock -n -o lock",
        limited: None,
        note: "By design the command does not inherit the lock, so that a background child does not keep it; then the \
               lock lives and dies with the wrapper.",
    },
    Wrapper {
        name: "lckdo",
        needs: &[Need { tool: "lckdo", package: "moreutils", uses: "is compared" }],
        hold: "lckdo -w lock",
        attempt: "lckdo lock",
        limited: None,
        note: "Run as it is by default; with `-e` it becomes the command, as setlock does.",
    },
    Wrapper {
        name: "setlock",
        needs: &[Need { tool: "setlock", package: "daemontools", uses: "is compared" }],
        hold: "setlock lock",
        attempt: "setlock -n lock",
        limited: None,
        note: "By design it becomes the command, which holds the lock itself: a signal to the one is a signal to the \
               other.",
    },
    Wrapper {
        name: "runlock",
        needs: &[Need { tool: "runlock", package: "cronutils", uses: "is compared" }],
        hold: "runlock -t 10 -f lock",
        attempt: "runlock -d -t 1 -f lock",
        limited: None,
        note: "Made for cron, where the log is the system's; its companion `runalarm` is the time limit.",
    },
    Wrapper {
        name: "etcdctl lock",
        needs: &[
            Need { tool: "etcdctl", package: "etcd-client", uses: "is compared" },
            Need { tool: "etcd", package: "etcd-server", uses: "serves etcdctl" },
        ],
        hold: "etcdctl --endpoints=$ETCD lock --ttl=2 -- name",
        attempt: "timeout 1 etcdctl --endpoints=$ETCD lock --ttl=2 -- name",
        limited: None,
        note: "The only other one here that locks for more than one host. It has no way to give up when it is busy: \
               the second was ended after 1 s. By design the lock ends with its session; the revision is there for the \
               resource to check.",
    },
    Wrapper {
        name: "leasehold run",
        needs: &[],
        hold: "\"$LEASEHOLD\" run name --store \"sqlite:$PWD/x.db\" --ttl 2s --wait 10s --",
        attempt: "\"$LEASEHOLD\" run name --store \"sqlite:$PWD/x.db\" --ttl 2s --busy fail --",
        limited: Some(
            "\"$LEASEHOLD\" run name --store \"sqlite:$PWD/x.db\" --ttl 2s --wait 10s --at-most 1s --",
        ),
        note: "On SQLite, which locks on one host.",
    },
];

impl Wrapper {
    fn is_ours(&self) -> bool {
        self.needs.is_empty()
    }

    /// The two functions that the scripts call.
    fn functions(&self) -> String {
        let limited = self.limited.unwrap_or(self.hold);
        format!(
            "hold() {{ exec {} \"$@\"; }}\nattempt() {{ {} \"$@\"; }}\nlimited() {{ exec {limited} \"$@\"; }}",
            self.hold, self.attempt
        )
    }
}

pub(super) fn run(proof: &mut Proof) -> Result<bool> {
    let folder = tempfile::tempdir()?;
    let program = proof.build("leasehold-cli", "leasehold")?;
    let target = proof.workspace.target_directory.clone();
    let mut present = Vec::new();
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    for wrapper in WRAPPERS {
        let tools = Tools::these(wrapper.needs, &target);
        for note in tools.notes() {
            proof.say(&format!("note       {note}"))?;
        }
        for need in wrapper.needs {
            proof.say(&format!("version    {}: {} {}", need.tool, need.package, version(need.package)))?;
        }
        if tools.missing().is_empty() {
            present.push(wrapper);
        }
        for missing in tools.missing() {
            proof.say(&format!("not run    {}: {missing}", wrapper.name))?;
        }
        if let Some(unpacked) = tools.folder()
            && std::env::split_paths(&path).all(|folder| folder != unpacked)
        {
            let folders = std::env::split_paths(&path).chain([unpacked.to_owned()]);
            path = std::env::join_paths(folders.collect::<Vec<_>>())?;
        }
    }
    let etcd_is_here = present.iter().any(|wrapper| wrapper.hold.starts_with("etcdctl"));
    let etcd = if etcd_is_here { Some(etcd(folder.path(), &path)?) } else { None };
    let port = etcd.as_ref().map(Server::port);
    let bench = Bench {
        folder: folder.path().to_owned(),
        shell: Box::new(move || {
            let mut shell = Command::new("sh");
            own_settings().for_each(|name| _ = shell.env_remove(name));
            shell.env("PATH", &path).env("LEASEHOLD", &program).env("ETCDCTL_API", "3");
            if let Some(port) = port {
                shell.env("ETCD", format!("127.0.0.1:{port}"));
            }
            shell
        }),
    };
    let columns = bench.columns(&present)?;
    if let Some(mut etcd) = etcd {
        etcd.stop()?;
    }
    for line in table(&present, &columns) {
        proof.say(&line)?;
    }
    let ours = present.iter().position(|wrapper| wrapper.is_ours()).and_then(|index| columns.get(index));
    let ours = ours.ok_or("leasehold was not run")?;
    Ok(ours.iter().all(|verdict| verdict.word == "holds"))
}

/// Which version of a Debian package is installed.
fn version(package: &str) -> String {
    let mut query = Command::new("dpkg-query");
    let output = query.args(["--show", "--showformat", "${Version}", package]).output();
    let found = output.ok().filter(|output| output.status.success());
    found.map_or_else(
        || "(of unknown version)".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

/// Starts an etcd of our own, which is quick to notice that somebody is dead.
fn etcd(folder: &Path, path: &OsStr) -> Result<Server> {
    let url = |port| format!("http://127.0.0.1:{port}");
    let command = |port, folder: &Path| {
        let mut etcd = Command::new("etcd");
        etcd.env("PATH", path);
        etcd.args(["--heartbeat-interval", "50", "--election-timeout", "500", "--data-dir"]);
        etcd.arg(folder.join("data"));
        etcd.args(["--listen-client-urls", &url(port), "--advertise-client-urls", &url(port)]);
        // It talks to nobody else; the system chooses this port.
        etcd.args(["--listen-peer-urls", "http://127.0.0.1:0"]);
        etcd
    };
    let ready = |server: &Server| {
        let endpoint = format!("--endpoints=127.0.0.1:{}", server.port());
        let mut health = Command::new("etcdctl");
        health.env("PATH", path).env("ETCDCTL_API", "3").args([&endpoint, "endpoint", "health"]);
        health.stdout(Stdio::null()).stderr(Stdio::null());
        health.status().is_ok_and(|status| status.success())
    };
    Server::start("etcd", folder, command, ready, READY_WITHIN)
}

/// Where the scripts run, and with what settings.
struct Bench {
    folder: PathBuf,
    shell: Box<dyn Fn() -> Command + Sync>,
}

impl Bench {
    /// The verdicts on each wrapper. The wrappers are run beside each other, the cases of one after each other.
    fn columns(&self, wrappers: &[&Wrapper]) -> Result<Vec<Vec<Verdict>>> {
        let column = |place: usize, wrapper: &Wrapper| {
            let cases = CASES.iter().enumerate().map(|(number, case)| {
                let folder = self.folder.join(format!("{place}-{number}"));
                let mut shell = (self.shell)();
                shell.env("XDG_STATE_HOME", &folder).env("XDG_CONFIG_HOME", &folder);
                // An etcd lock is seen from everywhere: its name must not be that of another case.
                let functions = wrapper.functions().replace("name", &format!("case{number}"));
                case.run(&functions, shell, &folder).map_err(|error| error.to_string())
            });
            cases.collect::<std::result::Result<Vec<_>, String>>()
        };
        std::thread::scope(|scope| {
            let column = &column;
            let each = wrappers.iter().enumerate();
            let threads: Vec<_> =
                each.map(|(place, wrapper)| scope.spawn(move || column(place, wrapper))).collect();
            let ended = threads.into_iter().map(|thread| match thread.join() {
                Ok(verdicts) => Ok(verdicts?),
                Err(_) => Err("a thread of the proof panicked".into()),
            });
            ended.collect()
        })
    }
}

/// The result as a table in Markdown, and what was seen below it.
fn table(wrappers: &[&Wrapper], columns: &[Vec<Verdict>]) -> Vec<String> {
    let names: Vec<String> = wrappers.iter().map(|wrapper| format!("`{}`", wrapper.name)).collect();
    let mut lines = vec![
        String::new(),
        format!("| | case | {} |", names.join(" | ")),
        format!("|---|---|{}", "---|".repeat(names.len())),
    ];
    for (index, case) in CASES.iter().enumerate() {
        let words: Vec<&str> =
            columns.iter().filter_map(|column| column.get(index)).map(|it| it.word).collect();
        lines.push(format!("| {} | {} | {} |", index + 1, case.question, words.join(" | ")));
    }
    lines.push(String::new());
    for (wrapper, column) in wrappers.iter().zip(columns) {
        let seen = column.iter().enumerate().map(|(index, it)| format!("{} {}", index + 1, it.seen));
        let seen = seen.collect::<Vec<_>>().join("; ");
        lines.push(format!("- `{}`: {seen}. {}", wrapper.name, wrapper.note));
    }
    lines.push(String::new());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_is_compared_and_the_table_has_a_row_for_each_case() {
        let wrappers: Vec<&Wrapper> = WRAPPERS.iter().collect();
        assert_eq!(wrappers.iter().filter(|wrapper| wrapper.is_ours()).count(), 1);
        let columns: Vec<Vec<Verdict>> = wrappers
            .iter()
            .map(|_| CASES.iter().map(|_| Verdict { word: "holds", seen: "it".to_owned() }).collect())
            .collect();
        let lines = table(&wrappers, &columns);
        assert_eq!(lines.iter().filter(|line| line.ends_with("| holds |")).count(), CASES.len());
        assert_eq!(lines.iter().filter(|line| line.starts_with("- `")).count(), wrappers.len());
    }
}
