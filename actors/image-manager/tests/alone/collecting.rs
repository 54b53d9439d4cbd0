//! The collection of unused images. Each node has a disk of 100 GiB, and a pod that uses [`IMAGE`].

use bridge_cri::fake::Fault as CallFault;
use bridge_cri::wire::{ImageSpec, Mount};
use bridge_node::stats::{FileSystemRoom, NodeUsage, Room};
use image_manager::CollectionPolicy;
use messages::event_recorder::EventObject;

use super::*;

const GIB: u64 = 1 << 30;
const PERIOD: Duration = Duration::from_secs(300);

fn thresholds() -> CollectionPolicy {
    CollectionPolicy { high_percent: 85, ..CollectionPolicy::default() }
}

fn collector(stage: &Stage<'_>, near: &Neighbours, policy: CollectionPolicy) -> Supervised<ImageManager> {
    let mut deps = near.deps(stage);
    deps.settings.collection = policy;
    stage.start(deps, ImageManager::new)
}

fn name(image: &str) -> String {
    format!("understudy.dev/{image}:1")
}

/// Puts an image of three GiB into the runtime; answers with its ID.
fn add(stage: &Stage<'_>, image: &str) -> String {
    let size_bytes = 3 * GIB;
    stage.fakes.runtime.add_image(&name(image), RegistryImage { size_bytes, ..RegistryImage::default() })
}

fn add_all(stage: &Stage<'_>, images: &[&str]) {
    for image in images {
        add(stage, image);
    }
}

/// The IDs of the images whose deletion was ordered, in this order.
fn removals(stage: &Stage<'_>) -> Vec<String> {
    let calls = stage.fakes.runtime.calls().into_iter().filter(|call| call.rpc == Rpc::RemoveImage);
    calls.map(|call| call.subject).collect()
}

fn page(registry: &Registry) -> String {
    String::from_utf8(bridge_metrics::page(registry.gather(), "", "").body).unwrap()
}

#[test]
fn a_full_disk_loses_the_oldest_unused_images_until_the_low_threshold() {
    alone(async |stage| {
        let near = Neighbours::new();
        stage.fakes.run(&pod(0)).await;
        let first = add(stage, "first");
        let (mut deps, registry) = (near.deps(stage), Registry::new());
        deps.metrics.register(&registry).unwrap();
        deps.settings.collection = thresholds();
        let _actor = stage.start(deps, ImageManager::new);
        stage.pass(200 * SECOND).await;
        // To reach 80 %, 5 GiB must go.
        near.stats.set_disk(15 * GIB);
        add_all(stage, &["second", "third", "fourth"]);
        stage.pass(101 * SECOND).await;
        assert_eq!(removals(stage), [first], "the others are too new");
        assert_eq!(near.reasons(), ["FreeDiskSpaceFailed"]);
        let told = near.events.last().unwrap();
        assert!(told.message.contains("(85% of 100.0 GiB used)"), "{}", told.message);
        assert!(told.message.contains("(freed 3221225472 bytes)"), "{}", told.message);
        assert_eq!(told.object, EventObject::Node);
        stage.pass(PERIOD).await;
        assert_eq!(removals(stage).len(), 3, "two are enough");
        near.stats.set_disk(16 * GIB);
        stage.pass(2 * PERIOD).await;
        assert_eq!((removals(stage).len(), near.reasons().len()), (3, 1));
        let line = "\nkubelet_image_garbage_collected_total{reason=\"space\"} 3\n";
        assert!(page(&registry).contains(line), "{}", page(&registry));
    });
}

#[test]
fn images_that_are_used_or_pinned_stay_and_what_fails_twice_in_a_row_is_told() {
    alone(async |stage| {
        let near = Neighbours::new();
        stage.fakes.run(&pod(0)).await;
        let pinned = add(stage, "pinned");
        stage.fakes.runtime.pin_image(&pinned);
        near.stats.set_disk(0);
        let _actor = collector(stage, &near, thresholds());
        stage.pass(10 * SECOND).await;
        assert_eq!(near.reasons(), ["FreeDiskSpaceFailed"]);
        stage.pass(PERIOD).await;
        assert_eq!(near.reasons(), ["FreeDiskSpaceFailed", "FreeDiskSpaceFailed", "ImageGCFailed"]);
        assert!(removals(stage).is_empty());
    });
}

