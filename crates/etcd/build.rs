//! Compiles the protocol, without `protoc`: a newcomer's first build needs nothing but Rust.

use std::error::Error;

const PROTO: &str = "proto/etcd.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={PROTO}");
    let files = protox::compile([PROTO], ["proto"])?;
    tonic_prost_build::configure().build_server(false).build_transport(true).compile_fds(files)?;
    Ok(())
}
