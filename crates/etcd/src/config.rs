//! From a store URL to settings.

use std::collections::HashSet;
use std::time::Duration;

use leasehold_core::{Code, ConfigError, Endpoint, Result, Scheme, Secret, StoreUrl};

/// How long one answer may take unless the URL says otherwise.
const TIMEOUT: Duration = Duration::from_millis(1500);
/// The bounds of that.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(60);
/// What stands before every name unless the URL says otherwise.
const PREFIX: &str = "lock/";
const PORT: u16 = 2379;
/// A password is at most so long; more is the wrong file.
const MOST_PASSWORD_BYTES: usize = 4096;

/// Where the members are, and how they are spoken to.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Each member, as its host and port.
    pub(crate) places: Vec<String>,
    pub(crate) tls: Option<Tls>,
    /// As whom, if the cluster wants to know.
    pub(crate) login: Option<(String, Secret)>,
    /// What stands before every key of ours; it ends with a slash.
    pub(crate) prefix: String,
    /// How long one answer may take.
    pub(crate) timeout: Duration,
    /// The store as errors name it.
    pub(crate) label: String,
}

/// What an encrypted connection is made with.
#[derive(Debug, Clone)]
pub(crate) struct Tls {
    /// The certificates to trust, instead of those that the machine trusts.
    pub(crate) ca: Option<Vec<u8>>,
    /// Our own certificate and its key.
    pub(crate) identity: Option<(Vec<u8>, Secret)>,
}

impl Settings {
    /// Reads the files that the URL names.
    pub(crate) fn parse(url: &StoreUrl) -> Result<Self> {
        // Destructured in full: a new part of a URL must not be passed over in silence.
        let StoreUrl { scheme, user, password, hosts, path, options } = url;
        let encrypted = match scheme {
            Scheme::Etcd => false,
            Scheme::Etcds => true,
            _ => return Err(wrong(format!("{url} is not the URL of an etcd"), "etcd://host1,host2,host3")),
        };
        let file = |option: &str| options.get(option).map(|path| read(option, path)).transpose();
        let (ca, cert, key) = (file("ca")?, file("cert")?, file("key")?);
        if !encrypted && (ca.is_some() || cert.is_some() || key.is_some()) {
            return Err(wrong(
                "etcd: takes no ca=, cert= or key=, it is not encrypted".to_owned(),
                "write etcds:// to use TLS",
            ));
        }
        let identity = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, secret("key", key)?)),
            (None, None) => None,
            _ => {
                return Err(wrong(
                    "cert= and key= belong together".to_owned(),
                    "name both files, or neither",
                ));
            }
        };
        let mut password = password.clone();
        if let Some(path) = options.get("password_file") {
            if password.is_some() {
                return Err(wrong(
                    "a password and a password_file= both stand in the URL".to_owned(),
                    "leave one of them out",
                ));
            }
            password = Some(password_in(path)?);
        }
        let login = match (user.clone(), password) {
            (Some(user), Some(password)) => Some((user, password)),
            (None, None) => None,
            (Some(_), None) => {
                return Err(wrong(
                    "the URL names a user and no password".to_owned(),
                    "add password_file=/path",
                ));
            }
            (None, Some(_)) => {
                return Err(wrong(
                    "the URL has a password and no user".to_owned(),
                    "etcd://user@host?password_file=/path",
                ));
            }
        };
        let timeout = options.get("timeout").map_or(Ok(TIMEOUT), |text| span(text))?;
        let places: Vec<String> = hosts.iter().map(place).collect();
        let mut named = HashSet::new();
        if let Some(twice) = places.iter().find(|place| !named.insert(place.to_ascii_lowercase())) {
            return Err(wrong(
                format!("the member {twice} stands twice in the URL"),
                "name each member once",
            ));
        }
        let prefix = prefix(path)?;
        let shown = if prefix == PREFIX { String::new() } else { format!("/{path}") };
        let label = format!("{}://{}{shown}", scheme.as_str(), places.join(","));
        let tls = encrypted.then_some(Tls { ca, identity });
        Ok(Self { places, tls, login, prefix, timeout, label })
    }
}