#[test]
fn an_image_that_a_container_mounts_stays() {
    alone(async |stage| {
        let near = Neighbours::new();
        let files = add(stage, "files");
        let image = Some(ImageSpec { image: files.clone(), ..ImageSpec::default() });
        let mount = Mount { container_path: "/files".to_owned(), image, readonly: true, ..Mount::default() };
        let ran = stage.fakes.run_mounting(&pod(0), vec![mount]).await;
        let idle = add(stage, "idle");
        near.stats.set_disk(0);
        let _actor = collector(stage, &near, thresholds());
        stage.pass(PERIOD + 10 * SECOND).await;
        assert_eq!(removals(stage), std::slice::from_ref(&idle));
        // While the runtime does not answer what a container mounts, nothing goes.
        let another = add(stage, "another");
        let gone = CallFault::Error(CriErrorKind::Unavailable, "connection refused".to_owned());
        stage.fakes.runtime.fault(Rpc::ContainerStatus, 1, gone);
        stage.pass(PERIOD).await;
        assert_eq!(removals(stage).len(), 1);
        stage.pass(2 * PERIOD).await;
        assert_eq!(removals(stage), [idle.clone(), another.clone()]);
        stage.fakes.runtime.lose_container(&ran.container);
        stage.pass(2 * PERIOD).await;
        assert!(removals(stage).contains(&files), "{:?}", removals(stage));
    });
}

#[test]
fn a_container_whose_status_is_broken_keeps_no_unused_image() {
    alone(async |stage| {
        let near = Neighbours::new();
        stage.fakes.run(&pod(0)).await;
        let idle = add(stage, "idle");
        near.stats.set_disk(0);
        let broken = CallFault::Error(CriErrorKind::Other, "container is in a corrupt state".to_owned());
        stage.fakes.runtime.fault(Rpc::ContainerStatus, 1000, broken);
        let _actor = collector(stage, &near, thresholds());
        stage.pass(2 * PERIOD + 10 * SECOND).await;
        assert_eq!(removals(stage), [idle], "what the container was made of stays");
    });
}

#[test]
fn containers_are_listed_once_however_long_the_list_of_images_is() {
    alone(async |stage| {
        let near = Neighbours::new();
        stage.fakes.run(&pod(0)).await;
        let idle = add(stage, "idle");
        let actor = near.start(stage);
        let lists = || stage.fakes.runtime.counts().get(&Rpc::ListContainers).copied().unwrap_or(0);
        let before = lists();
        assert_eq!(stage::ask(&actor, DeleteUnusedImages, 60 * SECOND).await, Ok(0), "they are new");
        assert_eq!(lists() - before, 1);
        stage.pass(130 * SECOND).await;
        let too_large = CallFault::Error(CriErrorKind::ResourceExhausted, "message is too large".to_owned());
        stage.fakes.runtime.fault(Rpc::ListImages, 1000, too_large);
        let before = lists();
        assert_eq!(stage::ask(&actor, DeleteUnusedImages, 60 * SECOND).await, Ok(1));
        assert_eq!((lists() - before, removals(stage)), (1, vec![idle]), "what is in use stays");
    });
}

#[test]
fn an_image_that_was_not_used_for_its_maximum_age_goes_however_empty_the_disk_is() {
    alone(async |stage| {
        let near = Neighbours::new();
        let ran = stage.fakes.run(&pod(0)).await;
        let used = stage.fakes.runtime.add_image(IMAGE, RegistryImage::default());
        let idle = add(stage, "idle");
        let (mut deps, registry) = (near.deps(stage), Registry::new());
        deps.metrics.register(&registry).unwrap();
        let max_age = Some(1000 * SECOND);
        deps.settings.collection = CollectionPolicy { max_age, ..CollectionPolicy::default() };
        let _actor = stage.start(deps, ImageManager::new);
        stage.pass(1000 * SECOND).await;
        // It was seen in use after 900 s.
        stage.fakes.runtime.lose_container(&ran.container);
        stage.pass(199 * SECOND).await;
        assert!(removals(stage).is_empty());
        stage.pass(2 * SECOND).await;
        assert_eq!(removals(stage), std::slice::from_ref(&idle));
        stage.pass(600 * SECOND).await;
        assert_eq!(removals(stage).len(), 1);
        stage.pass(PERIOD).await;
        assert_eq!(removals(stage), [idle, used]);
        let line = "\nkubelet_image_garbage_collected_total{reason=\"age\"} 2\n";
        assert!(page(&registry).contains(line), "{}", page(&registry));
        assert!(near.reasons().is_empty());
    });
}

