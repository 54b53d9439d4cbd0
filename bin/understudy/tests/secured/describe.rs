//! `understudy describe`.

use serde_json::{Value, json};

use super::kubelet::{Answer, Kubelet, answers};

fn kubelet() -> Kubelet {
    Kubelet::start("127.0.0.1", answers(|_| Answer::whole("404 Not Found", "404 page not found")))
}

#[test]
fn a_pod_is_described_in_the_shape_of_kubectl() {
    let node = kubelet();
    let (code, out, err) = node.said(&["describe", "-n", "default", "web"]);
    assert_eq!(code, 0, "{err}");
    let begin: Vec<&str> = out.lines().take(3).collect();
    assert_eq!(begin, ["Name:         web", "Namespace:    default", "UID:          u-1"]);
    for line in ["Init Containers:", "  prepare:", "    State:          Running", "  Ready  True"] {
        assert!(out.lines().any(|told| told == line), "{line:?}: {out}");
    }
    let (code, _, err) = node.said(&["describe", "wep"]);
    assert!(code == 1 && err.contains("near names: default/web"), "{err}");
    assert_eq!(node.said(&["describe"]).0, 2);
}

#[test]
fn a_description_is_a_document_too() {
    let node = kubelet();
    let (code, out, err) = node.said(&["describe", "u-2", "-o", "json"]);
    assert_eq!(code, 0, "{err}");
    let document: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(document["name"], "one");
    let container = &document["containers"][0];
    assert_eq!((&container["state"]["state"], &container["ready"]), (&json!("running"), &json!(true)));
    assert_eq!(document["conditions"][0]["type"], "Ready");
    for list in ["initContainers", "ephemeralContainers", "volumes", "events", "ips", "unread"] {
        assert_eq!(document[list], json!([]), "{list}");
    }
}
