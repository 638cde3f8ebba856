//! Store URLs: one parser for every store, so that one mistake gets one message.

use std::collections::BTreeMap;
use std::fmt;

use percent_encoding::percent_decode_str;

/// How the part of a URL after its scheme is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Nothing follows.
    Bare,
    /// A path of this machine.
    Path,
    /// `//[user[:password]@]host[:port][,host ..][/path]`.
    Hosts,
}

macro_rules! schemes {
    ($($(#[$doc:meta])+ $name:ident $text:literal $shape:ident [$($option:literal),*];)+) => {
        /// Which store, and how it is spoken to.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Scheme { $($(#[$doc])+ $name),+ }

        impl Scheme {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// As it is written in a URL.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text),+ }
            }

            /// The options that may stand behind `?`.
            #[must_use]
            pub const fn options(self) -> &'static [&'static str] {
                match self { $(Self::$name => &[$($option),*]),+ }
            }

            const fn shape(self) -> Shape {
                match self { $(Self::$name => Shape::$shape),+ }
            }
        }
    };
}

schemes! {
    /// A SQLite file on this host.
    Sqlite "sqlite" Path ["group"];
    /// The memory of this process.
    Memory "memory" Bare [];
    /// Redis.
    Redis "redis" Hosts ["prefix", "timeout", "min_replicas", "restart_delay", "ca", "password_file"];
    /// Redis over TLS.
    Rediss "rediss" Hosts ["prefix", "timeout", "min_replicas", "restart_delay", "ca", "password_file"];
    /// Redis over a unix socket.
    RedisUnix "redis+unix" Path ["prefix", "timeout", "min_replicas", "restart_delay", "password_file"];
    /// Redis behind Sentinel.
    RedisSentinel "redis+sentinel" Hosts [
        "prefix", "timeout", "min_replicas", "restart_delay", "ca", "password_file", "sentinel_user",
        "sentinel_password_file"
    ];
    /// Redis behind Sentinel, over TLS.
    RedissSentinel "rediss+sentinel" Hosts [
        "prefix", "timeout", "min_replicas", "restart_delay", "ca", "password_file", "sentinel_user",
        "sentinel_password_file"
    ];
    /// A Redis Cluster.
    RedisCluster "redis+cluster" Hosts [
        "prefix", "timeout", "min_replicas", "restart_delay", "ca", "password_file"
    ];
    /// A Redis Cluster over TLS.
    RedissCluster "rediss+cluster" Hosts [
        "prefix", "timeout", "min_replicas", "restart_delay", "ca", "password_file"
    ];
    /// A quorum of several Redis.
    RedlockRedis "redlock+redis" Hosts [
        "prefix", "node_timeout", "longest_ttl", "restart_delay", "epoch", "ca", "password_file"
    ];
    /// A quorum of several Redis over TLS.
    RedlockRediss "redlock+rediss" Hosts [
        "prefix", "node_timeout", "longest_ttl", "restart_delay", "epoch", "ca", "password_file"
    ];
    /// Valkey.
    Valkey "valkey" Hosts ["prefix", "timeout", "min_replicas", "restart_delay", "ca", "password_file"];
    /// Valkey over TLS.
    Valkeys "valkeys" Hosts ["prefix", "timeout", "min_replicas", "restart_delay", "ca", "password_file"];
    /// Tair.
    Tair "tair" Hosts ["prefix", "timeout", "min_replicas", "restart_delay", "ca", "password_file"];
    /// Tair over TLS.
    Tairs "tairs" Hosts ["prefix", "timeout", "min_replicas", "restart_delay", "ca", "password_file"];
    /// ZooKeeper.
    Zookeeper "zookeeper" Hosts ["auth_file", "session", "timeout", "tick"];
    /// ZooKeeper over TLS.
    Zookeepers "zookeepers" Hosts ["auth_file", "session", "timeout", "tick"];
    /// etcd.
    Etcd "etcd" Hosts ["ca", "cert", "key", "password_file", "timeout"];
    /// etcd over TLS.
    Etcds "etcds" Hosts ["ca", "cert", "key", "password_file", "timeout"];
    /// PostgreSQL.
    Postgres "postgres" Hosts ["layout", "schema", "sslmode", "application_name", "options", "host"];
    /// MySQL.
    Mysql "mysql" Hosts ["layout"];
    /// MariaDB.
    Mariadb "mariadb" Hosts ["layout"];
}

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps a secret.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself, for the one who must send it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// One server in a URL.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Its name or address, without the brackets of IPv6.
    pub host: String,
    /// Its port, if written.
    pub port: Option<u16>,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?;
        } else {
            f.write_str(&self.host)?;
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// The URL of a store, parsed. Printing it shows no password.
///
/// ```
/// use leasehold_core::{Scheme, StoreUrl};
///
/// let url: StoreUrl = "redis://locks:secret@cache-1:6380/0?prefix=app:".parse()?;
/// assert_eq!(url.scheme, Scheme::Redis);
/// assert_eq!(url.to_string(), "redis://locks:***@cache-1:6380/0?prefix=app:");
/// assert!("redis://h?colour=red".parse::<StoreUrl>().is_err());
/// # Ok::<(), leasehold_core::UrlError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreUrl {
    /// Which store.
    pub scheme: Scheme,
    /// The user, if written.
    pub user: Option<String>,
    /// The password, if written.
    pub password: Option<Secret>,
    /// The servers; empty for stores that have none.
    pub hosts: Vec<Endpoint>,
    /// The path, decoded; without its first `/` where servers stand before it.
    pub path: String,
    /// The options behind `?`, decoded.
    pub options: BTreeMap<String, String>,
}