#[test]
fn without_thresholds_and_ages_nothing_goes_and_no_disk_is_measured() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.stats.set_disk(0);
        let _actor = near.start(stage);
        stage.pass(4 * PERIOD).await;
        assert!(removals(stage).is_empty() && near.reasons().is_empty());
        assert_eq!(near.stats.looks(), 0);
        assert!(!stage.fakes.runtime.counts().contains_key(&Rpc::ListContainers));
    });
}

#[test]
fn an_order_to_delete_all_keeps_what_is_new() {
    alone(async |stage| {
        let near = Neighbours::new();
        let (deps, registry) = (near.deps(stage), Registry::new());
        deps.metrics.register(&registry).unwrap();
        let actor = stage.start(deps, ImageManager::new);
        assert_eq!(stage::ask(&actor, DeleteUnusedImages, 60 * SECOND).await, Ok(0));
        stage.pass(120 * SECOND).await;
        add(stage, "new");
        assert_eq!(stage::ask(&actor, DeleteUnusedImages, 60 * SECOND).await, Ok(1));
        assert_eq!(stage::ask(&actor, DeleteUnusedImages, 60 * SECOND).await, Ok(0));
        stage.pass(120 * SECOND).await;
        assert_eq!(stage::ask(&actor, DeleteUnusedImages, 60 * SECOND).await, Ok(1));
        let line = "\nkubelet_image_garbage_collected_total{reason=\"space\"} 2\n";
        assert!(page(&registry).contains(line), "{}", page(&registry));
    });
}

#[test]
fn an_order_to_delete_all_takes_the_place_of_a_collection_under_way() {
    alone(async |stage| {
        let near = Neighbours::new();
        stage.fakes.run(&pod(0)).await;
        add_all(stage, &["a", "b", "c", "d"]);
        let actor = collector(stage, &near, thresholds());
        stage.pass(200 * SECOND).await;
        near.stats.set_disk(15 * GIB);
        stage.fakes.runtime.fault(Rpc::RemoveImage, 1, CallFault::Latency(10 * SECOND));
        stage.pass(101 * SECOND).await;
        assert_eq!(removals(stage).len(), 1, "it takes its time");
        let orders = [(); 2].map(|()| tokio::spawn(stage::ask(&actor, DeleteUnusedImages, 60 * SECOND)));
        for order in orders {
            assert_eq!(order.await.unwrap(), Ok(3));
        }
        assert_eq!(removals(stage).len(), 4);
        assert!(near.reasons().is_empty(), "{:?}", near.reasons());
    });
}

#[test]
fn an_image_that_a_pod_asks_for_meanwhile_stays_or_is_had_again() {
    alone(async |stage| {
        let near = Neighbours::new();
        stage.fakes.run(&pod(0)).await;
        let images = ["a", "b"].map(|image| (add(stage, image), name(image)));
        let actor = collector(stage, &near, thresholds());
        stage.pass(200 * SECOND).await;
        near.stats.set_disk(0);
        stage.fakes.runtime.fault(Rpc::RemoveImage, 1, CallFault::Latency(10 * SECOND));
        stage.pass(101 * SECOND).await;
        let going = removals(stage);
        assert_eq!(going.len(), 1);
        let (goes, stays): (Vec<_>, Vec<_>) = images.into_iter().partition(|(id, _)| going.contains(id));
        publish(stage, &goes[0].1, Duration::ZERO);
        let waits = asked(&actor, ask(&goes[0].1, &[]));
        asked(&actor, ask(&stays[0].1, &[])).await.unwrap().unwrap().unwrap();
        assert_eq!(pulls(stage), 0);
        assert!(!waits.is_finished(), "the image is neither there nor gone");
        waits.await.unwrap().unwrap().unwrap();
        assert_eq!((removals(stage), pulls(stage)), (going, 1));
    });
}

