//! The ZooKeeper store: the line of sequential nodes that its recipes share.