/// Why a text is not a store URL, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlError {
    message: String,
    help: String,
}

impl UrlError {
    /// A store's own complaint about a URL that is well formed.
    #[must_use]
    pub fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), help: help.into() }
    }

    /// What to write instead.
    #[must_use]
    pub fn help(&self) -> &str {
        &self.help
    }
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for UrlError {}

fn wrong<T>(message: impl Into<String>, help: impl Into<String>) -> Result<T, UrlError> {
    Err(UrlError::new(message, help))
}

impl std::str::FromStr for StoreUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let known = || {
            let names: Vec<_> = Scheme::ALL.iter().map(|scheme| format!("{}:", scheme.as_str())).collect();
            format!("known: {}", names.join(" "))
        };
        // The text itself may hold a password, so no message repeats more than its scheme.
        let Some((name, rest)) = text.split_once(':') else {
            return wrong("this is not a store URL: it has no scheme", known());
        };
        let Some(scheme) = Scheme::ALL.iter().copied().find(|scheme| scheme.as_str() == name) else {
            let shown: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
            return wrong(format!("no store is called {shown:?}"), known());
        };
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        let mut url = Self {
            scheme,
            user: None,
            password: None,
            hosts: Vec::new(),
            path: String::new(),
            options: query.map_or(Ok(BTreeMap::new()), |query| parse_options(scheme, query))?,
        };
        match scheme.shape() {
            Shape::Bare if rest.is_empty() || rest == "//" => {}
            Shape::Bare => return wrong(format!("{name}: takes nothing behind it"), format!("{name}:")),
            Shape::Path => url.path = decode(scheme, rest.strip_prefix("//").unwrap_or(rest))?,
            Shape::Hosts => url.parse_hosts(rest)?,
        }
        Ok(url)
    }
}

impl StoreUrl {
    fn parse_hosts(&mut self, rest: &str) -> Result<(), UrlError> {
        let scheme = self.scheme;
        let example = || format!("for example {}://host1", scheme.as_str());
        let Some(rest) = rest.strip_prefix("//") else {
            return wrong(format!("{}: needs // before its host", scheme.as_str()), example());
        };
        let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) =
            place.rsplit_once('@').map_or((None, place), |(login, hosts)| (Some(login), hosts));
        if let Some(login) = login {
            let (user, password) = login.split_once(':').map_or((login, None), |(u, p)| (u, Some(p)));
            self.user = (!user.is_empty()).then(|| decode(scheme, user)).transpose()?;
            self.password = password.map(|text| decode(scheme, text).map(Secret)).transpose()?;
        }
        self.path = decode(scheme, path)?;
        for text in hosts.split(',') {
            self.hosts.push(parse_endpoint(scheme, text, &example())?);
        }
        Ok(())
    }
}

fn parse_endpoint(scheme: Scheme, text: &str, example: &str) -> Result<Endpoint, UrlError> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, "")) => (host, None),
            Some((host, port)) if port.starts_with(':') => (host, port.strip_prefix(':')),
            _ => return wrong("an IPv6 address is written in brackets: [::1]:6379", example),
        },
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let fine = !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || c.is_control());
    if !fine {
        return wrong(format!("a host is missing in the {} URL", scheme.as_str()), example);
    }
    let port = match port {
        None => None,
        Some(text) => match text.parse::<u16>() {
            Ok(port) if port > 0 => Some(port),
            _ => return wrong(format!("{text:?} is not a port of host {host}"), "a port is 1 to 65535"),
        },
    };
    Ok(Endpoint { host: host.to_owned(), port })
}

