//! Pods with as many containers, conditions and readiness gates as their author likes.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use tokio::time::Instant;

use super::*;
use crate::StatusMetrics;

/// An object of 1.5 MB has room for more.
const CROWD: u32 = 16_000;
/// Some times what it takes without optimization, and a fraction of what a search for each container in all others takes.
const LONG: Duration = Duration::from_secs(8);

#[test]
fn the_work_does_not_grow_with_the_square_of_the_containers() {
    let begun = Instant::now();
    let names: Vec<String> = (0..CROWD).map(|number| format!("c{number:05}")).collect();
    let (init, regular) = names.split_at(names.len() / 2);
    let mut pod = spec("Always", regular.iter().map(|name| container(name)).collect());
    pod.init_containers = Some(init.iter().map(|name| sidecar(name)).collect());
    let instances = |exits: u32| {
        let of = |name: &String| [exited(name, "old", exits, 1), running(name, "new", exits + 1)];
        let mut containers: Vec<_> = names.iter().flat_map(of).collect();
        containers.sort_by(|a, b| (&a.name, b.attempt).cmp(&(&b.name, a.attempt)));
        observed(containers)
    };
    let mut scene = Scene::new(pod);
    let before = scene.observed(instances(0)).clone();
    let status = scene.observed(instances(1));
    StatusMetrics::new().unwrap().ended(Some(&before), status);
    assert_eq!(
        (phase_of(status), &*told(status, "Initialized"), &*told(status, "Ready")),
        ("Running", "True", "True")
    );
    let statuses =
        || [&status.init_container_statuses, &status.container_statuses].into_iter().flatten().flatten();
    assert_eq!(statuses().count(), names.len());
    assert!(statuses().all(|told| told.restart_count == 2));
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
}

#[test]
fn the_work_does_not_grow_with_the_square_of_the_conditions() {
    let begun = Instant::now();
    let types: Vec<String> = (0..CROWD * 2).map(|number| format!("example.com/c{number:05}")).collect();
    let mut wanted = spec("Always", vec![container("a")]);
    let gate = |type_: &String| PodReadinessGate { condition_type: type_.clone() };
    wanted.readiness_gates = Some(types.iter().map(gate).collect());
    let mut scene = Scene::new(wanted);
    let condition = |(number, type_): (usize, &String)| PodCondition {
        type_: type_.clone(),
        status: "True".to_owned(),
        // One that a later specification was seen by, among those that tell of none.
        observed_generation: (number == 1).then_some(7),
        ..PodCondition::default()
    };
    let conditions = types.iter().enumerate().map(condition).collect();
    let desired = scene.facts.desired.take().unwrap();
    let status = Some(PodStatus { conditions: Some(conditions), ..PodStatus::default() });
    let pod = Arc::new(Pod { status, ..(*desired.pod).clone() });
    scene.facts.desired = Some(Arc::new(DesiredPod { pod, ..(*desired).clone() }));
    let status = scene.observed(observed(vec![running("a", "a0", 0)]));
    assert_eq!(told(status, "Ready"), "True", "every gate is open");
    let generation = |type_: &str| status.conditions.iter().flatten().find(|c| c.type_ == type_);
    let generation = |type_: &str| generation(type_).and_then(|c| c.observed_generation);
    assert_eq!([0, 1].map(|number| generation(&types[number])), [Some(2), Some(7)]);
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
}
