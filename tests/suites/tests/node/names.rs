//! Names: hosts files, host names and resolver configuration.

use std::sync::Arc;
use std::time::Duration;

use messages::event_recorder::{EventObject, RecordedEvent};
use supervision::Policy;
use testkit::node::{FakeNode, IMAGE, is_ready, settings};
use testkit::sandbox;

use crate::life::world;

fn pod(name: &str, more: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  containers: [{{name: main, image: {IMAGE}, imagePullPolicy: IfNotPresent, command: [serve]}}]
{more}"
    )
}

/// Waits for an event with this reason and a message that begins with this text.
async fn event(node: &FakeNode, reason: &str, message: &str) -> RecordedEvent {
    let end = tokio::time::Instant::now() + Duration::from_secs(120);
    loop {
        let events = node.events().await;
        let found =
            events.iter().find(|event| &*event.reason == reason && event.message.starts_with(message));
        if let Some(found) = found {
            return found.clone();
        }
        assert!(tokio::time::Instant::now() < end, "no event {reason} {message:?} in {events:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[test]
fn hosts_files_are_the_pods_or_the_nodes() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(21);
        let aliases = "  hostAliases: [{ip: 192.0.2.7, hostnames: [seven]}]\n";
        world.manifest("own.yaml", &pod("own", &format!("  hostname: h\n  subdomain: s\n{aliases}")));
        world.manifest("host.yaml", &pod("host", &format!("  hostNetwork: true\n{aliases}")));
        let node = FakeNode::start(sandbox, &world, &settings());
        let ready = |name: &'static str| {
            move |pods: &std::collections::BTreeMap<String, Arc<_>>| {
                pods.get(name).is_some_and(|status| is_ready(status))
            }
        };
        node.until("own to be Ready", ready("own")).await;
        node.until("host to be Ready", ready("host")).await;
        let mut files: Vec<String> = world
            .disk
            .children("/var/lib/kubelet/pods")
            .iter()
            .map(|dir| {
                String::from_utf8(world.disk.read(dir.join("etc-hosts")).expect("managed")).expect("text")
            })
            .collect();
        files.sort();
        let end = "\n# Entries added by HostAliases.\n192.0.2.7\tseven\n";
        let node_hosts =
            format!("# Kubernetes-managed hosts file (host network).\n127.0.0.1\tlocalhost\n{end}");
        assert_eq!(files[0], node_hosts);
        assert!(
            files[1].starts_with("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"),
            "{}",
            files[1]
        );
        assert!(files[1].contains("\th.s.default.svc.\th\n") && files[1].ends_with(end), "{}", files[1]);
    });
}

#[test]
fn what_cannot_be_named_makes_no_sandbox() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(22);
        let hostname = "h".repeat(63);
        let more = format!("  hostname: {hostname}\n  subdomain: s\n  setHostnameAsFQDN: true\n");
        world.manifest("long.yaml", &pod("long", &more));
        let node = FakeNode::start(sandbox, &world, &settings());
        let text = format!(
            "Failed to create pod sandbox: failed to construct FQDN from pod hostname and cluster domain, FQDN \
             {hostname}.s.default.svc. is too long (64 characters is the max, 78 characters requested)"
        );
        event(&node, "FailedCreatePodSandBox", &text).await;
        assert!(world.runtime.sandboxes().is_empty());
    });
}

#[test]
fn resolvers_that_do_not_fit_are_told() {
    sandbox(Policy::default(), async |sandbox| {
        let mut world = world(23);
        let searches = vec!["search.example"; 33].join(" ");
        world.resolv_conf = Some(format!("nameserver 192.0.2.53\nsearch {searches}\n"));
        let mut settings = settings();
        settings.worker.resolv_conf = "/etc/resolv.conf".to_owned();
        let node = FakeNode::start(sandbox, &world, &settings);
        let text =
            "Resolv.conf file '/etc/resolv.conf' contains search line consisting of more than 32 domains!";
        let checked = event(&node, "CheckLimitsForResolvConf", text).await;
        assert!(matches!(checked.object, EventObject::Node), "before there is any pod: {checked:?}");
        world.manifest("web.yaml", &pod("web", ""));
        let text = "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: ";
        let told = event(&node, "DNSConfigForming", text).await;
        assert!(matches!(told.object, EventObject::Pod { .. }));
        let missing = "kubelet does not have ClusterDNS IP configured and cannot create Pod using \"ClusterFirst\" policy";
        event(&node, "MissingClusterDNS", missing).await;
        event(&node, "MissingClusterDNS", "pod: \"web-node_default(").await;
    });
}
