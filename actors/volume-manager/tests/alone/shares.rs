//! Shares of servers and volumes of FlexVolume drivers, as VolumeManager mounts and unmounts them.

use bridge_node::host::FlexAnswer;
use bridge_node::mounts::MountPoint;

use super::*;

/// A pod whose volume `data` has this source.
fn with_data(number: usize, source: serde_json::Value) -> Arc<DesiredPod> {
    let mut one = (*pod(number)).clone();
    let mut volume = serde_json::json!({"name": "data"});
    volume.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
    Arc::make_mut(&mut one.pod).spec.as_mut().unwrap().volumes = Some(vec![object(volume)]);
    Arc::new(one)
}

/// A pod whose volume `data` is a share.
fn with_share(number: usize) -> Arc<DesiredPod> {
    with_data(number, serde_json::json!({"nfs": {"server": "files", "path": format!("/{number}")}}))
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
        assert!(disk.kind(&path).is_some(), "nothing of the pod is removed");
        disk.go_on();
        ask(&actor, undo(0), SECOND).await.unwrap().unwrap();
        assert!(disk.kind(&path).is_none());
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

#[test]
fn a_new_incarnation_knows_what_a_driver_can_do_and_a_new_program_is_asked() {
    alone(async |stage| {
        let near = Neighbours::new();
        let install = || {
            let disk = stage.fakes.disk.clone();
            near.flex.install("vendor/tool", move |call| {
                if let [command, dir, _] = call.args.as_slice()
                    && command == "mount"
                {
                    disk.add_mount(MountPoint {
                        path: dir.into(),
                        root: "/".into(),
                        fs_type: "fuse.tool".to_owned(),
                        source: "tool".to_owned(),
                        options: Vec::new(),
                        fs_options: Vec::new(),
                        device: (0, 201),
                    });
                }
                let said = r#"{"status": "Success", "capabilities": {"attach": false}}"#;
                FlexAnswer { failed: None, out: said.as_bytes().to_vec(), err: Vec::new() }
            });
        };
        install();
        let actor = near.start(stage);
        let one = with_data(0, serde_json::json!({"flexVolume": {"driver": "vendor/tool"}}));
        let desired = || desired_of(std::slice::from_ref(&one));
        let mounted = async || {
            actor.address().tell(desired()).unwrap();
            ask(&actor, MountVolumes { pod: one.clone() }, SECOND).await.unwrap().unwrap();
            near.flex.commands()
        };
        assert_eq!(mounted().await, ["init", "mount"]);
        stage.crash::<VolumeManager>().await;
        assert_eq!(mounted().await, ["init", "mount"]);
        install();
        assert_eq!(mounted().await, ["init", "mount", "init"]);
        let tenants: Vec<String> = near.flex.calls().iter().map(|call| call.tenant.to_string()).collect();
        assert_eq!(tenants, ["default"; 3]);
    });
}
