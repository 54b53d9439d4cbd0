//! What the fake driver does: the contract of CSI's node service.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{CsiError, CsiErrorKind};
use crate::rpc::Rpc;
use crate::wire::node_service_capability::rpc::Type as Can;
use crate::wire::node_service_capability::{Rpc as CanRpc, Type};
use crate::wire::volume_capability::AccessType;
use crate::wire::*;

/// The key by which a volume is known to be inline in its pod.
const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";
/// The size of a volume that was never expanded, bytes.
const BYTES: i64 = 1 << 30;

/// A volume that is staged.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Staged {
    /// Where.
    pub path: String,
    /// Its capability, as text.
    pub capability: String,
    /// Whether it is a block device.
    pub is_block: bool,
}

/// A volume that is published at a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Published {
    /// The volume's handle.
    pub volume_id: String,
    /// Its capability, as text.
    pub capability: String,
    /// Whether it is read-only.
    pub readonly: bool,
    /// Whether it is a block device.
    pub is_block: bool,
    /// What the driver was told of it last.
    pub context: BTreeMap<String, String>,
}

/// What a driver holds on the node: it outlives the driver's process.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Held {
    /// The staged volumes, by handle.
    pub staged: BTreeMap<String, Staged>,
    /// The published volumes, by target path.
    pub published: BTreeMap<String, Published>,
    /// The sizes of expanded volumes in bytes, by handle.
    pub sizes: BTreeMap<String, i64>,
}

/// What the driver does on the machine. A message is the driver's error, with the code `Internal`.
///
/// # Errors
/// From every method, the reason in words.
pub trait DriverEffects: Send + Sync + 'static {
    /// Stages.
    fn stage(&self, _request: &NodeStageVolumeRequest) -> Result<(), String> {
        Ok(())
    }
    /// Unstages; also what was never staged.
    fn unstage(&self, _volume_id: &str, _path: &str) -> Result<(), String> {
        Ok(())
    }
    /// Publishes; also what is published already.
    fn publish(&self, _request: &NodePublishVolumeRequest) -> Result<(), String> {
        Ok(())
    }
    /// Unpublishes; also what was never published.
    fn unpublish(&self, _volume_id: &str, _target: &str) -> Result<(), String> {
        Ok(())
    }
    /// Makes a volume larger.
    fn expand(&self, _volume_id: &str, _bytes: i64) -> Result<(), String> {
        Ok(())
    }
    /// Keeps what the driver holds, for its next process.
    fn keep(&self, _held: &Held) {}
}

/// A driver that only remembers.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEffects;

impl DriverEffects for NoEffects {}

/// What a test sets of the driver, and what the driver holds.
#[derive(Debug)]
pub(super) struct World {
    pub(super) name: String,
    pub(super) info: NodeGetInfoResponse,
    pub(super) capabilities: BTreeSet<i32>,
    /// The volumes that there are; `None`: any.
    pub(super) volumes: Option<BTreeSet<String>>,
    pub(super) bytes_max: i64,
    pub(super) condition: Option<VolumeCondition>,
    pub(super) held: Held,
    pub(super) broken: Vec<String>,
}

type Answer<T> = Result<T, CsiError>;

impl World {
    fn can(&self, can: Can) -> bool {
        self.capabilities.contains(&i32::from(can))
    }

    fn error(&self, rpc: Rpc, kind: CsiErrorKind, message: impl Into<String>) -> CsiError {
        CsiError::new(self.name.clone(), rpc, kind, message)
    }

    fn demand(&self, rpc: Rpc, volume_id: &str, path: &str) -> Answer<()> {
        if volume_id.is_empty() || path.is_empty() {
            return Err(self.error(rpc, CsiErrorKind::InvalidArgument, "a volume ID or a path is missing"));
        }
        Ok(())
    }

    fn demand_volume(&self, rpc: Rpc, volume_id: &str) -> Answer<()> {
        match &self.volumes {
            Some(volumes) if !volumes.contains(volume_id) => {
                Err(self.error(rpc, CsiErrorKind::NotFound, format!("volume {volume_id} does not exist")))
            }
            _ => Ok(()),
        }
    }