fn parse_options(scheme: Scheme, query: &str) -> Result<BTreeMap<String, String>, UrlError> {
    let mut options = BTreeMap::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if !scheme.options().contains(&name) {
            let help = match scheme.options() {
                [] => format!("{}: takes no options", scheme.as_str()),
                known => format!("known: {}", known.join(", ")),
            };
            return wrong(format!("{}: has no option {name:?}", scheme.as_str()), help);
        }
        if options.insert(name.to_owned(), decode(scheme, value)?).is_some() {
            return wrong(format!("the option {name} stands twice in the URL"), "write it once");
        }
    }
    Ok(options)
}

fn decode(scheme: Scheme, text: &str) -> Result<String, UrlError> {
    let decoded = percent_decode_str(text).decode_utf8().map(|text| text.into_owned());
    match decoded {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => wrong(
            format!("a part of the {} URL is not UTF-8 text once its %.. are decoded", scheme.as_str()),
            "write special characters as %.. of their UTF-8 bytes",
        ),
    }
}

impl fmt::Display for StoreUrl {
    /// The URL without its password, for people and logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scheme, user, password, hosts, path, options } = self;
        write!(f, "{}:", scheme.as_str())?;
        if scheme.shape() == Shape::Hosts {
            f.write_str("//")?;
            f.write_str(user.as_deref().unwrap_or(""))?;
            if password.is_some() {
                f.write_str(":***")?;
            }
            if user.is_some() || password.is_some() {
                f.write_str("@")?;
            }
            for (index, host) in hosts.iter().enumerate() {
                write!(f, "{}{host}", if index == 0 { "" } else { "," })?;
            }
            if !path.is_empty() {
                f.write_str("/")?;
            }
        }
        f.write_str(path)?;
        for (index, (name, value)) in options.iter().enumerate() {
            write!(f, "{}{name}={value}", if index == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<StoreUrl, UrlError> {
        text.parse()
    }

    #[test]
    fn a_file_may_be_anywhere_and_the_default_has_no_path() {
        for (text, path) in [
            ("sqlite:", ""),
            ("sqlite:locks.db", "locks.db"),
            ("sqlite:/var/lib/x.db", "/var/lib/x.db"),
            ("sqlite:///var/lib/x.db", "/var/lib/x.db"),
            ("sqlite:a%20b.db", "a b.db"),
        ] {
            assert_eq!(parse(text).unwrap().path, path, "{text}");
        }
        assert_eq!(parse("sqlite:x.db?group=locks").unwrap().options["group"], "locks");
    }

    #[test]
    fn several_servers_with_and_without_ports() {
        let url = parse("redlock+redis://r1,r2:6380,[::1]:7000").unwrap();
        let shown: Vec<_> = url.hosts.iter().map(Endpoint::to_string).collect();
        assert_eq!(shown, ["r1", "r2:6380", "[::1]:7000"]);
        let url = parse("redis+sentinel://s1,s2/main/3").unwrap();
        assert_eq!(url.path, "main/3");
    }

    #[test]
    fn no_error_and_no_print_shows_a_password() {
        let url = parse("rediss://me:hun%3ater2@h/0").unwrap();
        assert_eq!(url.password.as_ref().unwrap().expose(), "hun:ter2");
        assert!(!format!("{url} {url:?}").contains("hun"));
        for bad in ["redis:me:hunter2@h", "redis://me:hunter2@h?x=1", "redis://me:hunter2@", "me:hunter2@h"] {
            let error = parse(bad).unwrap_err();
            assert!(!format!("{error} {error:?} {}", error.help()).contains("hunter2"), "{bad}: {error}");
        }
    }

    #[test]
    fn unknown_schemes_and_options_list_the_known_ones() {
        assert!(parse("mongodb://h").unwrap_err().help().contains("sqlite: memory: redis:"));
        assert_eq!(parse("sqlite:x?mode=ro").unwrap_err().help(), "known: group");
        for bad in ["", "x", "memory:x", "redis:h", "redis://", "redis://h:0", "redis://h:x", "sqlite:%ff"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
