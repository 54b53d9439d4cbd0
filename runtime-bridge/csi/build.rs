//! Compiles the wire definitions of CSI and of the registration of plugins in process: no protoc is needed to build the
//! kubelet.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=../proto/csi");
    println!("cargo:rerun-if-changed=../proto/registration");
    let files = ["csi/identity.proto", "csi/node.proto", "registration/registration.proto"];
    let definition = protox::compile(files, ["../proto"])?;
    tonic_prost_build::configure()
        .btree_map(".")
        // Secrets and tokens must not reach a log through `{:?}`: their Debug is written by hand.
        .skip_debug([
            "csi.v1.NodeStageVolumeRequest",
            "csi.v1.NodePublishVolumeRequest",
            "csi.v1.NodeExpandVolumeRequest",
        ])
        .server_mod_attribute(".", "#[cfg(feature = \"fake\")]")
        .compile_fds(definition)?;
    Ok(())
}
