//! Pods with as many containers as their author likes.

use std::time::Duration;

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