    fn demand_capability(&self, rpc: Rpc, can: Can) -> Answer<()> {
        if self.can(can) {
            return Ok(());
        }
        let message = format!("{} is not supported", rpc.name());
        Err(self.error(rpc, CsiErrorKind::Unimplemented, message))
    }

    fn effect(&self, rpc: Rpc, outcome: Result<(), String>) -> Answer<()> {
        outcome.map_err(|message| self.error(rpc, CsiErrorKind::Internal, message))
    }

    fn shown(&self, rpc: Rpc, capability: Option<&VolumeCapability>) -> Answer<(String, bool)> {
        let Some(capability) = capability.filter(|capability| capability.access_type.is_some()) else {
            return Err(self.error(rpc, CsiErrorKind::InvalidArgument, "a volume capability is missing"));
        };
        let is_block = matches!(capability.access_type, Some(AccessType::Block(_)));
        Ok((format!("{capability:?}"), is_block))
    }

    pub(super) fn stage(
        &mut self,
        request: &NodeStageVolumeRequest,
        effects: &dyn DriverEffects,
    ) -> Answer<()> {
        let (rpc, id, path) = (Rpc::NodeStageVolume, &request.volume_id, &request.staging_target_path);
        self.demand_capability(rpc, Can::StageUnstageVolume)?;
        self.demand(rpc, id, path)?;
        let (capability, is_block) = self.shown(rpc, request.volume_capability.as_ref())?;
        self.demand_volume(rpc, id)?;
        let staged = Staged { path: path.clone(), capability, is_block };
        if let Some(present) = self.held.staged.get(id) {
            if *present == staged {
                return Ok(());
            }
            let message = format!("volume {id} is staged otherwise at {}", present.path);
            return Err(self.error(rpc, CsiErrorKind::AlreadyExists, message));
        }
        self.effect(rpc, effects.stage(request))?;
        self.held.staged.insert(id.clone(), staged);
        effects.keep(&self.held);
        Ok(())
    }

    pub(super) fn unstage(
        &mut self,
        request: &NodeUnstageVolumeRequest,
        effects: &dyn DriverEffects,
    ) -> Answer<()> {
        let (rpc, id, path) = (Rpc::NodeUnstageVolume, &request.volume_id, &request.staging_target_path);
        self.demand_capability(rpc, Can::StageUnstageVolume)?;
        self.demand(rpc, id, path)?;
        if let Some((target, _)) =
            self.held.published.iter().find(|(_, published)| published.volume_id == *id)
        {
            let message = format!("volume {id} is unstaged while it is published at {target}");
            self.broken.push(message.clone());
            return Err(self.error(rpc, CsiErrorKind::FailedPrecondition, message));
        }
        self.effect(rpc, effects.unstage(id, path))?;
        self.held.staged.remove(id);
        effects.keep(&self.held);
        Ok(())
    }

    pub(super) fn publish(
        &mut self,
        request: &NodePublishVolumeRequest,
        effects: &dyn DriverEffects,
    ) -> Answer<()> {
        let (rpc, id, target) = (Rpc::NodePublishVolume, &request.volume_id, &request.target_path);
        self.demand(rpc, id, target)?;
        let (capability, is_block) = self.shown(rpc, request.volume_capability.as_ref())?;
        let is_inline = request.volume_context.get(EPHEMERAL).is_some_and(|value| value == "true");
        if !is_inline {
            self.demand_volume(rpc, id)?;
        }
        if self.can(Can::StageUnstageVolume) && !is_inline {
            let staged = self.held.staged.get(id);
            if staged.is_none_or(|staged| staged.path != request.staging_target_path) {
                let message = format!("volume {id} is not staged at {:?}", request.staging_target_path);
                self.broken.push(message.clone());
                return Err(self.error(rpc, CsiErrorKind::FailedPrecondition, message));
            }
        }
        let context = request.volume_context.clone();
        let published =
            Published { volume_id: id.clone(), capability, readonly: request.readonly, is_block, context };
        if let Some(present) = self.held.published.get(target) {
            let same = Published { context: present.context.clone(), ..published.clone() };
            if *present != same {
                let message = format!("something else is published at {target}: {}", present.volume_id);
                return Err(self.error(rpc, CsiErrorKind::AlreadyExists, message));
            }
        }
        self.effect(rpc, effects.publish(request))?;
        self.held.published.insert(target.clone(), published);
        effects.keep(&self.held);
        Ok(())
    }

