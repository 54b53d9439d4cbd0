//! Compiles the wire definitions under `proto/` in process: no protoc is needed to build the kubelet.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let cri = protox::compile(["cri/service.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .btree_map(".")
        // Credentials must not reach a log through `{:?}`: its Debug is written by hand.
        .skip_debug(["runtime.v1.AuthConfig"])
        .server_mod_attribute(".", "#[cfg(feature = \"fake\")]")
        .compile_fds(cri)?;
    let health = protox::compile(["health/health.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .server_mod_attribute(".", "#[cfg(any(test, feature = \"fake\"))]")
        .compile_fds(health)?;
    Ok(())
}
