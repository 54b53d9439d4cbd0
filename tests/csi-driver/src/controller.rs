//! The part of a driver's controller service that a test needs to play provisioner and attacher. A kubelet calls none of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bridge_csi::wire::volume_capability::access_mode::Mode;
use bridge_csi::wire::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use bridge_csi::wire::{CapacityRange, VolumeCapability};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Endpoint, Uri};
use tonic_prost::ProstCodec;

const DEADLINE: Duration = Duration::from_secs(60);

#[derive(Clone, PartialEq, prost::Message)]
struct CreateVolumeRequest {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    capacity_range: Option<CapacityRange>,
    #[prost(message, repeated, tag = "3")]
    volume_capabilities: Vec<VolumeCapability>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct CreateVolumeResponse {
    #[prost(message, optional, tag = "1")]
    volume: Option<Volume>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Volume {
    #[prost(int64, tag = "1")]
    capacity_bytes: i64,
    #[prost(string, tag = "2")]
    volume_id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct DeleteVolumeRequest {
    #[prost(string, tag = "1")]
    volume_id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ControllerPublishVolumeRequest {
    #[prost(string, tag = "1")]
    volume_id: String,
    #[prost(string, tag = "2")]
    node_id: String,
    #[prost(message, optional, tag = "3")]
    volume_capability: Option<VolumeCapability>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ControllerPublishVolumeResponse {
    #[prost(btree_map = "string, string", tag = "1")]
    publish_context: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ControllerUnpublishVolumeRequest {
    #[prost(string, tag = "1")]
    volume_id: String,
    #[prost(string, tag = "2")]
    node_id: String,
}

/// A response without fields.
#[derive(Clone, PartialEq, prost::Message)]
struct Nothing {}

/// A client that connects for each call.
#[derive(Clone, Debug)]
pub struct Controller {
    socket: PathBuf,
}

impl Controller {
    pub(crate) fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    /// Creates a volume, of a file system or, with `is_block`, a device; returns its handle.
    ///
    /// # Errors
    /// The driver's words.
    pub fn create(&self, name: &str, bytes: i64, is_block: bool) -> Result<String, String> {
        let request = CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(CapacityRange { required_bytes: bytes, ..CapacityRange::default() }),
            volume_capabilities: vec![capability(is_block)],
        };
        let response: CreateVolumeResponse = self.call("CreateVolume", request)?;
        response.volume.map(|volume| volume.volume_id).ok_or_else(|| "it tells of no volume".to_owned())
    }

    /// Deletes a volume. The driver refuses while it is attached, staged or published.
    ///
    /// # Errors
    /// The driver's words.
    pub fn delete(&self, volume_id: &str) -> Result<(), String> {
        let request = DeleteVolumeRequest { volume_id: volume_id.to_owned() };
        self.call::<_, Nothing>("DeleteVolume", request).map(drop)
    }

    /// Attaches a volume to the node; returns what the node is to be told.
    ///
    /// # Errors
    /// The driver's words.
    pub fn attach(
        &self,
        volume_id: &str,
        node: &str,
        is_block: bool,
    ) -> Result<BTreeMap<String, String>, String> {
        let request = ControllerPublishVolumeRequest {
            volume_id: volume_id.to_owned(),
            node_id: node.to_owned(),
            volume_capability: Some(capability(is_block)),
        };
        let response: ControllerPublishVolumeResponse = self.call("ControllerPublishVolume", request)?;
        Ok(response.publish_context)
    }

    /// Detaches a volume.
    ///
    /// # Errors
    /// The driver's words.
    pub fn detach(&self, volume_id: &str, node: &str) -> Result<(), String> {
        let request =
            ControllerUnpublishVolumeRequest { volume_id: volume_id.to_owned(), node_id: node.to_owned() };
        self.call::<_, Nothing>("ControllerUnpublishVolume", request).map(drop)
    }

    fn call<Q, R>(&self, rpc: &'static str, request: Q) -> Result<R, String>
    where
        Q: prost::Message + 'static,
        R: prost::Message + Default + 'static,
    {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let tokio = tokio.map_err(|error| error.to_string())?;
        let path = PathAndQuery::try_from(format!("/csi.v1.Controller/{rpc}"));
        let path = path.map_err(|error| error.to_string())?;
        let call = async {
            let socket = self.socket.clone();
            // The authority is only a name: the connector alone decides where the connection goes.
            let endpoint = Endpoint::from_static("http://localhost");
            let connected = endpoint.connect_with_connector(tower::service_fn(move |_: Uri| {
                let socket = socket.clone();
                async move { UnixStream::connect(socket).await.map(TokioIo::new) }
            }));
            let channel = connected.await.map_err(|error| error.to_string())?;
            let mut grpc = Grpc::new(channel);
            grpc.ready().await.map_err(|error| error.to_string())?;
            let codec: ProstCodec<Q, R> = ProstCodec::default();
            let answer = grpc.unary(tonic::Request::new(request), path, codec).await;
            answer.map(tonic::Response::into_inner).map_err(|status| status.to_string())
        };
        let answer = tokio.block_on(async { tokio::time::timeout(DEADLINE, call).await });
        let answer = answer.map_err(|_| format!("no answer within {} s", DEADLINE.as_secs()));
        answer.and_then(|answer| answer).map_err(|words| format!("{rpc}: {words}"))
    }
}

fn capability(is_block: bool) -> VolumeCapability {
    let access = match is_block {
        true => AccessType::Block(BlockVolume {}),
        false => AccessType::Mount(MountVolume::default()),
    };
    VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
        access_type: Some(access),
    }
}
