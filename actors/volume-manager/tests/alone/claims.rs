//! The claims of pods, as VolumeManager reads them.

use bridge_kube::fake::Verb;

use super::*;

#[test]
fn a_claim_that_many_volumes_of_a_pod_name_is_read_once_at_each_try() {
    alone(async |stage| {
        let api = FakeApi::new(stage.fakes.clock.clone());
        let mut one = (*pod(0)).clone();
        let claim = api.put(&object::<PersistentVolumeClaim>(serde_json::json!({
            "metadata": {"name": "c", "namespace": one.pod_ref.namespace.to_string()},
            "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"},
        })));
        api.put(&object::<PersistentVolume>(serde_json::json!({
            "metadata": {"name": "pv"},
            "spec": {"claimRef": {"uid": claim.metadata.uid}, "hostPath": {"path": "/shared"}},
        })));
        let mut claiming = |claim: &str| {
            let source = serde_json::json!({"name": "data", "persistentVolumeClaim": {"claimName": claim}});
            Arc::make_mut(&mut one.pod).spec.as_mut().unwrap().volumes = Some(vec![object(source)]);
            with_volumes(&one, 50)
        };
        let (bound, missing) = (claiming("c"), claiming("missing"));
        let near = Neighbours { api: Some(api.clone()), ..Neighbours::new() };
        let actor = near.start(stage);
        let reads = || ["persistentvolumeclaims", "persistentvolumes"].map(|kind| api.count(Verb::Get, kind));
        for tries in 1..=2 {
            let volumes = ask(&actor, MountVolumes { pod: bound.clone() }, SECOND).await.unwrap().unwrap();
            assert_eq!(volumes.host_paths.len(), 50);
            assert!(volumes.host_paths.values().all(|path| path == "/shared"));
            assert_eq!(reads(), [tries, tries], "a claim may be bound to another volume than before");
        }
        let refused = ask(&actor, MountVolumes { pod: missing }, SECOND).await.unwrap().unwrap_err();
        assert_eq!(refused.unmounted.len(), 50);
        assert_eq!(reads(), [3, 2], "what cannot be read is not asked for again by each volume");
    });
}
