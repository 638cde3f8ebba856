//! Locks in etcd: the store of Leasehold for fleets that have a cluster already, in one line with `etcdctl lock`.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod claims;
mod client;
mod config;
mod ends;
mod fail;
mod holds;
mod keys;
mod line;
mod link;
mod listen;
mod names;
mod renewals;
mod spent;
mod store;
mod together;
mod value;
mod wake;

/// The messages of etcd's API, as `proto/etcd.proto` has them.
mod proto {
    #![expect(unreachable_pub, reason = "generated")]
    tonic::include_proto!("etcdserverpb");
}

pub use store::EtcdStore;
