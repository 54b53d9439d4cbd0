//! Compiles the wire definition of the CRI in process: no protoc is needed to build the kubelet.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=../proto/cri");
    let definition = protox::compile(["cri/service.proto"], ["../proto"])?;
    tonic_prost_build::configure()
        .btree_map(".")
        // Credentials must not reach a log through `{:?}`: its Debug is written by hand.
        .skip_debug(["runtime.v1.AuthConfig"])
        .server_mod_attribute(".", "#[cfg(feature = \"fake\")]")
        .compile_fds(definition)?;
    Ok(())
}