#[test]
fn a_new_incarnation_knows_since_when_images_are_there_and_which_were_given() {
    alone(async |stage| {
        let near = Neighbours::new();
        stage.fakes.run(&pod(0)).await;
        let (idle, given) = (add(stage, "idle"), add(stage, "given"));
        let actor = collector(stage, &near, thresholds());
        stage.pass(280 * SECOND).await;
        near.stats.set_disk(0);
        asked(&actor, ask(&name("given"), &[])).await.unwrap().unwrap().unwrap();
        stage.pass(10 * SECOND).await;
        stage.crash::<ImageManager>().await;
        assert!(removals(stage).is_empty(), "the next collection comes when it is due");
        stage.pass(20 * SECOND).await;
        assert_eq!(removals(stage), std::slice::from_ref(&idle));
        stage.pass(PERIOD).await;
        assert_eq!(removals(stage), [idle, given]);
    });
}

#[test]
fn a_runtime_that_is_away_and_a_disk_without_capacity_are_told() {
    alone(async |stage| {
        let near = Neighbours::new();
        stage.fakes.run(&pod(0)).await;
        stage.fakes.runtime.set_down(true);
        let _actor = collector(stage, &near, thresholds());
        stage.pass(10 * SECOND).await;
        assert!(near.reasons().is_empty(), "it may have just started");
        stage.pass(PERIOD).await;
        assert_eq!(near.reasons(), ["ImageGCFailed"]);
        let told = near.events.last().unwrap();
        assert!(told.message.contains("connection refused"), "{}", told.message);
        stage.fakes.runtime.set_down(false);
        stage.pass(PERIOD).await;
        let image_fs = FileSystemRoom { device: 1, bytes: Room::used(0, 0), inodes: None };
        near.stats.set_node(NodeUsage { image_fs: Some(image_fs), ..NodeUsage::default() });
        stage.pass(PERIOD).await;
        assert_eq!(near.reasons(), ["ImageGCFailed", "InvalidDiskCapacity"]);
        assert_eq!(&*near.events.last().unwrap().message, "invalid capacity 0 on image filesystem");
    });
}

#[test]
fn a_deletion_that_fails_keeps_no_other_image_and_is_the_reason_that_is_told() {
    alone(async |stage| {
        let near = Neighbours::new();
        stage.fakes.run(&pod(0)).await;
        add_all(stage, &["a", "b"]);
        let _actor = collector(stage, &near, thresholds());
        stage.pass(200 * SECOND).await;
        near.stats.set_disk(15 * GIB);
        let read_only = || CallFault::Error(CriErrorKind::Other, "read-only file system".to_owned());
        stage.fakes.runtime.fault(Rpc::RemoveImage, 1, read_only());
        stage.pass(101 * SECOND).await;
        assert_eq!(removals(stage).len(), 2);
        assert!(near.reasons().is_empty(), "{:?}", near.reasons());
        stage.fakes.runtime.fault(Rpc::RemoveImage, 1, read_only());
        stage.pass(PERIOD).await;
        assert_eq!((removals(stage).len(), near.reasons()), (3, vec!["ImageGCFailed".to_owned()]));
        let told = near.events.last().unwrap().message;
        let words =
            "wanted to free 5368709120 bytes, but freed 0 bytes space with errors in image deletion: ";
        assert!(told.starts_with(words) && told.contains("read-only file system"), "{told}");
        stage.pass(PERIOD).await;
        assert_eq!(near.reasons(), ["ImageGCFailed", "FreeDiskSpaceFailed", "ImageGCFailed"]);
    });
}

