//! What volumes take, as VolumeManager tells it.

use messages::volume_manager::{GetVolumeStats, PodVolumeStats};

use super::*;

type Figures = BTreeMap<PodUid, Arc<PodVolumeStats>>;

/// The bytes that the only measured volume of a pod takes; `None` if none is told.
async fn used_bytes(actor: &Supervised<VolumeManager>) -> Option<u64> {
    let told: Figures = ask(actor, GetVolumeStats, 3 * SECOND).await.unwrap();
    told.values()
        .flat_map(|volumes| volumes.values())
        .find_map(|stats| Some(stats.usage.as_ref()?.used_bytes))
}

#[test]
fn a_new_incarnation_knows_volumes_that_are_directories_without_a_mount() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        let with_volume = with_volumes(&pod(0), 1);
        let desired = || desired_of(std::slice::from_ref(&with_volume));
        actor.address().tell(desired()).unwrap();
        ask(&actor, MountVolumes { pod: with_volume.clone() }, SECOND).await.unwrap().unwrap();
        let uid = &with_volume.pod_ref.uid;
        let path = format!("/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~empty-dir/data-0");
        stage.fakes.disk.write(format!("{path}/file"), vec![1; 1000], 0o644);
        assert_eq!(used_bytes(&actor).await, Some(1000));
        // No worker asks the next one for the volume.
        stage.crash::<VolumeManager>().await;
        actor.address().tell(desired()).unwrap();
        stage.pass(60 * SECOND).await;
        assert_eq!(used_bytes(&actor).await, Some(1000));
    });
}

#[test]
fn figures_are_measured_when_asked_for_and_a_volume_that_hangs_keeps_no_other_back() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        let two = [with_volumes(&pod(0), 1), with_volumes(&pod(1), 1)];
        actor.address().tell(desired_of(&two)).unwrap();
        let disk = &stage.fakes.disk;
        let path = |pod: &DesiredPod| {
            format!("/var/lib/kubelet/pods/{}/volumes/kubernetes.io~empty-dir/data-0", pod.pod_ref.uid)
        };
        let fill = |bytes: usize| {
            two.iter().for_each(|pod| disk.write(format!("{}/file", path(pod)), vec![1; bytes], 0o644));
        };
        for pod in &two {
            ask(&actor, MountVolumes { pod: pod.clone() }, SECOND).await.unwrap().unwrap();
        }
        let used = async || -> Vec<u64> {
            let told: Figures = ask(&actor, GetVolumeStats, 3 * SECOND).await.unwrap();
            told.values()
                .flat_map(|volumes| volumes.values())
                .filter_map(|stats| Some(stats.usage.as_ref()?.used_bytes))
                .collect()
        };
        fill(1000);
        assert_eq!(used().await, [1000, 1000]);
        fill(2000);
        assert_eq!(used().await, [1000, 1000], "they are a minute good");
        stage.pass(60 * SECOND).await;
        assert_eq!(used().await, [2000, 2000]);

        fill(3000);
        disk.hang("measure");
        stage.pass(60 * SECOND).await;
        assert_eq!(used().await.iter().sum::<u64>(), 5000, "one is measured, of the other the last is told");
        stage.pass(60 * SECOND).await;
        assert_eq!(used().await, [3000], "nothing is told of what cannot be measured");
        let told: Figures = ask(&actor, GetVolumeStats, 3 * SECOND).await.unwrap();
        assert_eq!(told.values().filter(|volumes| volumes["data-0"].usage.is_none()).count(), 1, "but that");
        disk.go_on();
        // The pod that hung is looked at more rarely, and no ask waits for it.
        stage.pass(240 * SECOND).await;
        used().await;
        stage.pass(SECOND).await;
        assert_eq!(used().await, [3000, 3000]);
        let report = stage.actor::<VolumeManager>().await;
        assert_eq!((report.incarnation, report.effects_overdue), (1, 0));
    });
}
