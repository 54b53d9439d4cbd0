//! Compiles the wire definition of gRPC health checks in process: no protoc is needed to build the kubelet.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=../proto/health");
    let definition = protox::compile(["health/health.proto"], ["../proto"])?;
    tonic_prost_build::configure()
        .server_mod_attribute(".", "#[cfg(any(test, feature = \"fake\"))]")
        .compile_fds(definition)?;
    Ok(())
}
