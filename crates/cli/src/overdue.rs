//! The complaint that nobody has finished well for too long: it comes by mail, so it says what to do.

use leasehold::config::exact;
use leasehold::{Busy, Clock, Code, LockName};

use crate::books::Overdue;
use crate::failure::rows_text;
use crate::human::{harmless, rough, utc_seconds};
use crate::talk::Talk;

/// Says it.
pub(crate) fn complain(name: &LockName, overdue: &Overdue, busy: Option<&Busy>, clock: &Clock, talk: Talk) {
    talk.notice("", harmless_lines(&text(name, overdue, busy, clock)));
}

fn text(name: &LockName, overdue: &Overdue, busy: Option<&Busy>, clock: &Clock) -> String {
    let Overdue { limit, history } = overdue;
    let since = rough(history.without_good_run().unwrap_or_default());
    let limit = exact(*limit);
    let mut text = match &history.ok {
        Some(_) => format!("{name} is overdue: last good run ended {since} ago (limit {limit})"),
        None => {
            format!("{name} is overdue: no good run since it was first heard of {since} ago (limit {limit})")
        }
    };
    let mut rows: Vec<(&str, String)> = Vec::new();
    let holder = busy.and_then(|busy| busy.holder.as_ref());
    if let Some(holder) = holder {
        let usual = history.usual().map_or_else(String::new, |usual| format!(", usual {}", rough(usual)));
        let start = clock.wall_micros().saturating_sub(u64::try_from(holder.held.as_micros()).unwrap_or(0));
        let start = utc_seconds(start).unwrap_or_default();
        let (host, pid, program) = (&holder.host, holder.pid, &holder.program);
        rows.push((
            "holder",
            format!("{host}, pid {pid}, {program}, since {start} ({}{usual})", rough(holder.held)),
        ));
    }
    if history.skips > 0 {
        let (times, hosts) = (history.skips, history.hosts.len());
        let (time, host) =
            (if times == 1 { "time" } else { "times" }, if hosts == 1 { "host" } else { "hosts" });
        rows.push(("skipped", format!("{times} {time} since then on {hosts} {host}")));
    }
    let failed = history.recent.first().filter(|past| !past.ok());
    match (holder, failed) {
        (Some(holder), _) => {
            let (host, pid, token) = (&holder.host, holder.pid, holder.token);
            rows.push(("likely", format!("the job on {host} hangs: its lease is renewed, so it is alive")));
            rows.push((
                "do",
                format!("ssh {host} kill {pid}     or     leasehold break {name} --token {token}"),
            ));
        }
        (None, Some(past)) => {
            let code = past.code.map_or_else(String::new, |code| format!(" with {code}"));
            let how = match past.outcome.as_str() {
                "at_most" => "was stopped by --at-most".to_owned(),
                "lost" => "lost its lease".to_owned(),
                "not_started" => "could not be started".to_owned(),
                _ => format!("{}{code}", past.words()),
            };
            rows.push(("likely", format!("it fails: the last run ({}) {how}", past.host)));
            rows.push(("do", format!("leasehold status {name}")));
        }
        (None, None) => rows.push(("do", format!("leasehold status {name}"))),
    }
    rows.push(("help", format!("leasehold explain {}", Code::OVERDUE)));
    text.push_str(&rows_text(rows.iter().map(|(label, text)| (*label, text))));
    text
}

/// Names of others may hold anything; the breaks between lines are ours.
fn harmless_lines(text: &str) -> String {
    text.lines().map(harmless).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::history::{Good, History, Past};

    #[test]
    fn it_says_since_when_why_and_what_to_do() {
        let name = LockName::parse("report:daily").unwrap();
        let ok = Some(Good { ago: Duration::from_secs(111_600), host: "web-1".to_owned(), ms: 250_000 });
        let past = Past { outcome: "failed".to_owned(), code: Some(3), ms: 9000, host: "web-3".to_owned() };
        let mut history = History::default();
        history.ok = ok;
        history.skips = 1741;
        history.hosts = vec!["web-1".to_owned(), "web-2".to_owned()];
        history.recent = vec![past];
        let overdue = Overdue { limit: Duration::from_secs(93_600), history };
        let text = text(&name, &overdue, None, &Clock::frozen());
        for line in [
            "report:daily is overdue: last good run ended 31h00m ago (limit 1d2h)",
            "  skipped  1741 times since then on 2 hosts",
            "  likely   it fails: the last run (web-3) failed with 3",
            "  help     leasehold explain LH0051",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        let how = |outcome: &str| {
            let past = Past { outcome: outcome.to_owned(), code: None, ms: 9000, host: "web-3".to_owned() };
            let mut history = overdue.history.clone();
            history.recent = vec![past];
            super::text(&name, &Overdue { limit: overdue.limit, history }, None, &Clock::frozen())
        };
        assert!(how("at_most").contains("the last run (web-3) was stopped by --at-most\n"));
        assert!(how("lost").contains("the last run (web-3) lost its lease\n"));
    }
}