fn place(host: &Endpoint) -> String {
    Endpoint { host: host.host.clone(), port: Some(host.port.unwrap_or(PORT)) }.to_string()
}

fn prefix(path: &str) -> Result<String> {
    if path.is_empty() {
        return Ok(PREFIX.to_owned());
    }
    if path.chars().any(char::is_control) {
        let help = "choose one such as etcd://host/app for keys under app/";
        return Err(wrong(format!("the prefix {path:?} cannot be used"), help));
    }
    Ok(format!("{}/", path.strip_suffix('/').unwrap_or(path)))
}

fn wrong(message: String, help: &str) -> leasehold_core::Error {
    ConfigError::new(message).code(Code::URL).help(help).into()
}

fn read(option: &str, path: &str) -> Result<Vec<u8>> {
    std::fs::read(path)
        .map_err(|error| wrong(format!("cannot read {option}={path}: {error}"), "let this user read it"))
}

fn secret(option: &str, bytes: Vec<u8>) -> Result<Secret> {
    let text = String::from_utf8(bytes);
    let text = text.map_err(|_| wrong(format!("{option}= does not hold text"), "name a file in PEM form"))?;
    Ok(Secret::new(text))
}

fn password_in(path: &str) -> Result<Secret> {
    let text = String::from_utf8(read("password_file", path)?).unwrap_or_default();
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() || text.len() > MOST_PASSWORD_BYTES || text.contains(['\n', '\0']) {
        return Err(wrong(
            format!("password_file={path} does not hold one line of text"),
            "put the password in it, and nothing else",
        ));
    }
    Ok(Secret::new(text))
}

fn span(text: &str) -> Result<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let scale = match unit {
        "ms" => Some(1),
        "s" => Some(1000),
        _ => None,
    };
    let millis = number.parse::<u64>().ok().zip(scale).and_then(|(number, scale)| number.checked_mul(scale));
    let found = millis.map(Duration::from_millis).filter(|span| (SHORTEST..=LONGEST).contains(span));
    found.ok_or_else(|| {
        wrong(format!("timeout={text:?} cannot be used"), "10ms to 60s, such as timeout=1500ms")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings> {
        Settings::parse(&text.parse()?)
    }

    #[test]
    fn members_prefix_and_label() {
        let settings = parse("etcd://e1,e2:2380,[::1]/app?timeout=2s").unwrap();
        assert_eq!(settings.places, ["e1:2379", "e2:2380", "[::1]:2379"]);
        assert_eq!(settings.prefix, "app/");
        assert_eq!(settings.timeout, Duration::from_secs(2));
        assert_eq!(settings.label, "etcd://e1:2379,e2:2380,[::1]:2379/app");
        assert_eq!(parse("etcd://e1").unwrap().prefix, "lock/");
        assert_eq!(parse("etcd://e1/a/b/").unwrap().prefix, "a/b/");
    }

    #[test]
    fn what_cannot_be_used_says_what_to_write() {
        for bad in [
            "etcd://e1,E1",
            "etcd://me@e1",
            "etcd://:secret@e1",
            "etcd://e1?timeout=1h",
            "etcd://e1?ca=/etc/hosts",
            "etcds://e1?cert=/etc/hosts",
            "etcd://me:hunter2@e1?password_file=/etc/hosts",
            "etcd://me@e1?password_file=/no/such/file",
        ] {
            let error = parse(bad).unwrap_err();
            assert!(error.help().is_some(), "{bad}: {error}");
            assert!(!format!("{error} {error:?}").contains("hunter2"));
        }
    }

    #[test]
    fn no_label_and_no_print_shows_a_login() {
        let settings = parse("etcd://me:hunter2@e1").unwrap();
        assert_eq!(settings.label, "etcd://e1:2379");
        assert!(!format!("{settings:?}").contains("hunter2"));
    }
}
