//! From a URL to a store: the only file that names store crates.

use std::sync::Arc;

use leasehold_core::{Clock, Code, ConfigError, MemoryStore, Result, Scheme, Store, StoreUrl};

#[cfg(feature = "redis")]
use crate::Quorum;

/// A store, and the file that was made for it.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) created: Option<String>,
}

/// Opens the store that a URL names; its leases are tied to the life of this process, where they can be, unless they
/// are to be `detached`. May block for as long as its files take.
#[cfg_attr(
    not(feature = "sqlite"),
    expect(unused_variables, reason = "only a lease in a file is tied to a life")
)]
pub(crate) fn open(url: &StoreUrl, clock: Clock, detached: bool) -> Result<Opened> {
    match url.scheme {
        Scheme::Memory => Ok(Opened { store: Arc::new(MemoryStore::with_clock(clock)), created: None }),
        #[cfg(feature = "sqlite")]
        Scheme::Sqlite => {
            let store = leasehold_sqlite::SqliteStore::open_with(url, clock)?;
            let created = store.created().then(|| store.path().display().to_string());
            let store = if detached { store.detached() } else { store };
            Ok(Opened { store: Arc::new(store), created })
        }
        #[cfg(feature = "redis")]
        Scheme::Redis
        | Scheme::Rediss
        | Scheme::RedisUnix
        | Scheme::Valkey
        | Scheme::Valkeys
        | Scheme::Tair
        | Scheme::Tairs
        | Scheme::RedisSentinel
        | Scheme::RedissSentinel
        | Scheme::RedisCluster
        | Scheme::RedissCluster => {
            let store = leasehold_redis::RedisStore::open_with(url, clock)?;
            Ok(Opened { store: Arc::new(store), created: None })
        }
        #[cfg(feature = "redis")]
        Scheme::RedlockRedis | Scheme::RedlockRediss => {
            let nodes = leasehold_redis::RedisNodes::open_with(url, &clock)?;
            let stores = nodes.stores.into_iter().map(|store| Arc::new(store) as Arc<dyn Store>).collect();
            let quorum = Quorum::builder(stores).clock(clock).label(nodes.label);
            let quorum = quorum.node_timeout(nodes.node_timeout).longest_ttl(nodes.longest_ttl).build()?;
            Ok(Opened { store: Arc::new(quorum), created: None })
        }
        #[cfg(feature = "etcd")]
        Scheme::Etcd | Scheme::Etcds => {
            let store = leasehold_etcd::EtcdStore::open_with(url, clock)?;
            Ok(Opened { store: Arc::new(store), created: None })
        }
        #[cfg(feature = "zookeeper")]
        Scheme::Zookeeper | Scheme::Zookeepers => {
            let store = leasehold_zookeeper::ZooKeeperStore::open_with(url, clock)?;
            Ok(Opened { store: Arc::new(store), created: None })
        }
        other => Err(ConfigError::new(format!("this build has no store for {}: URLs", other.as_str()))
            .code(Code::URL)
            .help(format!("it has: {}", built_in().join(" ")))
            .into()),
    }
}

/// The schemes that this build can open.
pub(crate) fn built_in() -> Vec<&'static str> {
    let sqlite = cfg!(feature = "sqlite").then_some("sqlite:");
    let redis: &[&str] = if cfg!(feature = "redis") {
        &["redis:", "valkey:", "tair:", "redis+sentinel:", "redis+cluster:", "redlock+redis:"]
    } else {
        &[]
    };
    let etcd = cfg!(feature = "etcd").then_some("etcd:");
    let zookeeper = cfg!(feature = "zookeeper").then_some("zookeeper:");
    let all = sqlite.into_iter().chain(redis.iter().copied()).chain(etcd).chain(zookeeper);
    all.chain(["memory:"]).collect()
}
