//! Locks in etcd: the store of Leasehold for fleets that have a cluster already, in one line with `etcdctl lock`.
//!
//! ```no_run
//! use leasehold_etcd::EtcdStore;
//!
//! let store = EtcdStore::open(&"etcd://e1,e2,e3/app".parse()?)?;
//! # Ok::<(), leasehold_core::Error>(())
//! ```
//!
//! # What it promises
//!
//! - **One line with the rest of the world.** A claim is a key `PREFIX/NAME/<lease id>`, as those of `etcdctl lock`, of Go's
//!   `concurrency.Mutex` and `Election`, and of v3lock; the lowest create revision holds, and is the token.
//! - **Tokens always rise**: they are revisions. One below a token that was seen is refused.
//! - **A lease for each claim.** A free name is taken in the transaction that sees it free; who waited takes it in one that
//!   writes under the condition of its own key. A renewal counts if a transaction of the same term follows its keep-alive.
//! - **Waiting is told** by one watch for each process; nobody is woken before its turn. A dead waiter costs the others 2 s
//!   and the half second that etcd may take.
//! - **A deadline for each answer**, the next member where one does not answer, and nothing that asked twice is done twice.
//!
//! # What it does not do
//!
//! - **It cannot mend a server that ends leases early**: etcd before 3.4.31 and 3.5.13 may, after a pause of its leader.
//!   `doctor` says so; what is written to must check the token.
//! - Leases are whole seconds, and no shorter than the cluster likes: 2 s as etcd comes. After a change of leader each
//!   counts anew.
//! - Leases change no share, and go to no other owner.
//! - It tells no time, so that a claim that comes late is known by its spent id only.
//! - At most 64 names are one step. Of holders that are other clients neither host nor process is known.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod after;
mod claims;
mod client;
mod config;
mod doctor;
mod ends;
mod fail;
mod holds;
mod keys;
mod ledger;
mod line;
mod link;
mod listen;
mod names;
mod renewals;
mod spent;
mod store;
mod together;
mod value;
mod version;
mod wake;

/// The messages of etcd's API, as `proto/etcd.proto` has them.
mod proto {
    #![expect(unreachable_pub, clippy::enum_variant_names, reason = "generated")]
    tonic::include_proto!("etcdserverpb");
}

pub use store::EtcdStore;
