//! CSI drivers that go while VolumeManager cannot tell the cluster.

use bridge_kube::fake::{Fault as ApiFault, On, Verb};
use k8s_openapi::api::storage::v1::CSINode;
use messages::facts::NodeObserved;

use super::*;

#[test]
fn a_driver_that_went_while_the_actor_was_down_is_gone() {
    alone(async |stage| {
        let near = Neighbours::new();
        let [driver, stays] = ["d", "e"].map(|name| driver_on(&stage.fakes.disk, name));
        [&driver, &stays].into_iter().for_each(|driver| near.plugins.show_driver(driver));
        let actor = near.start(stage);
        let is = |name: &str, registered: bool| {
            let told = near.drivers.last();
            let told = told.and_then(|told| told.drivers.get(name).map(Option::is_some));
            told == Some(registered)
        };
        stage.until("the drivers to be registered", || is("d", true) && is("e", true)).await;
        stage.pass(SECOND).await;
        // The news that it has gone is lost.
        stage.crash_on::<VolumeManager>("CSI drivers");
        near.plugins.hide_driver("d");
        stage.until_incarnation::<VolumeManager>(2).await;
        actor.address().tell(desired_of(&[])).unwrap();
        stage.until("the driver to be gone", || is("d", false)).await;
        stage.pass(60 * SECOND).await;
        assert!(is("e", true), "another one is there");
        near.plugins.show_driver(&driver);
        stage.until("the driver to be registered again", || is("d", true)).await;
        stage.pass(60 * SECOND).await;
        assert!(is("d", true) && is("e", true));
    });
}

#[test]
fn a_call_that_hangs_for_one_driver_holds_up_the_registration_of_no_other() {
    alone(async |stage| {
        let api = FakeApi::new(stage.fakes.clock.clone());
        let near = Neighbours::new();
        let mut deps = near.deps(stage);
        deps.backends.csi.csi_nodes = Some(Arc::new(api.client(&Io::current())));
        let actor = stage.start(deps, VolumeManager::new);
        let node = object(serde_json::json!({"metadata": {"name": "node", "uid": "n"}}));
        actor.address().tell(NodeObserved(Some(Arc::new(node)))).unwrap();
        stage.until("the CSINode", || api.get::<CSINode>(None, "node").is_some()).await;
        let is_named = |name: &str| {
            let found = api.get::<CSINode>(None, "node");
            found.is_some_and(|found| found.spec.drivers.iter().any(|one| one.name == name))
        };
        let drivers = ["d", "e"].map(|name| driver_on(&stage.fakes.disk, name));
        api.fault(On::call(Verb::Update, "csinodes"), 1, ApiFault::Hang);
        for driver in &drivers {
            driver.set_node("i-1", 0, Default::default());
            near.plugins.show_driver(driver);
            stage.pass(SECOND).await;
        }
        stage.pass(5 * SECOND).await;
        assert!(!is_named("d") && is_named("e"), "the call for the first one hangs for half a minute");
        stage.pass(60 * SECOND).await;
        assert!(is_named("e"), "what it ends with takes nothing back");
    });
}

#[test]
fn a_driver_that_is_gone_leaves_the_csi_node_after_tries_that_fail_and_over_a_crash() {
    for crashes in [false, true] {
        alone(async move |stage| {
            let api = FakeApi::new(stage.fakes.clock.clone());
            let near = Neighbours::new();
            let mut deps = near.deps(stage);
            deps.backends.csi.csi_nodes = Some(Arc::new(api.client(&Io::current())));
            let actor = stage.start(deps, VolumeManager::new);
            let node = object(serde_json::json!({"metadata": {"name": "node", "uid": "n"}}));
            actor.address().tell(NodeObserved(Some(Arc::new(node)))).unwrap();
            let driver = driver_on(&stage.fakes.disk, "d");
            driver.set_node("i-1", 0, Default::default());
            near.plugins.show_driver(&driver);
            let is_named = || {
                let found = api.get::<CSINode>(None, "node");
                found.is_some_and(|found| found.spec.drivers.iter().any(|one| one.name == "d"))
            };
            stage.until("the driver to be named", is_named).await;
            stage.pass(SECOND).await;
            let tries = || api.count(Verb::Get, "csinodes");
            let before = tries();
            // As many as are made in a row.
            api.fault(On::call(Verb::Get, "csinodes"), 8, ApiFault::code(500));
            near.plugins.hide_driver("d");
            stage.until("a try", || tries() > before).await;
            if crashes {
                stage.crash::<VolumeManager>().await;
            }
            stage.until("it to be named no longer", || !is_named()).await;
            let settled = tries();
            stage.pass(120 * SECOND).await;
            assert_eq!(tries(), settled, "nothing is asked for while all agrees");
        });
    }
}
