//! What the controllers of a cluster do for a volume behind a claim, and what is left of volumes on a node.

use std::collections::BTreeMap;
use std::process::Command;

use crate::member::Member;
use crate::node::SOON;
use csi_driver::claimed;
use k8s_openapi::api::core::v1::{Node as NodeObject, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSINode, VolumeAttachment};
use serde_json::{Value, json};
use testkit::process::eventually;

/// The claim `claim` of a node's pods, and the driver's volume that it is bound to.
pub struct Claimed<'a> {
    member: &'a Member,
    is: claimed::Claimed,
}

impl<'a> Claimed<'a> {
    pub fn new(member: &'a Member, driver: &str, handle: &str) -> Self {
        let node = member.name.clone();
        let is = claimed::Claimed {
            driver: driver.to_owned(),
            handle: handle.to_owned(),
            namespace: node.clone(),
            claim: "claim".to_owned(),
            volume: format!("pv-{node}"),
            node,
        };
        Self { member, is }
    }

    /// Makes both; `more` are fields of the PersistentVolume.
    pub fn make(&self, more: Value) {
        let Member { api, name: ns, .. } = &self.member;
        let claim = api.create::<PersistentVolumeClaim>(self.is.claim(&more));
        api.create::<PersistentVolume>(self.is.volume(&claim["metadata"]["uid"], more));
        api.merge_status::<PersistentVolumeClaim>(Some(ns), "claim", json!({"status": {"phase": "Bound"}}));
    }

    /// The name of the PersistentVolume.
    pub fn volume(&self) -> &str {
        &self.is.volume
    }

    /// Attaches the volume, as the controller does, once the Node reports it in use; then `before` holds.
    pub fn attach(&self, before: impl FnOnce()) {
        let Member { api, name: node, .. } = &self.member;
        let unique = self.is.unique_name();
        eventually("the volume is in use", SOON, || {
            let in_use = self.member.object()?["status"]["volumesInUse"].clone();
            if in_use == json!([unique]) { Ok(()) } else { Err(in_use.to_string()) }
        });
        before();
        let attachment = api.create::<VolumeAttachment>(self.is.attachment());
        let name = attachment["metadata"]["name"].as_str().expect("it is named");
        api.merge_status::<VolumeAttachment>(None, name, json!({"status": {"attached": true}}));
        let attached = json!({"status": {"volumesAttached": [{"name": unique, "devicePath": ""}]}});
        api.merge_status::<NodeObject>(None, node, attached);
    }
}

/// The mounts of drivers' volumes on the node.
pub fn mounts(member: &Member) -> BTreeMap<String, String> {
    claimed::mounts_below(&member.node.root())
}

/// No note and no mount of a driver's volume is left on the node, and the Node reports none in use.
pub fn nothing_is_left(member: &Member) {
    let notes = member.node.root().join("plugins/kubernetes.io/csi");
    eventually("no note is left", SOON, || {
        let found = Command::new("find").arg(&notes).args(["-type", "f"]).output();
        let found = String::from_utf8_lossy(&found.map_err(|error| error.to_string())?.stdout).into_owned();
        if found.is_empty() { Ok(()) } else { Err(found) }
    });
    assert_eq!(mounts(member), BTreeMap::new());
    eventually("no volume is in use", SOON, || {
        let in_use = member.object()?["status"]["volumesInUse"].clone();
        if in_use.is_null() { Ok(()) } else { Err(in_use.to_string()) }
    });
}

/// Well, if the drivers of the CSINode are as they are wanted.
pub fn csi_node_has(member: &Member, wanted: impl Fn(&Vec<Value>) -> bool) -> Result<(), String> {
    let csi_node = member.api.get::<CSINode>(None, &member.name)?;
    let drivers = csi_node.map_or(Value::Null, |found| found["spec"]["drivers"].clone());
    if drivers.as_array().is_some_and(wanted) { Ok(()) } else { Err(drivers.to_string()) }
}
