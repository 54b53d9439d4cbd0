//! Shares of servers, as VolumeManager mounts and unmounts them.

use super::*;

/// A pod whose volume `data` is a share.
fn with_share(number: usize) -> Arc<DesiredPod> {
    let mut one = (*pod(number)).clone();
    let source =
        serde_json::json!({"name": "data", "nfs": {"server": "files", "path": format!("/{number}")}});
    Arc::make_mut(&mut one.pod).spec.as_mut().unwrap().volumes = Some(vec![object(source)]);
    Arc::new(one)
}

#[test]
fn a_share_that_cannot_be_unmounted_is_named_and_holds_up_no_other_pod() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        let two = [with_share(0), with_share(1)];
        actor.address().tell(desired_of(&two)).unwrap();
        for pod in &two {
            ask(&actor, MountVolumes { pod: pod.clone() }, SECOND).await.unwrap().unwrap();
        }
        let disk = &stage.fakes.disk;
        let undo = |number: usize| UnmountVolumes { pod: two[number].pod_ref.clone() };
        disk.hang("unmount");
        let hangs = ask(&actor, undo(0), 120 * SECOND);
        let others = async {
            stage.until("the unmount to hang", || !disk.hung().is_empty()).await;
            ask(&actor, undo(1), 5 * SECOND).await.unwrap().unwrap();
        };
        let (stays, ()) = futures::future::join(hangs, others).await;
        let stays = stays.unwrap().unwrap_err();
        let path = format!("{}/volumes/kubernetes.io~nfs/data", directory());
        assert_eq!(stays.volume, "data");
        let why = format!("the unmount of files:/0 at {path} has not ended within 100 s");
        assert!(stays.message.starts_with(&why), "{}", stays.message);
        assert!(disk.kind(directory()).is_some(), "nothing of the pod is removed");
        disk.go_on();
        ask(&actor, undo(0), SECOND).await.unwrap().unwrap();
        assert!(disk.kind(directory()).is_none());
    });
}

#[test]
fn a_new_incarnation_knows_a_share_by_its_mount_and_does_not_touch_it() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        let one = with_share(0);
        let desired = || desired_of(std::slice::from_ref(&one));
        actor.address().tell(desired()).unwrap();
        ask(&actor, MountVolumes { pod: one.clone() }, SECOND).await.unwrap().unwrap();
        let disk = &stage.fakes.disk;
        let path = format!("{}/volumes/kubernetes.io~nfs/data", directory());
        // From now on the server does not answer.
        disk.hang_at(&path);
        stage.crash::<VolumeManager>().await;
        actor.address().tell(desired()).unwrap();
        let again = ask(&actor, MountVolumes { pod: one.clone() }, 5 * SECOND).await.unwrap().unwrap();
        assert_eq!(again.host_paths, [("data".to_owned(), path)].into());
        assert_eq!(disk.mounts().len(), 1);
        disk.go_on();
    });
}