    pub(super) fn unpublish(
        &mut self,
        request: &NodeUnpublishVolumeRequest,
        effects: &dyn DriverEffects,
    ) -> Answer<()> {
        let (rpc, id, target) = (Rpc::NodeUnpublishVolume, &request.volume_id, &request.target_path);
        self.demand(rpc, id, target)?;
        if self.held.published.get(target).is_some_and(|present| present.volume_id != *id) {
            let message = format!("volume {id} is unpublished at the target of another one: {target}");
            self.broken.push(message.clone());
            return Err(self.error(rpc, CsiErrorKind::InvalidArgument, message));
        }
        self.effect(rpc, effects.unpublish(id, target))?;
        self.held.published.remove(target);
        effects.keep(&self.held);
        Ok(())
    }

    pub(super) fn expand(
        &mut self,
        request: &NodeExpandVolumeRequest,
        effects: &dyn DriverEffects,
    ) -> Answer<NodeExpandVolumeResponse> {
        let (rpc, id) = (Rpc::NodeExpandVolume, &request.volume_id);
        self.demand_capability(rpc, Can::ExpandVolume)?;
        self.demand(rpc, id, &request.volume_path)?;
        self.demand_place(rpc, id, &request.volume_path)?;
        let wanted = request.capacity_range.map_or(0, |range| range.required_bytes);
        if wanted > self.bytes_max {
            let message = format!("{wanted} bytes are more than {}", self.bytes_max);
            return Err(self.error(rpc, CsiErrorKind::OutOfRange, message));
        }
        let bytes = wanted.max(self.size(id));
        self.effect(rpc, effects.expand(id, bytes))?;
        self.held.sizes.insert(id.clone(), bytes);
        effects.keep(&self.held);
        Ok(NodeExpandVolumeResponse { capacity_bytes: bytes })
    }

    /// The volume has to be staged or published at this path.
    fn demand_place(&self, rpc: Rpc, volume_id: &str, path: &str) -> Answer<()> {
        let staged = self.held.staged.get(volume_id).is_some_and(|staged| staged.path == path);
        let published =
            self.held.published.get(path).is_some_and(|published| published.volume_id == volume_id);
        // The kubelet asks about a block device by a mount of its own.
        let of_device = |published: &Published| published.volume_id == volume_id && published.is_block;
        let is_device = path.contains("/volumeDevices/") && self.held.published.values().any(of_device);
        if staged || published || is_device {
            return Ok(());
        }
        let message = format!("volume {volume_id} is not at {path}");
        Err(self.error(rpc, CsiErrorKind::NotFound, message))
    }

    fn size(&self, volume_id: &str) -> i64 {
        self.held.sizes.get(volume_id).copied().unwrap_or(BYTES)
    }

    pub(super) fn stats(&self, request: &NodeGetVolumeStatsRequest) -> Answer<NodeGetVolumeStatsResponse> {
        let (rpc, id) = (Rpc::NodeGetVolumeStats, &request.volume_id);
        self.demand_capability(rpc, Can::GetVolumeStats)?;
        self.demand(rpc, id, &request.volume_path)?;
        self.demand_place(rpc, id, &request.volume_path)?;
        let total = self.size(id);
        let used = 1 << 20;
        let bytes =
            VolumeUsage { available: total - used, total, used, unit: volume_usage::Unit::Bytes.into() };
        let inodes =
            VolumeUsage { available: 990, total: 1000, used: 10, unit: volume_usage::Unit::Inodes.into() };
        Ok(NodeGetVolumeStatsResponse {
            usage: vec![bytes, inodes],
            volume_condition: self.condition.clone().filter(|_| self.can(Can::VolumeCondition)),
        })
    }

    pub(super) fn capabilities(&self) -> NodeGetCapabilitiesResponse {
        let one =
            |number: &i32| NodeServiceCapability { r#type: Some(Type::Rpc(CanRpc { r#type: *number })) };
        NodeGetCapabilitiesResponse { capabilities: self.capabilities.iter().map(one).collect() }
    }
}
