//! Volumes that the controller attaches, and what VolumeManager tells the Node of them.

use bridge_csi::fake::FakeDriver;
use bridge_csi::rules::attachment;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use messages::facts::NodeObserved;

use super::*;

/// The volume as the Node names it.
const NAME: &str = "kubernetes.io/csi/d^h";

/// A node with a driver whose volume is attached, and a pod that has it.
struct World<'s> {
    stage: &'s Stage<'s>,
    near: Neighbours,
    pod: Arc<DesiredPod>,
    driver: FakeDriver,
    actor: Supervised<VolumeManager>,
}

impl<'s> World<'s> {
    async fn new(stage: &'s Stage<'s>) -> Self {
        let api = FakeApi::new(stage.fakes.clock.clone());
        let pod = claimed(&api, "Filesystem");
        api.put(&object::<CSIDriver>(serde_json::json!({"metadata": {"name": "d"}, "spec": {
            "attachRequired": true, "fsGroupPolicy": "None", "volumeLifecycleModes": ["Persistent"],
        }})));
        api.put(&object::<VolumeAttachment>(serde_json::json!({
            "metadata": {"name": attachment::name("h", "d", "node")},
            "spec": {"attacher": "d", "nodeName": "node", "source": {"persistentVolumeName": "pv"}},
            "status": {"attached": true},
        })));
        let near = Neighbours { api: Some(api), ..Neighbours::new() };
        let driver = driver_on(&stage.fakes.disk, "d");
        near.plugins.show_driver(&driver);
        let actor = near.start(stage);
        let world = Self { stage, near, pod, driver, actor };
        world.desire(std::slice::from_ref(&world.pod));
        world.node(&[]);
        let told = || world.near.drivers.last();
        let is_there = || told().is_some_and(|told| told.drivers.contains_key("d"));
        stage.until("the driver to be registered", is_there).await;
        world
    }

    fn desire(&self, pods: &[Arc<DesiredPod>]) {
        self.actor.address().tell(desired_of(pods)).unwrap();
    }

    /// The Node has this in use, and the volume attached.
    fn node(&self, in_use: &[&str]) {
        let node = object(serde_json::json!({
            "metadata": {"name": "node", "uid": "n"},
            "status": {"volumesInUse": in_use, "volumesAttached": [{"name": NAME, "devicePath": ""}]},
        }));
        self.actor.address().tell(NodeObserved(Some(Arc::new(node)))).unwrap();
    }

    /// What the Node is told to have in use.
    fn own(&self) -> Vec<String> {
        let told = self.near.node_status.last();
        told.map(|told| told.own.iter().cloned().collect()).unwrap_or_default()
    }

    /// Has the volume mounted, as the Node comes to have it in use.
    async fn mount(&self) {
        let in_use = async {
            self.stage.until("the volume to be told in use", || self.own() == [NAME]).await;
            self.node(&[NAME]);
        };
        let (mounted, ()) = futures::join!(mount_of(self), in_use);
        mounted.unwrap().unwrap();
    }

    async fn unmount(&self) -> Result<(), AskError> {
        let undo = UnmountVolumes { pod: self.pod.pod_ref.clone() };
        ask(&self.actor, undo, 300 * SECOND).await.map(Result::unwrap)
    }

    fn staged(&self) -> u64 {
        self.driver.count(Rpc::NodeStageVolume)
    }
}

async fn mount_of(world: &World<'_>) -> Answer {
    ask(&world.actor, MountVolumes { pod: world.pod.clone() }, 300 * SECOND).await
}

#[test]
fn a_volume_that_was_undone_before_a_crash_is_in_use_no_longer() {
    alone(async |stage| {
        let world = World::new(stage).await;
        world.mount().await;
        // The unmount is answered, and no look has confirmed it.
        stage.crash_on::<VolumeManager>("look for volumes of others");
        world.unmount().await.unwrap();
        stage.until_incarnation::<VolumeManager>(2).await;
        world.desire(std::slice::from_ref(&world.pod));
        stage.until("the volume to be in use no longer", || world.own().is_empty()).await;
    });
}

#[test]
fn a_volume_whose_unmount_was_lost_in_a_crash_is_in_use_until_its_pod_is_gone_and_no_longer() {
    alone(async |stage| {
        let world = World::new(stage).await;
        world.mount().await;
        world.desire(&[]);
        stage.crash_on::<VolumeManager>("unmount volumes");
        world.unmount().await.unwrap_err();
        stage.until_incarnation::<VolumeManager>(2).await;
        stage.pass(60 * SECOND).await;
        assert_eq!(world.own(), [NAME], "its pod may be there");
        // The pod's worker has ended, too, and does not ask again.
        world.desire(&[]);
        stage.until("the volume to be in use no longer", || world.own().is_empty()).await;
        stage.until("the node to be without it", || world.driver.held().staged.is_empty()).await;
    });
}

#[test]
fn a_volume_that_is_given_up_before_the_node_has_it_is_told_until_it_has() {
    alone(async |stage| {
        let world = World::new(stage).await;
        let mut mounting = Box::pin(mount_of(&world));
        assert!(futures::poll!(&mut mounting).is_pending());
        stage.until("the volume to be told in use", || world.own() == [NAME]).await;
        let (given_up, undone) = futures::join!(mounting, world.unmount());
        given_up.unwrap().unwrap_err();
        undone.unwrap();
        stage.pass(60 * SECOND).await;
        assert_eq!(world.own(), [NAME], "NodeStatus may be writing it");
        world.node(&[NAME]);
        stage.until("the volume to be in use no longer", || world.own().is_empty()).await;
        assert_eq!(world.staged(), 0);
    });
}

#[test]
fn a_volume_that_is_wanted_anew_waits_for_a_node_that_was_written_since() {
    alone(async |stage| {
        let world = World::new(stage).await;
        world.mount().await;
        world.unmount().await.unwrap();
        stage.until("the volume to be in use no longer", || world.own().is_empty()).await;
        // The Node as VolumeManager knows it has the volume in use and attached: the controller may know a newer one.
        let mut again = Box::pin(mount_of(&world));
        assert!(futures::poll!(&mut again).is_pending());
        stage.pass(30 * SECOND).await;
        assert_eq!((world.staged(), world.own()), (1, Vec::new()));
        world.node(&[]);
        stage.until("the volume to be told in use", || world.own() == [NAME]).await;
        stage.pass(SECOND).await;
        assert_eq!(world.staged(), 1, "the Node does not say so yet");
        world.node(&[NAME]);
        again.await.unwrap().unwrap();
        assert_eq!(world.staged(), 2);
    });
}
