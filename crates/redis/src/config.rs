//! From a store URL to settings.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_core::{Code, ConfigError, Endpoint, Result, Scheme, Secret, StoreUrl};

use crate::members::Members;
use crate::nodes::Peers;
use crate::trust;

/// How long one answer may take unless the URL says otherwise.
const TIMEOUT: Duration = Duration::from_millis(1500);
/// The bounds of that.
pub(crate) const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(60);
/// No lease is granted for longer.
pub(crate) const LONGEST_TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// Where redis-py, redlock and most hand-written locks look as well.
const PREFIX: &str = "lock:";
pub(crate) const PORT: u16 = 6379;
/// Where sentinels listen.
const SENTINEL_PORT: u16 = 26379;
/// A password is at most so long; more is the wrong file.
const MOST_PASSWORD_BYTES: usize = 4096;

/// Where the server is, and how it is spoken to.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) site: Site,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) database: i64,
    /// What stands before every name.
    pub(crate) prefix: String,
    /// How long one answer may take.
    pub(crate) timeout: Duration,
    /// How many replicas must have a lease before it counts.
    pub(crate) min_replicas: u32,
    /// For how long after its start a server grants nothing, since it may have forgotten what is held.
    pub(crate) restart_delay: Duration,
    /// The other nodes, where it is one of a quorum.
    pub(crate) peers: Peers,
    /// .. and the list of them.
    pub(crate) members: Option<Members>,
    /// The store as errors name it.
    pub(crate) label: String,
}

/// How the server is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Site {
    /// It is in one place.
    Fixed(Place),
    /// It is wherever these say.
    Watched(Sentinels),
    /// There are several, and each of these knows who has what.
    Cluster(Vec<Place>),
}

/// Who knows where the master of this name is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sentinels {
    /// Each of them. They and the servers that they name are spoken to in the same manner.
    pub(crate) places: Vec<Place>,
    pub(crate) master: String,
    /// Who we are to them, if they want to know.
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
}

/// Over TLS, if so: with the certificates of this CA, else those that the machine trusts.
pub(crate) type Tls = Option<Option<Vec<u8>>>;

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// At a port.
    Tcp { host: String, port: u16, tls: Tls },
    /// At a socket of this machine.
    Unix(PathBuf),
}

impl Place {
    /// What to look at when nobody can be reached there.
    pub(crate) fn advice(&self) -> &'static str {
        match self {
            Self::Unix(_) => "check the path of the socket, and that the server is up",
            Self::Tcp { tls: None, .. } => {
                "check host and port, and that the server is up; a port that speaks TLS wants rediss:// in the URL"
            }
            Self::Tcp { tls: Some(_), .. } => {
                "check host and port, and that the server is up; a port without TLS wants redis:// in the URL"
            }
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Tcp { host, port, tls: _ } => {
                write!(f, "{}", Endpoint { host: host.clone(), port: Some(*port) })
            }
        }
    }
}

impl Site {
    /// Whether all goes over TLS.
    pub(crate) fn is_encrypted(&self) -> bool {
        let encrypted = |place: &Place| matches!(place, Place::Tcp { tls: Some(_), .. });
        match self {
            Self::Fixed(place) => encrypted(place),
            Self::Watched(Sentinels { places, .. }) | Self::Cluster(places) => places.iter().all(encrypted),
        }
    }
}

