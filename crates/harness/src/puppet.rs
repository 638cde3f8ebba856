//! A process that does with locks what it is told, line by line, and says when it did.

use std::collections::HashMap;
use std::process::Stdio;
use std::time::Duration;

use leasehold::{BootTime, Clock};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// What went wrong with a puppet, in one sentence.
pub type Trouble = Box<dyn std::error::Error + Send + Sync>;

/// How long a puppet may take to answer what needs no waiting.
const PROMPT: Duration = Duration::from_secs(20);

/// One answer of a puppet: a word, the boot time at which it happened, and facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// What happened: `granted`, `released`, `busy`, `failed`, `lost` ..
    pub word: String,
    /// When, on the boot clock that all processes share.
    pub at: BootTime,
    /// What else is known, such as the token.
    pub facts: HashMap<String, String>,
}

impl Answer {
    /// As the puppet prints it.
    #[must_use]
    pub fn line(word: &str, at: BootTime, facts: &[(&str, String)]) -> String {
        let facts: String = facts.iter().map(|(key, value)| format!(" {key}={value}")).collect();
        format!("{word} {}{facts}", at.as_nanos())
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let word = words.next()?.to_owned();
        let at = BootTime::from_nanos(words.next()?.parse().ok()?);
        let facts = words.filter_map(|fact| fact.split_once('='));
        Some(Self { word, at, facts: facts.map(|(k, v)| (k.to_owned(), v.to_owned())).collect() })
    }

    /// The fencing token that it tells of.
    ///
    /// # Errors
    ///
    /// When it tells of none.
    pub fn token(&self) -> Result<u64, Trouble> {
        let text = self.facts.get("token").ok_or_else(|| format!("no token in {self:?}"))?;
        Ok(text.parse()?)
    }
}

/// A puppet, as seen by who pulls its strings. It is killed when this is dropped.
#[derive(Debug)]
pub struct Puppet {
    child: Child,
    pid: Pid,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Puppet {
    /// Starts `program` (the `puppet` binary of this package) on this store.
    ///
    /// # Errors
    ///
    /// When it cannot be started, or does not say that it is there.
    pub async fn start(program: &str, store: &str) -> Result<Self, Trouble> {
        let mut command = Command::new(program);
        command.arg(store).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed())).ok_or("it has no process id")?;
        let stdin = child.stdin.take().ok_or("it has no stdin")?;
        let stdout = child.stdout.take().ok_or("it has no stdout")?;
        let mut puppet = Self { child, pid, stdin, lines: BufReader::new(stdout).lines() };
        puppet.expect("ready").await?;
        Ok(puppet)
    }

    /// Tells it something: `acquire NAME TTL_MS [fair] [at-least=MS]`, `try NAME TTL_MS`, `release`, `check`, `fork-check` ..
    ///
    /// # Errors
    ///
    /// When it no longer listens.
    pub async fn tell(&mut self, order: &str) -> Result<(), Trouble> {
        self.stdin.write_all(format!("{order}\n").as_bytes()).await?;
        Ok(self.stdin.flush().await?)
    }

    /// Its next answer, within `most`.
    ///
    /// # Errors
    ///
    /// When none comes.
    pub async fn hear(&mut self, most: Duration) -> Result<Answer, Trouble> {
        let line = tokio::time::timeout(most, self.lines.next_line())
            .await
            .map_err(|_| format!("no answer in {most:?}"))??
            .ok_or("it ended")?;
        Answer::parse(&line).ok_or_else(|| format!("it said {line:?}").into())
    }

    /// Its next answer, which must be this one.
    ///
    /// # Errors
    ///
    /// When it is another, or none comes.
    pub async fn expect(&mut self, word: &str) -> Result<Answer, Trouble> {
        let answer = self.hear(PROMPT).await?;
        if answer.word == word {
            Ok(answer)
        } else {
            Err(format!("{word} expected, {answer:?} heard").into())
        }
    }

    /// Tells it something and hears that answer.
    ///
    /// # Errors
    ///
    /// As [`tell`](Self::tell) and [`expect`](Self::expect).
    pub async fn ask(&mut self, order: &str, word: &str) -> Result<Answer, Trouble> {
        self.tell(order).await?;
        self.expect(word).await
    }

    /// Sends it a signal; gives the time just before.
    ///
    /// # Errors
    ///
    /// When it is gone.
    pub fn signal(&self, signal: Signal) -> Result<BootTime, Trouble> {
        let before = Clock::system().now();
        kill_process(self.pid, signal)?;
        Ok(before)
    }

    /// Kills it and waits until it is gone; gives the time just before.
    ///
    /// # Errors
    ///
    /// When it was gone before.
    pub async fn kill(mut self) -> Result<BootTime, Trouble> {
        let before = self.signal(Signal::KILL)?;
        self.child.wait().await?;
        Ok(before)
    }
}
