//! The library's primitives under random programs, each history held to what its primitive promises.
//!
//! A store joins by one line: a [`Site`] that gives each run a fresh scene of several hosts. Their tasks acquire, try,
//! wait, drop futures, hold, look and give back at random while hosts die and are cut off; what they asked for and
//! were told is taken down, and for each name there must be one order of steps that the primitive allows.
//!
//! `LEASEHOLD_SEED` plays one run again; threads decide some of it, so a failure prints its whole history as well.

#[cfg(test)]
mod brute;
mod drive;
mod fate;
mod history;
mod model;
#[cfg(test)]
mod mutate;
mod record;
mod scene;
mod sites;
mod suite;
mod tasks;
mod wgl;

pub use drive::NAMES;
pub use history::{History, Lingers, histories};
pub use model::{Hold, Kind, State, Step, Want};
pub use record::{Event, Recorder, Records, Told};
pub use scene::{ByUrl, FarWithFaults, Host, Scene, Site, WithFaults};
pub use sites::{
    cluster, etcd, etcd_with_faults, memory_with_faults, quorum, quorum_with_faults, redis,
    redis_with_faults, sqlite, zookeeper, zookeeper_with_faults,
};
pub use suite::{Traffic, check, one, prove, prove_from};
pub use wgl::{NEVER, Operation, Stamp, Verdict, search};
