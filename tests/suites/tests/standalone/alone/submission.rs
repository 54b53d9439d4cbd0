//! Pods that are submitted over HTTPS, with a real runtime (rows 1.8 and 17.7).

use std::sync::Arc;

use serde_json::{Value, json};
use testkit::process::eventually;

use super::https::{CLOSE, ask, certificates, node_with};
use crate::Alone;
use crate::environment::Environment;
use crate::node::SOON;
use crate::pod::PodFile;
use crate::spec::{containers, sleeper, with};

pub const ALL: &[(&str, Alone)] = &[("a_submitted_pod_outlives_a_killed_kubelet", submitted)];

fn submitted(environment: &Arc<Environment>) {
    let certificates = certificates();
    let understudy = json!({"podSubmission": {"enabled": true}, "podSecurity": {"enforce": "baseline"}});
    let (node, _files) = node_with(environment, "submission", &certificates, json!({}), understudy);
    // The file is not written: only its content is sent.
    let handed = PodFile::new(&node, "handed".to_owned());
    let post = |manifest: &Value| {
        let manifest = manifest.to_string();
        // The end of the line that follows the headers is the end of the body.
        let length = manifest.len() + 2;
        let headers =
            format!("{CLOSE}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{manifest}");
        ask(&node, &certificates, true, "POST /pods", &headers, |_| false)
    };
    let manifest = handed.manifest(containers([sleeper("main")]));
    let hostile = handed.manifest(with(containers([sleeper("main")]), json!({"hostPID": true})));
    let answer = eventually("an answer by a kubelet that has read what it keeps", SOON, || {
        let answer = post(&hostile);
        if answer.starts_with("HTTP/1.1 429") { Err(answer) } else { Ok(answer) }
    });
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    let words = "violates PodSecurity \"baseline:latest\": host namespaces (hostPID=true)";
    assert!(answer.contains(words), "{answer}");
    let answer = post(&manifest);
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let pod = handed.ready();
    assert_eq!(pod.text("/metadata/annotations/kubernetes.io~1config.source"), "submission");
    let container = pod.container_id("main").to_owned();

    node.kill_kubelet();
    node.start_kubelet_again();
    let again = handed.ready();
    assert_eq!((again.uid(), again.container_id("main")), (pod.uid(), container.as_str()));
    let answer = post(&manifest);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let path = format!("DELETE /pods/{}/{}", node.namespace, pod.name());
    let answer = ask(&node, &certificates, true, &path, CLOSE, |_| false);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    handed.gone(&again);
    let answer = ask(&node, &certificates, true, &path, CLOSE, |_| false);
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
}