impl Settings {
    /// Reads the files that the URL names.
    pub(crate) fn parse(url: &StoreUrl) -> Result<Self> {
        // Destructured in full: a new part of a URL must not be passed over in silence.
        let StoreUrl { scheme, user, password, hosts, path, options } = url;
        let tls = match scheme {
            Scheme::Redis | Scheme::Valkey | Scheme::Tair | Scheme::RedisUnix => false,
            Scheme::RedisSentinel | Scheme::RedisCluster => false,
            Scheme::Rediss | Scheme::Valkeys | Scheme::Tairs => true,
            Scheme::RedissSentinel | Scheme::RedissCluster => true,
            _ => {
                return Err(wrong(
                    format!("{url} is not the URL of one Redis server"),
                    "redis://host:6379/0",
                ));
            }
        };
        let ca = options.get("ca").map(|path| read(path, "ca")).transpose()?;
        if ca.is_some() && !tls {
            let (plain, more) = scheme.as_str().split_once('+').unwrap_or((scheme.as_str(), ""));
            let help =
                format!("write {plain}s{}{more}:// to use TLS", if more.is_empty() { "" } else { "+" });
            return Err(wrong(format!("{}: takes no ca=, it is not encrypted", scheme.as_str()), &help));
        }
        if let Some((path, why)) = options.get("ca").zip(ca.as_deref().and_then(trust::wrong_with)) {
            let help = "name a file of certificates in PEM form, such as ca=/etc/ssl/our-ca.pem";
            return Err(wrong(format!("ca={path} says of nobody that we may trust them: {why}"), help));
        }
        let tls = tls.then_some(ca);
        let (site, database) = match scheme {
            Scheme::RedisUnix if path.is_empty() => {
                return Err(wrong(
                    "redis+unix: needs the path of a socket".to_owned(),
                    "redis+unix:///run/redis.sock",
                ));
            }
            Scheme::RedisUnix => (Site::Fixed(Place::Unix(path.into())), 0),
            Scheme::RedisSentinel | Scheme::RedissSentinel => {
                let (master, path) = path.split_once('/').unwrap_or((path, ""));
                let sentinels = sentinels(*scheme, hosts, master, options, &tls)?;
                (Site::Watched(sentinels), database(path, "redis+sentinel://host1,host2,host3/name/0")?)
            }
            Scheme::RedisCluster | Scheme::RedissCluster => {
                if !matches!(path.as_str(), "" | "0") {
                    let message =
                        format!("{}: has no database {path:?}: a cluster has one, number 0", scheme.as_str());
                    let help = "leave it out; prefix= keeps the locks of several programs apart";
                    return Err(wrong(message, help));
                }
                (Site::Cluster(hosts.iter().map(|host| place(host, PORT, &tls)).collect()), 0)
            }
            _ => {
                let [host] = &hosts[..] else {
                    let help = "for several servers write redis+sentinel:, redis+cluster: or redlock+redis:";
                    return Err(wrong(format!("{}: takes one host", scheme.as_str()), help));
                };
                (Site::Fixed(place(host, PORT, &tls)), database(path, "redis://host/0")?)
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
            password = Some(password_in("password_file", path)?);
        }
        if user.is_some() && password.is_none() {
            return Err(wrong("the URL names a user and no password".to_owned(), "add password_file=/path"));
        }
        let prefix = options.get("prefix").cloned().unwrap_or_else(|| PREFIX.to_owned());
        if prefix.chars().any(char::is_control)
            || prefix.starts_with("lh:{")
            || prefix.starts_with("leasehold:")
        {
            return Err(wrong(
                format!("prefix={prefix:?} cannot be used"),
                "choose one such as prefix=lock:",
            ));
        }
        let timeout = options.get("timeout").map_or(Ok(TIMEOUT), |text| {
            span("timeout", text, SHORTEST..=LONGEST, "10ms to 60s, such as timeout=1500ms")
        })?;
        let restart_delay = options.get("restart_delay").map_or(Ok(Duration::ZERO), |text| {
            let help = "0s to 24h, such as restart_delay=30s: the longest ttl in use";
            span("restart_delay", text, Duration::ZERO..=LONGEST_TTL, help)
        })?;
        let min_replicas = options.get("min_replicas").map_or(Ok(0), |text| {
            let help = "write a number of replicas, such as min_replicas=1";
            text.parse().map_err(|_| wrong(format!("min_replicas={text:?} is not a number"), help))
        })?;
        let label = label(*scheme, &site, database);
        let (user, peers) = (user.clone(), Peers::default());
        Ok(Self {
            site,
            user,
            password,
            database,
            prefix,
            timeout,
            min_replicas,
            restart_delay,
            peers,
            members: None,
            label,
        })
    }
}

fn list(places: &[Place]) -> String {
    places.iter().map(Place::to_string).collect::<Vec<_>>().join(",")
}

/// The URL as errors show it: without user, password and options.
fn label(scheme: Scheme, site: &Site, database: i64) -> String {
    let scheme = scheme.as_str();
    let database = if database == 0 { String::new() } else { format!("/{database}") };
    match site {
        Site::Fixed(place) => format!("{scheme}://{place}{database}"),
        Site::Watched(Sentinels { places, master, .. }) => {
            format!("{scheme}://{}/{master}{database}", list(places))
        }
        Site::Cluster(places) => format!("{scheme}://{}", list(places)),
    }
}

fn place(host: &Endpoint, usual: u16, tls: &Tls) -> Place {
    Place::Tcp { host: host.host.clone(), port: host.port.unwrap_or(usual), tls: tls.clone() }
}

/// Who is asked for the master.
fn sentinels(
    scheme: Scheme,
    hosts: &[Endpoint],
    master: &str,
    options: &BTreeMap<String, String>,
    tls: &Tls,
) -> Result<Sentinels> {
    let places: Vec<Place> = hosts.iter().map(|host| place(host, SENTINEL_PORT, tls)).collect();
    let mut named = HashSet::new();
    if let Some(twice) = places.iter().find(|place| !named.insert(place.to_string().to_ascii_lowercase())) {
        let help = "name each sentinel once: what a majority of them says is believed";
        return Err(wrong(format!("the sentinel {twice} stands twice in the URL"), help));
    }
    // As `sentinel monitor` takes them.
    let fine = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    if master.is_empty() || !master.chars().all(fine) {
        let message = if master.is_empty() {
            format!("{}: needs the name of the master behind its hosts", scheme.as_str())
        } else {
            format!("{master:?} is not the name of a master")
        };
        let help = "the name that the sentinels monitor it under: redis+sentinel://host1,host2,host3/name";
        return Err(wrong(message, help));
    }
    let file = options.get("sentinel_password_file");
    let password = file.map(|path| password_in("sentinel_password_file", path)).transpose()?;
    let user = options.get("sentinel_user").cloned();
    if user.is_some() && password.is_none() {
        let message = "the URL names a sentinel_user= and no password for it".to_owned();
        return Err(wrong(message, "add sentinel_password_file=/path"));
    }
    Ok(Sentinels { places, master: master.to_owned(), user, password })
}

pub(crate) fn wrong(message: String, help: &str) -> leasehold_core::Error {
    ConfigError::new(message).code(Code::URL).help(help).into()
}

fn database(path: &str, example: &str) -> Result<i64> {
    if path.is_empty() {
        return Ok(0);
    }
    let number: Option<i64> = path.parse::<u16>().ok().map(i64::from);
    number.ok_or_else(|| {
        wrong(format!("{path:?} is not the number of a database"), &format!("for example {example}"))
    })
}

fn read(path: &str, option: &str) -> Result<Vec<u8>> {
    std::fs::read(path)
        .map_err(|error| wrong(format!("cannot read {option}={path}: {error}"), "let this user read it"))
}

fn password_in(option: &str, path: &str) -> Result<Secret> {
    let text = String::from_utf8(read(path, option)?).unwrap_or_default();
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() || text.len() > MOST_PASSWORD_BYTES || text.contains(['\n', '\0']) {
        return Err(wrong(
            format!("{option}={path} does not hold one line of text"),
            "put the password in it, and nothing else",
        ));
    }
    Ok(Secret::new(text))
}

/// A span of time within these bounds.
pub(crate) fn span(
    option: &str,
    text: &str,
    within: RangeInclusive<Duration>,
    help: &str,
) -> Result<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let millis = match unit {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let millis = millis.zip(number.parse::<u64>().ok()).and_then(|(unit, number)| number.checked_mul(unit));
    let span = millis.map(Duration::from_millis).filter(|span| within.contains(span));
    span.ok_or_else(|| wrong(format!("{option}={text:?} cannot be used"), &format!("write {help}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings> {
        Settings::parse(&text.parse().unwrap())
    }

    #[test]
    fn what_is_not_said_has_a_default() {
        let settings = parse("redis://cache").unwrap();
        let place = Place::Tcp { host: "cache".to_owned(), port: 6379, tls: None };
        assert_eq!((settings.site, settings.database), (Site::Fixed(place), 0));
        assert_eq!(
            (settings.prefix.as_str(), settings.timeout, settings.min_replicas),
            ("lock:", TIMEOUT, 0)
        );
        assert_eq!(settings.label, "redis://cache:6379");
    }

    #[test]
    fn all_that_can_be_said_is_heard() {
        let settings =
            parse("valkeys://me:pw@[::1]:7000/3?prefix=app:&timeout=2s&min_replicas=1&restart_delay=2m")
                .unwrap();
        let place = Place::Tcp { host: "::1".to_owned(), port: 7000, tls: Some(None) };
        assert_eq!(settings.site, Site::Fixed(place));
        assert_eq!((settings.user.as_deref(), settings.database), (Some("me"), 3));
        assert_eq!((settings.prefix.as_str(), settings.min_replicas), ("app:", 1));
        assert_eq!(settings.timeout, Duration::from_secs(2));
        assert_eq!(settings.restart_delay, Duration::from_secs(120));
        assert_eq!(settings.label, "valkeys://[::1]:7000/3");
        assert!(!format!("{settings:?}").contains("pw"));
        let unix = parse("redis+unix:///run/redis.sock").unwrap();
        assert_eq!(unix.site, Site::Fixed(Place::Unix("/run/redis.sock".into())));
    }

    #[test]
    fn sentinels_are_asked_for_a_master_by_its_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "hunter2\n").unwrap();
        let options = format!(
            "prefix=app:&min_replicas=1&restart_delay=2m&sentinel_user=s&sentinel_password_file={}",
            file.path().display()
        );
        let settings = parse(&format!("redis+sentinel://me:pw@s1,[::1]:7000/main-1/3?{options}")).unwrap();
        let at = |host: &str, port| Place::Tcp { host: host.to_owned(), port, tls: None };
        let sentinels = Sentinels {
            places: vec![at("s1", 26379), at("::1", 7000)],
            master: "main-1".to_owned(),
            user: Some("s".to_owned()),
            password: Some(Secret::new("hunter2")),
        };
        assert_eq!(settings.site, Site::Watched(sentinels));
        assert_eq!((settings.user.as_deref(), settings.database), (Some("me"), 3));
        assert_eq!((settings.prefix.as_str(), settings.min_replicas), ("app:", 1));
        assert_eq!(settings.label, "redis+sentinel://s1:26379,[::1]:7000/main-1/3");
        assert!(!format!("{settings:?}").contains("hunter2"));
        let settings = parse("rediss+sentinel://s1,s2,s3/main").unwrap();
        assert!(settings.site.is_encrypted());
        let Site::Watched(Sentinels { places, user, password, .. }) = settings.site else { panic!() };
        assert_eq!((places.len(), user, password), (3, None, None));
    }

    #[test]
    fn a_cluster_has_several_hosts_and_one_database() {
        let settings =
            parse("rediss+cluster://me:pw@a,[::1]:7000,c?prefix=app:&restart_delay=2m&timeout=2s").unwrap();
        let tcp = |host: &str, port| Place::Tcp { host: host.to_owned(), port, tls: Some(None) };
        assert_eq!(settings.site, Site::Cluster(vec![tcp("a", 6379), tcp("::1", 7000), tcp("c", 6379)]));
        assert_eq!(settings.label, "rediss+cluster://a:6379,[::1]:7000,c:6379");
        assert_eq!((settings.prefix.as_str(), settings.timeout), ("app:", Duration::from_secs(2)));
        assert_eq!((settings.restart_delay, settings.database), (Duration::from_secs(120), 0));
        assert!(settings.site.is_encrypted() && parse("redis+cluster://a/0").is_ok());
        let error = parse("redis+cluster://a,b/3").unwrap_err();
        assert!(error.code() == Code::URL && error.to_string().contains("number 0"), "{error}");
        let error = parse("redis+cluster://a?ca=/etc/hosts").unwrap_err();
        assert!(error.help().unwrap().contains("rediss+cluster://"), "{error:?}");
    }

    #[test]
    fn what_cannot_be_used_says_what_can() {
        for bad in [
            "redis://a,b",
            "redis://a/x",
            "redis://a/-1",
            "redis://a?timeout=5",
            "redis://a?timeout=0s",
            "redis://a?min_replicas=x",
            "redis://a?restart_delay=1",
            "redis://a?restart_delay=25h",
            "redis://a?prefix=leasehold:x",
            "redis://a?ca=/etc/hosts",
            "rediss://a?ca=/etc/hosts",
            "redis://a?password_file=/no/such/file",
            "redis://me@a",
            "redis://:pw@a?password_file=/etc/hosts",
            "redis+unix:",
            "redis+sentinel://a,b,c",
            "redis+sentinel://a,b,c//3",
            "redis+sentinel://a,b,c/two words",
            "redis+sentinel://a,b,c/main/x",
            "redis+sentinel://a,b,A:26379/main",
            "redis+sentinel://a/main?ca=/etc/hosts",
            "redis+sentinel://a/main?sentinel_user=me",
            "redis+sentinel://a/main?sentinel_password_file=/no/such/file",
            "memory:",
        ] {
            let error = parse(bad).unwrap_err();
            assert_eq!(error.code(), Code::URL, "{bad}");
            assert!(error.help().is_some(), "{bad}");
        }
    }

    #[test]
    fn a_password_may_stand_in_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "hunter2\r\n").unwrap();
        let settings = parse(&format!("redis://me@a?password_file={}", file.path().display())).unwrap();
        assert_eq!(settings.password.unwrap().expose(), "hunter2");
        std::fs::write(file.path(), "two\nlines").unwrap();
        assert!(parse(&format!("redis://a?password_file={}", file.path().display())).is_err());
    }
}
