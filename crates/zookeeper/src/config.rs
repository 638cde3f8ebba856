//! From a store URL to settings.

use std::collections::HashSet;
use std::time::Duration;

use leasehold_core::{Code, ConfigError, Endpoint, Result, Scheme, Secret, StoreUrl};

/// How long one answer may take unless the URL says otherwise.
const TIMEOUT: Duration = Duration::from_millis(1500);
/// The bounds of that, and of a tick.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(60);
/// The `tickTime` that a server has unless it is told otherwise.
const TICK: Duration = Duration::from_secs(2);
/// Below which node everything is unless the URL says otherwise.
const ROOT: &str = "leasehold";
const PORT: u16 = 2181;
/// A login is at most so long; more is the wrong file.
const MOST_LOGIN_BYTES: usize = 4096;

/// Where the servers are, and how they are spoken to.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Each server, as its host and port.
    pub(crate) places: Vec<String>,
    /// Below which node everything is.
    pub(crate) root: String,
    /// A user and a password, of the scheme `digest`.
    pub(crate) login: Option<Secret>,
    /// Whether each claim has a session to itself.
    pub(crate) own: bool,
    /// How long one answer may take.
    pub(crate) timeout: Duration,
    /// The `tickTime` of the servers, which they do not tell.
    pub(crate) tick: Duration,
    /// The store as errors name it.
    pub(crate) label: String,
}

impl Settings {
    /// Reads the file that the URL names.
    pub(crate) fn parse(url: &StoreUrl) -> Result<Self> {
        // Destructured in full: a new part of a URL must not be passed over in silence.
        let StoreUrl { scheme, user, password, hosts, path, options } = url;
        match scheme {
            Scheme::Zookeeper => {}
            Scheme::Zookeepers => {
                return Err(wrong(
                    "zookeepers: this build does not speak TLS to ZooKeeper".to_owned(),
                    "write zookeeper:// and let a tunnel beside this program encrypt, such as stunnel",
                ));
            }
            _ => {
                return Err(wrong(
                    format!("{url} is not the URL of a ZooKeeper"),
                    "zookeeper://host1,host2,host3",
                ));
            }
        }
        if user.is_some() || password.is_some() {
            return Err(wrong(
                "zookeeper: takes no user and no password in the URL".to_owned(),
                "put user:password into a file and name it: auth_file=/path",
            ));
        }
        let login = options.get("auth_file").map(|path| login_in(path)).transpose()?;
        let own = match options.get("session").map(String::as_str) {
            None | Some("shared") => false,
            Some("own") => true,
            Some(other) => {
                return Err(wrong(
                    format!("session={other:?} cannot be used"),
                    "session=shared or session=own",
                ));
            }
        };
        let span = |option: &str, usual| options.get(option).map_or(Ok(usual), |text| span(option, text));
        let (timeout, tick) = (span("timeout", TIMEOUT)?, span("tick", TICK)?);
        let places: Vec<String> = hosts.iter().map(place).collect();
        let mut named = HashSet::new();
        if let Some(twice) = places.iter().find(|place| !named.insert(place.to_ascii_lowercase())) {
            let message = format!("the server {twice} stands twice in the URL");
            return Err(wrong(message, "name each server once"));
        }
        let root = root(path)?;
        let shown = if root == format!("/{ROOT}") { String::new() } else { root.clone() };
        let label = format!("{}://{}{shown}", scheme.as_str(), places.join(","));
        Ok(Self { places, root, login, own, timeout, tick, label })
    }
}

fn place(host: &Endpoint) -> String {
    Endpoint { host: host.host.clone(), port: Some(host.port.unwrap_or(PORT)) }.to_string()
}

fn root(path: &str) -> Result<String> {
    let path = path.trim_end_matches('/');
    let path = if path.is_empty() { ROOT } else { path };
    let usable =
        |part: &str| !part.is_empty() && part != "." && part != ".." && !part.chars().any(char::is_control);
    if !path.split('/').all(usable) || path.split('/').next() == Some("zookeeper") {
        let help = "name a path such as zookeeper://host/app for nodes below /app";
        return Err(wrong(format!("the path {path:?} cannot be used"), help));
    }
    Ok(format!("/{path}"))
}

fn wrong(message: String, help: &str) -> leasehold_core::Error {
    ConfigError::new(message).code(Code::URL).help(help).into()
}

fn login_in(path: &str) -> Result<Secret> {
    let bytes = std::fs::read(path)
        .map_err(|error| wrong(format!("cannot read auth_file={path}: {error}"), "let this user read it"))?;
    let text = String::from_utf8(bytes).unwrap_or_default();
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    let usable = text.len() <= MOST_LOGIN_BYTES && !text.contains(['\n', '\0']);
    if !usable || text.split_once(':').is_none_or(|(user, _)| user.is_empty()) {
        return Err(wrong(
            format!("auth_file={path} does not hold one line such as user:password"),
            "put the user, a colon and the password in it, and nothing else",
        ));
    }
    Ok(Secret::new(text))
}

fn span(option: &str, text: &str) -> Result<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let scale = match unit {
        "ms" => Some(1),
        "s" => Some(1000),
        _ => None,
    };
    let millis = number.parse::<u64>().ok().zip(scale).and_then(|(number, scale)| number.checked_mul(scale));
    let found = millis.map(Duration::from_millis).filter(|span| (SHORTEST..=LONGEST).contains(span));
    found.ok_or_else(|| {
        wrong(format!("{option}={text:?} cannot be used"), "10ms to 60s, such as timeout=1500ms")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings> {
        Settings::parse(&text.parse()?)
    }

    #[test]
    fn servers_root_and_label() {
        let settings = parse("zookeeper://z1,z2:2182,[::1]/app/locks?timeout=2s&tick=500ms").unwrap();
        assert_eq!(settings.places, ["z1:2181", "z2:2182", "[::1]:2181"]);
        assert_eq!(settings.root, "/app/locks");
        assert_eq!((settings.timeout, settings.tick), (Duration::from_secs(2), Duration::from_millis(500)));
        assert_eq!(settings.label, "zookeeper://z1:2181,z2:2182,[::1]:2181/app/locks");
        let usual = parse("zookeeper://z1?session=own").unwrap();
        assert!(usual.root == "/leasehold" && usual.own && usual.label == "zookeeper://z1:2181");
    }

    #[test]
    fn what_cannot_be_used_says_what_to_write() {
        for bad in [
            "zookeeper://z1,Z1",
            "zookeeper://me:hunter2@z1",
            "zookeepers://z1",
            "zookeeper://z1?timeout=1h",
            "zookeeper://z1?session=mine",
            "zookeeper://z1/zookeeper/app",
            "zookeeper://z1?auth_file=/no/such/file",
            "zookeeper://z1?auth_file=/etc/hostname",
        ] {
            let error = parse(bad).unwrap_err();
            assert!(error.help().is_some(), "{bad}: {error}");
            assert!(!format!("{error} {error:?}").contains("hunter2"));
        }
    }
}