#[test]
fn images_that_were_never_seen_stay_while_no_answer_holds_the_list() {
    alone(async |stage| {
        let near = Neighbours::new();
        add(stage, "idle");
        near.stats.set_disk(0);
        let too_large = CallFault::Error(CriErrorKind::ResourceExhausted, "message is too large".to_owned());
        stage.fakes.runtime.fault(Rpc::ListImages, 1000, too_large);
        let actor = collector(stage, &near, thresholds());
        stage.pass(10 * SECOND).await;
        assert_eq!(near.reasons(), ["ImageListTooLong", "FreeDiskSpaceFailed"]);
        let told = near.events.heard()[0].message.clone();
        assert!(told.contains("one by one") && told.ends_with("message is too large"), "{told}");
        stage.pass(PERIOD).await;
        assert_eq!(stage::ask(&actor, DeleteUnusedImages, 60 * SECOND).await, Ok(0));
        let told = near.reasons().iter().filter(|reason| *reason == "ImageListTooLong").count();
        assert_eq!((told, removals(stage).len()), (1, 0), "it is told once");
        stage.fakes.runtime.clear_faults();
        stage.pass(2 * PERIOD).await;
        assert_eq!(removals(stage).len(), 2, "it goes on by itself");
    });
}

#[test]
fn two_images_that_fill_the_list_keep_no_image_that_is_known_and_go_themselves() {
    alone(async |stage| {
        let near = Neighbours::new();
        stage.fakes.run(&pod(0)).await;
        let idle = add(stage, "idle");
        near.stats.set_disk(0);
        let actor = collector(stage, &near, thresholds());
        stage.pass(10 * SECOND).await;
        for image in ["huge-a", "huge-b"] {
            let username = "u".repeat(9 << 20);
            stage.fakes.runtime.publish(&name(image), RegistryImage { username, ..RegistryImage::default() });
            asked(&actor, ask(&name(image), &[])).await.unwrap().unwrap().unwrap();
        }
        stage.pass(PERIOD).await;
        assert!(near.reasons().contains(&"ImageListTooLong".to_owned()), "{:?}", near.reasons());
        assert!(removals(stage).contains(&idle), "it was seen before");
        stage.pass(2 * PERIOD).await;
        assert_eq!(removals(stage).len(), 3, "what is in use stays");
    });
}

#[test]
fn an_image_that_no_answer_describes_goes_by_the_id_of_its_record() {
    alone(async |stage| {
        let near = Neighbours::new();
        let record = |id: &str| {
            format!(
                "{{\"kind\":\"ImagePulledRecord\",\"apiVersion\":\"kubelet.config.k8s.io/v1beta1\",\
                 \"lastUpdatedTime\":null,\"imageRef\":\"{id}\"}}\n"
            )
        };
        let username = "u".repeat(17 << 20);
        let huge = stage
            .fakes
            .runtime
            .add_image(&name("huge"), RegistryImage { username, ..RegistryImage::default() });
        let pulled = "/var/lib/kubelet/image_manager/pulled";
        stage.fakes.disk.mkdir(pulled, 0o700);
        stage.fakes.disk.write(format!("{pulled}/sha256-00"), record(&huge), 0o600);
        let actor = near.start(stage);
        assert_eq!(stage::ask(&actor, DeleteUnusedImages, 60 * SECOND).await, Ok(0), "it is new");
        stage.pass(130 * SECOND).await;
        assert_eq!(stage::ask(&actor, DeleteUnusedImages, 60 * SECOND).await, Ok(1));
        assert_eq!(removals(stage), [huge]);
    });
}

#[test]
fn changed_thresholds_hold_from_the_next_look_on() {
    alone(async |stage| {
        let near = Neighbours::new();
        stage.fakes.run(&pod(0)).await;
        near.stats.set_disk(15 * GIB);
        let actor = collector(stage, &near, CollectionPolicy::default());
        add_all(stage, &["first", "second"]);
        stage.pass(3 * PERIOD).await;
        assert!(removals(stage).is_empty(), "the disk is not full by the thresholds of the start");
        actor.address().tell(configured(5)).unwrap();
        stage.pass(2 * PERIOD).await;
        assert_eq!(removals(stage).len(), 2);
    });
}
