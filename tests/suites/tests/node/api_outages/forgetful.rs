//! Writes that are carried out while their answers are lost.

use std::collections::BTreeMap;
use std::time::Duration;

use bridge_cri::fake::{Behaviour, Match};
use bridge_kube::fake::{Fault, On, Verb};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use supervision::Policy;
use testkit::node::{FakeNode, NODE};
use testkit::sandbox;

use super::scene::{MINUTE, NS, Scene, clustered, member, pod, until};

#[test]
fn whatever_answer_is_lost_nothing_is_made_twice() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(121);
        world.runtime.behave(Match::Command("serve".to_owned()), vec![Behaviour::forever()]);
        for name in ["web", "other"] {
            api.put(&pod(name));
        }
        // The first two answers to each kind of write are lost.
        let writes = [
            (Verb::Create, "nodes"),
            (Verb::Patch, "nodes/status"),
            (Verb::Create, "leases"),
            (Verb::Update, "leases"),
            (Verb::Create, "pods"),
            (Verb::Patch, "pods/status"),
            (Verb::Create, "events"),
            (Verb::Patch, "events"),
            (Verb::Delete, "pods"),
        ];
        for (verb, target) in writes {
            api.fault(On::call(verb, target), 2, Fault::LostReply);
        }
        let node = FakeNode::start(sandbox, &world, &member().await);
        let told = |name: &str| {
            let status = api.get::<Pod>(NS, name).and_then(|pod| pod.status);
            status.is_some_and(|status| testkit::node::is_ready(&status))
        };
        until("all pods to be told", || ["web", "other", "fixed-node"].iter().all(|name| told(name))).await;
        let containers = world.runtime.containers().len();
        api.delete::<Pod>(NS, "other", None);
        until("the other one to be gone", || api.get::<Pod>(NS, "other").is_none()).await;
        sandbox.pass(5 * MINUTE).await;

        assert_eq!((api.list::<Node>().len(), api.list::<Lease>().len()), (1, 1));
        let mut names: Vec<_> = api.list::<Pod>().into_iter().filter_map(|pod| pod.metadata.name).collect();
        names.sort();
        assert_eq!(names, ["fixed-node", "web"]);
        let mut doubles: BTreeMap<(String, String, String), usize> = BTreeMap::new();
        for event in api.list::<Event>() {
            let about = event.involved_object;
            let place =
                format!("{} {}", about.name.unwrap_or_default(), about.field_path.unwrap_or_default());
            let key = (place, event.reason.unwrap_or_default(), event.message.unwrap_or_default());
            *doubles.entry(key).or_default() += 1;
        }
        doubles.retain(|_, count| *count > 1);
        assert!(doubles.is_empty(), "{doubles:#?}");
        assert!(world.runtime.containers().len() < containers, "no pod was started again");
        for ((verb, target), count) in api.counts() {
            println!("replies lost: {:6} {target:20} {count}", verb.as_str());
        }
        let count = |verb, target| api.count(verb, target);
        assert!(count(Verb::Create, "nodes") <= 3 && count(Verb::Create, "leases") <= 3);
        assert!(count(Verb::Create, "pods") <= 3, "the mirror");
        assert!(count(Verb::Delete, "pods") <= 4);
        assert!(count(Verb::Patch, "pods/status") <= 20, "{}", count(Verb::Patch, "pods/status"));
        assert_eq!(api.get::<Node>(None, NODE).and_then(|node| node.spec?.unschedulable), None);
        node.stop().await;
    });
}

#[test]
fn a_deletion_whose_answer_is_lost_takes_no_successor_with_it() {
    sandbox(Policy::default(), async |sandbox| {
        let scene = Scene::settled(sandbox, 122).await;
        scene.api.fault(On::call(Verb::Delete, "pods"), 1, Fault::LostReply);
        let first = scene.api.get::<Pod>(NS, "web").and_then(|pod| pod.metadata.uid).expect("a UID");
        scene.api.delete::<Pod>(NS, "web", None);
        until("the first one to be gone", || scene.api.get::<Pod>(NS, "web").is_none()).await;
        // The successor exists before the write is tried again.
        let second = scene.api.put(&pod("web")).metadata.uid.expect("a UID");
        assert_ne!(first, second);
        scene.until_ready("web").await;
        sandbox.pass(5 * MINUTE).await;
        assert_eq!(scene.api.get::<Pod>(NS, "web").and_then(|pod| pod.metadata.uid), Some(second));
        assert!(scene.is_told_ready("web"));
        assert_eq!(scene.api.count(Verb::Delete, "pods"), 1, "it was seen that the pod is gone");
        scene.end().await;
    });
}

#[test]
fn a_pod_that_is_made_anew_under_its_name_is_another_one() {
    sandbox(Policy::default(), async |sandbox| {
        let scene = Scene::settled(sandbox, 123).await;
        let uids = || {
            let sandboxes = scene.world.runtime.sandboxes();
            let of = sandboxes.into_iter().filter_map(|sandbox| sandbox.metadata);
            of.filter(|meta| meta.name == "web").map(|meta| meta.uid).collect::<Vec<_>>()
        };
        for away in [false, true] {
            let first = uids();
            assert_eq!(first.len(), 1);
            if away {
                scene.api.set_down(true);
                sandbox.pass(MINUTE).await;
            }
            // Deleted by force: the kubelet is not waited for.
            scene.api.delete::<Pod>(NS, "web", Some(0));
            let second = scene.api.put(&pod("web")).metadata.uid.expect("a UID");
            if away {
                sandbox.pass(2 * MINUTE).await;
                assert_eq!(uids(), first, "nobody knows yet");
                scene.api.set_down(false);
            }
            scene.until_ready("web").await;
            until("the first one to be gone", || uids() == [second.clone()]).await;
            let containers = scene.world.runtime.containers();
            let of_it = |uid: &str| {
                containers
                    .iter()
                    .filter(|c| c.labels.get("io.kubernetes.pod.uid").is_some_and(|l| l == uid))
                    .count()
            };
            assert_eq!((of_it(&first[0]), of_it(&second)), (0, 1));
            assert!(scene.is_told_ready("other") && scene.is_told_ready("fixed-node"));
            sandbox.pass(MINUTE).await;
        }
        assert_eq!(scene.api.count(Verb::Delete, "pods"), 0, "the server had no pod that was to be deleted");
        scene.assert_calm("pods made anew under their names", &[(Verb::Get, "/readyz", 90.0)], 15.0);
        sandbox.pass(Duration::from_secs(1)).await;
        scene.end().await;
    });
}
