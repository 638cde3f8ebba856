//! `leasehold break`: ends somebody else's lease, named by its token, and writes down who did it.

use std::io::{self, BufRead as _};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use leasehold::{
    AsyncLedger, Code, Entry, Leasehold, LockName, Note, Owner, Record, RecordKind, Snapshot, Token,
};
use serde_json::json;

use crate::args::Global;
use crate::failure::Failure;
use crate::human::{harmless, rough};
use crate::listener::Listener;
use crate::script_args::BreakArgs;
use crate::talk::{Talk, print};
use crate::{exit, hold, settings, view};

const NOTHING_DONE: &str = "nothing was done, as far as is known";

/// Exit 0: it was ended; 75: the token is not the holder's.
pub(crate) async fn end(args: BreakArgs, global: &Global, talk: Talk) -> Result<u8, Failure> {
    let BreakArgs { name, token, yes, note } = args;
    let name = settings::name(&name, global.raw_name)?;
    let note = Note::parse(note.as_deref().unwrap_or(""))
        .map_err(|error| Failure::usage(Code::VALUE, format!("--note: {error}")))?;
    let asks = match (yes, token) {
        (true, Some(_)) => false,
        (true, None) => return Err(unsure("--yes needs --token", &name)),
        (false, _) if rustix::termios::isatty(io::stdin()) && rustix::termios::isatty(io::stderr()) => true,
        (false, _) => return Err(unsure("there is no terminal to ask at", &name)),
    };
    let config = settings::config(global)?;
    let choice = config.store(Some(name.as_str()))?;
    let listener = Arc::new(Listener::new(talk));
    let client = hold::open(&config, &choice, None, &listener, talk)
        .await
        .map_err(|error| hold::failure(&error, NOTHING_DONE, false))?;
    let code = Breaking { client: &client, name, note, talk }.go(token, asks).await;
    let code = code.unwrap_or_else(|failure| {
        // Said before what may take a while.
        talk.fail(&failure);
        failure.exit
    });
    hold::close(client, choice.timeout.value, talk).await;
    Ok(code)
}

fn unsure(problem: &str, name: &LockName) -> Failure {
    Failure::usage(Code::FLAG, format!("whose lease? {problem}"))
        .hint(format!("leasehold status {name}   shows the holder and its token"))
        .also(&format!("leasehold break {name} --token N --yes"))
}

struct Breaking<'a> {
    client: &'a Leasehold,
    name: LockName,
    note: Note,
    talk: Talk,
}

impl Breaking<'_> {
    async fn go(&self, wanted: Option<Token>, asks: bool) -> Result<u8, Failure> {
        let Self { client, name, talk, .. } = self;
        let snapshot = self.look().await?;
        let entry = match wanted {
            Some(wanted) => snapshot.holders.iter().find(|entry| entry.token == Some(wanted)),
            None => snapshot.holders.first(),
        };
        let Some((entry, token)) = entry.and_then(|entry| Some((entry, entry.token?))) else {
            return Err(self.stale(wanted, &snapshot));
        };
        if asks {
            self.ask(entry, token)?;
        }
        let broken = client.break_lease(name, token).await;
        let Some(holder) = broken.map_err(|error| hold::failure(&error, NOTHING_DONE, false))? else {
            return Err(self.stale(Some(token), &self.look().await?));
        };
        let by = client.owner();
        let note = self.note.text().map_or_else(String::new, |note| format!(" ({note:?})"));
        let recorded = match self.record(token, &holder.id, by).await {
            Ok(()) => format!("; recorded as broken by {}@{}{note}", by.user, by.host),
            Err(error) => {
                talk.warn(format_args!("{name}: broken, but that could not be written down: {error}"));
                String::new()
            }
        };
        if talk.json {
            let object = json!({"v": 1, "name": name.as_str(), "token": token.get(), "holder": holder.id});
            print(&format!("{object}\n"));
        } else if talk.level >= 0 {
            let next = token.get().saturating_add(1);
            print(&harmless(&format!("broken. next token is {next} or higher{recorded}")));
            print("\n");
        }
        Ok(exit::OK)
    }

    async fn look(&self) -> Result<Snapshot, Failure> {
        let snapshot = self.client.inspect(&self.name).await;
        snapshot.map_err(|error| hold::failure(&error, NOTHING_DONE, false))
    }

    /// That there is no such lease, and whose there is instead.
    fn stale(&self, wanted: Option<Token>, snapshot: &Snapshot) -> Failure {
        let name = &self.name;
        let holder = snapshot.holders.first().and_then(|entry| view::holder(self.client, entry));
        let now = match &holder {
            Some(holder) => format!("now {}, {}, since {}", holder.token, holder.host, rough(holder.held)),
            None => format!("nobody holds {name}"),
        };
        let message = match wanted {
            Some(token) => format!("token {token} is not the holder's any more ({now}); nothing was done"),
            None => format!("there is nothing to break: {now}"),
        };
        let failure = Failure::new(Code::STALE_TOKEN, exit::TEMPFAIL, harmless(&message));
        failure.hint(format!("leasehold status {name}   shows who holds it"))
    }

    /// Shows the holder, and has the name typed.
    fn ask(&self, entry: &Entry, token: Token) -> Result<(), Failure> {
        let Self { name, talk, .. } = self;
        let Entry { owner, age, renewed, left, ttl, .. } = entry;
        let Owner { host, user, pid, program, .. } = owner;
        let age = rough(*age);
        let life = if *renewed > *ttl / 2 {
            let left = rough(*left);
            format!("it has not renewed for {}; unless it does, it ends by itself in {left}", rough(*renewed))
        } else {
            let ago = rough(*renewed);
            format!("it is ALIVE: renewed {ago} ago. Breaking lets a second job start within seconds.")
        };
        let told = rough(*ttl / 3);
        let text = [
            format!("{name} is held by {host} ({user}, pid {pid}, {program}) for {age}, token {token}"),
            format!("  {life}"),
            format!(
                "  {host} will be told and stops its command (SIGTERM, SIGKILL after 2s) within {told}, if it can"
            ),
        ];
        let text: String = text.iter().map(|line| format!("{}\n", harmless(line))).collect();
        talk.raw(&format!("{text}Type the name to go on: "));
        let mut typed = String::new();
        let read = io::stdin().lock().read_line(&mut typed);
        if read.is_ok() && typed.trim_end_matches(['\n', '\r']) == name.as_str() {
            return Ok(());
        }
        Err(Failure::usage(Code::VALUE, "that is not its name; nothing was done"))
    }

    async fn record(&self, token: Token, holder: &str, by: &Owner) -> leasehold::Result<()> {
        let full = self.name.clone().within(self.client.namespace())?;
        let text = json!({
            "event": "broken", "token": token.get(), "holder": holder, "user": by.user, "host": by.host,
            "note": self.note.text(),
        });
        let record = Record {
            kind: RecordKind::Event,
            name: full,
            by: by.id(),
            text: text.to_string(),
            age: Duration::ZERO,
        };
        self.client.with_ledger(Write(record)).await
    }
}

struct Write(Record);

impl AsyncLedger<()> for Write {
    fn run(
        self,
        ledger: &dyn leasehold::Ledger,
    ) -> Pin<Box<dyn Future<Output = leasehold::Result<()>> + Send + '_>> {
        Box::pin(async move { ledger.record(&self.0).await.map(drop) })
    }
}
