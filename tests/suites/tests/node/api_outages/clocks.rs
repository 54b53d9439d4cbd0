//! The node's clock is set while the node is a member of a cluster.

use std::time::Duration;

use bridge_io::clock::Clock;
use bridge_kube::fake::Verb;
use jiff::SignedDuration;
use supervision::Policy;
use testkit::sandbox;

use super::scene::{BACK_WITHIN, MINUTE, Scene};

#[test]
fn a_clock_that_jumps_an_hour_harms_nothing_and_the_node_stays_ready() {
    for (seed, hours) in [(151, 1), (152, -1)] {
        sandbox(Policy::default(), async |sandbox| {
            let scene = Scene::settled(sandbox, seed).await;
            scene.world.clock.skew(SignedDuration::from_hours(hours));
            let now = i64::try_from(scene.world.clock.now().as_nanosecond()).expect("a time of this century");
            let _same = scene.world.runtime.clone().at_wall_time(now);
            sandbox.pass(Duration::from_secs(15)).await;
            let age = scene.world.clock.now().duration_since(scene.renewed().expect("a lease"));
            assert!(age >= SignedDuration::ZERO && age < SignedDuration::from_secs(11), "{age:?}");
            sandbox.pass(10 * MINUTE).await;
            assert!(scene.is_node_ready());
            scene.assert_nothing_new();
            scene.assert_calm(&format!("a jump of {hours} h"), &[(Verb::Update, "leases", 7.0)], 4.0);
            scene.assert_serves("new", BACK_WITHIN).await;
            scene.end().await;
        });
    }
}
