//! Locks in etcd: the store of Leasehold for fleets that have a cluster already, in one line with `etcdctl lock`.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

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
