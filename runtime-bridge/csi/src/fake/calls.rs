//! The way of a call through the fake: noted, delayed or failed by a fault, carried out, answered.

use std::future::Future;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::Instant;

use super::driver::FakeDriver;
use crate::driver::{Driver, Reply};
use crate::error::{CsiError, CsiErrorKind};
use crate::rpc::Rpc;
use crate::wire::*;

/// The most calls kept in the log; later ones are only counted.
pub(super) const CALLS_MAX: usize = 100_000;

/// How a call fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call begins this much later.
    Latency(Duration),
    /// The call fails and changes nothing.
    Error(CsiErrorKind, String),
    /// The call changes nothing; its caller gets `DeadlineExceeded` at the deadline.
    Hang,
    /// The call acts; its caller gets `DeadlineExceeded` at the deadline.
    LostReply,
    /// The call acts; its caller gets `Unavailable` at once, as when the connection breaks.
    BrokenConnection,
    /// The call acts only after this time, even if its caller got `DeadlineExceeded` before.
    ActsLate(Duration),
    /// The call changes nothing and says that it succeeded.
    Lie,
    /// The call acts, and fails all the same with the code `Internal`.
    ActsAndFails,
}

/// A call that the fake received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The RPC.
    pub rpc: Rpc,
    /// The volume's handle; empty for calls about no volume.
    pub volume_id: String,
    /// The target or staging path; empty for calls about none.
    pub path: String,
    /// The time since the fake was made.
    pub at: Duration,
}

/// What a request is about.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    pub(super) volume_id: String,
    pub(super) path: String,
    /// Whether the call changes the volume as a whole.
    pub(super) is_whole: bool,
    pub(super) is_change: bool,
}

impl FakeDriver {
    /// Carries a call out in a task of its own, because dropping the caller's future does not undo the call.
    fn call<T: Send + 'static>(
        &self,
        rpc: Rpc,
        about: About,
        act: impl FnOnce(&FakeDriver) -> Result<T, CsiError> + Send + 'static,
        lie: impl FnOnce() -> T + Send + 'static,
    ) -> Reply<T> {
        let driver = self.clone();
        async move {
            let task = tokio::spawn(driver.perform(rpc, about, act, lie));
            task.await.unwrap_or_else(|lost| {
                Err(CsiError::new("fake", rpc, CsiErrorKind::Unavailable, format!("the call ended: {lost}")))
            })
        }
        .boxed()
    }

    async fn perform<T: Send + 'static>(
        self,
        rpc: Rpc,
        about: About,
        act: impl FnOnce(&FakeDriver) -> Result<T, CsiError> + Send + 'static,
        lie: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CsiError> {
        let (fault, is_down, name, until) = self.arrived(rpc, &about);
        let _under_way = self.under_way(about.clone());
        if is_down {
            return Err(CsiError::new(name, rpc, CsiErrorKind::Unavailable, "connection refused"));
        }
        let late = || CsiError::deadline(&name, rpc);
        match fault {
            None => {
                let _turn = by(until, self.turn(&about)).await.map_err(|()| late())?;
                act(&self)
            }
            Some(Fault::Latency(latency)) => {
                by(until, tokio::time::sleep(latency)).await.map_err(|()| late())?;
                act(&self)
            }
            Some(Fault::Error(kind, message)) => Err(CsiError::new(name, rpc, kind, message)),
            Some(Fault::Hang) => {
                tokio::time::sleep_until(until).await;
                Err(late())
            }
            Some(Fault::LostReply) => {
                let _lost = act(&self);
                tokio::time::sleep_until(until).await;
                Err(late())
            }
            Some(Fault::BrokenConnection) => {
                let _lost = act(&self);
                Err(CsiError::new(name, rpc, CsiErrorKind::Unavailable, "connection reset by peer"))
            }
            Some(Fault::ActsLate(latency)) => {
                let driver = self.clone();
                let acting = tokio::spawn(async move {
                    let _turn = driver.turn(&about).await;
                    tokio::time::sleep(latency).await;
                    act(&driver)
                });
                match by(until, acting).await {
                    Ok(Ok(answer)) => answer,
                    _ => Err(late()),
                }
            }
            Some(Fault::Lie) => Ok(lie()),
            Some(Fault::ActsAndFails) => {
                let _done = act(&self);
                Err(CsiError::new(
                    name,
                    rpc,
                    CsiErrorKind::Internal,
                    "it is mounted, and its mode cannot be set",
                ))
            }
        }
    }
}

async fn by<T>(until: Instant, future: impl Future<Output = T>) -> Result<T, ()> {
    tokio::time::timeout_at(until, future).await.map_err(|_| ())
}

fn whole(volume_id: &str, path: &str) -> About {
    About { volume_id: volume_id.to_owned(), path: path.to_owned(), is_whole: true, is_change: true }
}

