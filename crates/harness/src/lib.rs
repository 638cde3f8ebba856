//! Many processes of one store, killed, frozen and measured: what the tests and proofs of whole programs share.
//!
//! Not published. It starts the programs of this package itself and ends each by its process id.

pub mod puppet;
