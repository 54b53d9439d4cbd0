//! PURE: the lease to write (row 13.9).

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease as LeaseObject, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};

/// The namespace of all nodes' leases.
pub const NAMESPACE: &str = "kube-node-lease";

/// The lease of a node, new or renewed. If the Node's UID (`owner`) is unknown, the owner stays as it is.
pub fn renewed(
    before: Option<&LeaseObject>,
    node: &str,
    owner: Option<&str>,
    seconds: i32,
    now: Timestamp,
) -> LeaseObject {
    let new = || LeaseObject {
        metadata: ObjectMeta {
            name: Some(node.to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec { holder_identity: Some(node.to_owned()), ..LeaseSpec::default() }),
    };
    let mut lease = before.cloned().unwrap_or_else(new);
    let spec = lease.spec.get_or_insert_default();
    spec.lease_duration_seconds = Some(seconds);
    spec.renew_time = Some(MicroTime(now));
    if let Some(uid) = owner {
        let owners = lease.metadata.owner_references.get_or_insert_default();
        // A Node that was deleted and created again has another UID: with the old one, the lease would be deleted.
        owners.retain(|owner| owner.kind != "Node" || owner.uid == uid);
        if owners.is_empty() {
            owners.push(OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: node.to_owned(),
                uid: uid.to_owned(),
                ..OwnerReference::default()
            });
        }
    }
    lease
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a timestamp")
    }

    #[test]
    fn a_lease_is_held_by_its_node_and_owned_by_it() {
        let lease = renewed(None, "n1", Some("u1"), 40, at(7));
        assert_eq!(
            serde_json::to_value(&lease).expect("it can be written"),
            serde_json::json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {
                    "name": "n1",
                    "namespace": "kube-node-lease",
                    "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"}],
                },
                "spec": {
                    "holderIdentity": "n1",
                    "leaseDurationSeconds": 40,
                    "renewTime": "1970-01-01T00:00:07.000000Z",
                },
            })
        );
    }

    #[test]
    fn renewing_keeps_what_others_wrote_and_follows_a_new_node() {
        let mut before = renewed(None, "n1", Some("u1"), 40, at(7));
        before.metadata.resource_version = Some("12".into());
        before.spec.as_mut().expect("a spec").strategy = Some("theirs".into());
        let same = renewed(Some(&before), "n1", None, 30, at(9));
        assert_eq!(same.metadata, before.metadata);
        let spec = same.spec.expect("a spec");
        assert_eq!((spec.lease_duration_seconds, spec.strategy.as_deref()), (Some(30), Some("theirs")));
        let owners = renewed(Some(&before), "n1", Some("u2"), 40, at(9)).metadata.owner_references;
        let uids: Vec<_> = owners.iter().flatten().map(|owner| owner.uid.as_str()).collect();
        assert_eq!(uids, ["u2"]);
    }
}