fn at_target(volume_id: &str, path: &str) -> About {
    About { is_whole: false, ..whole(volume_id, path) }
}

impl Driver for FakeDriver {
    fn get_plugin_info(&self, _: GetPluginInfoRequest) -> Reply<GetPluginInfoResponse> {
        self.call(
            Rpc::GetPluginInfo,
            About::default(),
            |driver| {
                let name = driver.name();
                Ok(GetPluginInfoResponse { name, vendor_version: "fake".to_owned(), ..Default::default() })
            },
            GetPluginInfoResponse::default,
        )
    }

    fn get_plugin_capabilities(
        &self,
        _: GetPluginCapabilitiesRequest,
    ) -> Reply<GetPluginCapabilitiesResponse> {
        let none = GetPluginCapabilitiesResponse::default;
        self.call(Rpc::GetPluginCapabilities, About::default(), move |_| Ok(none()), none)
    }

    fn probe(&self, _: ProbeRequest) -> Reply<ProbeResponse> {
        self.call(
            Rpc::Probe,
            About::default(),
            |_| Ok(ProbeResponse { ready: Some(true) }),
            ProbeResponse::default,
        )
    }

    fn node_stage_volume(&self, request: NodeStageVolumeRequest) -> Reply<NodeStageVolumeResponse> {
        let about = whole(&request.volume_id, &request.staging_target_path);
        let act = move |driver: &FakeDriver| driver.acts(|world, effects| world.stage(&request, effects));
        let done = move |driver: &FakeDriver| act(driver).map(|()| NodeStageVolumeResponse {});
        self.call(Rpc::NodeStageVolume, about, done, NodeStageVolumeResponse::default)
    }

    fn node_unstage_volume(&self, request: NodeUnstageVolumeRequest) -> Reply<NodeUnstageVolumeResponse> {
        let about = whole(&request.volume_id, &request.staging_target_path);
        let act = move |driver: &FakeDriver| driver.acts(|world, effects| world.unstage(&request, effects));
        let done = move |driver: &FakeDriver| act(driver).map(|()| NodeUnstageVolumeResponse {});
        self.call(Rpc::NodeUnstageVolume, about, done, NodeUnstageVolumeResponse::default)
    }

    fn node_publish_volume(&self, request: NodePublishVolumeRequest) -> Reply<NodePublishVolumeResponse> {
        let about = at_target(&request.volume_id, &request.target_path);
        let act = move |driver: &FakeDriver| driver.acts(|world, effects| world.publish(&request, effects));
        let done = move |driver: &FakeDriver| act(driver).map(|()| NodePublishVolumeResponse {});
        self.call(Rpc::NodePublishVolume, about, done, NodePublishVolumeResponse::default)
    }

    fn node_unpublish_volume(
        &self,
        request: NodeUnpublishVolumeRequest,
    ) -> Reply<NodeUnpublishVolumeResponse> {
        let about = at_target(&request.volume_id, &request.target_path);
        let act = move |driver: &FakeDriver| driver.acts(|world, effects| world.unpublish(&request, effects));
        let done = move |driver: &FakeDriver| act(driver).map(|()| NodeUnpublishVolumeResponse {});
        self.call(Rpc::NodeUnpublishVolume, about, done, NodeUnpublishVolumeResponse::default)
    }

    fn node_get_volume_stats(&self, request: NodeGetVolumeStatsRequest) -> Reply<NodeGetVolumeStatsResponse> {
        let about = About {
            volume_id: request.volume_id.clone(),
            path: request.volume_path.clone(),
            ..About::default()
        };
        let act = move |driver: &FakeDriver| driver.acts(|world, _| world.stats(&request));
        self.call(Rpc::NodeGetVolumeStats, about, act, NodeGetVolumeStatsResponse::default)
    }

    fn node_expand_volume(&self, request: NodeExpandVolumeRequest) -> Reply<NodeExpandVolumeResponse> {
        let about = whole(&request.volume_id, &request.volume_path);
        let act = move |driver: &FakeDriver| driver.acts(|world, effects| world.expand(&request, effects));
        self.call(Rpc::NodeExpandVolume, about, act, NodeExpandVolumeResponse::default)
    }

    fn node_get_capabilities(&self, _: NodeGetCapabilitiesRequest) -> Reply<NodeGetCapabilitiesResponse> {
        let act = |driver: &FakeDriver| driver.acts(|world, _| Ok(world.capabilities()));
        self.call(Rpc::NodeGetCapabilities, About::default(), act, NodeGetCapabilitiesResponse::default)
    }

    fn node_get_info(&self, _: NodeGetInfoRequest) -> Reply<NodeGetInfoResponse> {
        let act = |driver: &FakeDriver| driver.acts(|world, _| Ok(world.info.clone()));
        self.call(Rpc::NodeGetInfo, About::default(), act, NodeGetInfoResponse::default)
    }
}
