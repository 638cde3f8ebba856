//! The etcd store: the line of keys that `etcdctl lock` and the `concurrency` package share.
