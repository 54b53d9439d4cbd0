//! Environment variables from objects of the API server.

use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use serde_json::json;
use testkit::process::eventually;

use crate::Shared;
use crate::member::{Member, named};
use crate::node::{LATER, SOON};
use crate::spec::{OBEDIENT, containers, shell, with};

pub const ALL: &[(&str, Shared)] = &[
    ("variables_come_from_objects_and_services", variables),
    ("a_container_waits_for_its_variables", waits),
];

fn variables(member: &Member) {
    let api = &member.api;
    api.create::<ConfigMap>(named(member, "settings", json!({"data": {"COLOUR": "red", "SIZE": "large"}})));
    api.create::<Secret>(named(member, "keys", json!({"stringData": {"KEY": "hush"}})));
    let ports = json!([{"port": 80, "name": "http"}]);
    let service = api.create::<Service>(named(member, "shop-front", json!({"spec": {"ports": ports}})));
    let address = service["spec"]["clusterIP"].as_str().expect("the API server allots one").to_owned();
    let container = with(
        shell("main", &format!("env >/gate/.env; mv /gate/.env /gate/env; {OBEDIENT}")),
        json!({
            "envFrom": [
                {"configMapRef": {"name": "settings"}},
                {"prefix": "P_", "secretRef": {"name": "keys"}},
                {"configMapRef": {"name": "nowhere", "optional": true}},
            ],
            "env": [
                {"name": "SIZE", "value": "small"},
                {"name": "BOTH", "value": "$(COLOUR)-$(SIZE)"},
                {"name": "ONE", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "COLOUR"}}},
                {"name": "TWO", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "KEY"}}},
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                {"name": "HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
                {"name": "ACCOUNT", "valueFrom": {"fieldRef": {"fieldPath": "spec.serviceAccountName"}}},
            ],
        }),
    );
    let spec = with(containers([container]), json!({"gate": true}));
    // The kubelet's watch tells of the service a moment later: a pod that starts before that has no variables for it.
    let lines = eventually("a pod has the service's variables", SOON, || {
        let pod = member.pod("variables", spec.clone());
        pod.ready();
        let lines = eventually("it has written them down", SOON, || match pod.file.written("env") {
            lines if lines.is_empty() => Err("nothing".to_owned()),
            lines => Ok(lines),
        });
        let there = lines.iter().any(|line| line.starts_with("SHOP_FRONT_SERVICE_HOST="));
        if there { Ok(lines) } else { Err(format!("{lines:?}")) }
    });
    let (node, ip) = (&member.name, member.setting.ip);
    for line in [
        "COLOUR=red".to_owned(),
        "SIZE=small".to_owned(),
        "BOTH=red-small".to_owned(),
        "P_KEY=hush".to_owned(),
        "ONE=red".to_owned(),
        "TWO=hush".to_owned(),
        format!("NODE={node}"),
        format!("HOST={ip}"),
        "ACCOUNT=default".to_owned(),
        format!("SHOP_FRONT_SERVICE_HOST={address}"),
        "SHOP_FRONT_SERVICE_PORT=80".to_owned(),
        "SHOP_FRONT_SERVICE_PORT_HTTP=80".to_owned(),
        format!("SHOP_FRONT_PORT_80_TCP_ADDR={address}"),
        "KUBERNETES_SERVICE_HOST=10.96.0.1".to_owned(),
        "KUBERNETES_SERVICE_PORT_HTTPS=443".to_owned(),
    ] {
        assert!(lines.contains(&line), "{line} in {lines:#?}");
    }
}

fn waits(member: &Member) {
    let from = json!([{"name": "LATE", "valueFrom": {"secretKeyRef": {"name": "late-key", "key": "key"}}}]);
    let container = with(shell("main", &format!("echo $LATE >/gate/late; {OBEDIENT}")), json!({"env": from}));
    let pod = member.pod("waits", with(containers([container]), json!({"gate": true})));
    // On a slow machine the first tries only wait for the API server's answer.
    pod.wait("cannot be configured", LATER, |pod| {
        let (reason, message) = pod.waiting("main");
        reason == "CreateContainerConfigError" && message.contains("secret \"late-key\" not found")
    });
    member.api.create::<Secret>(named(member, "late-key", json!({"stringData": {"key": "came"}})));
    let after = pod.wait("Ready", LATER, |pod| pod.is_ready());
    assert_eq!(after.restarts("main"), 0);
    eventually("the variable is there", SOON, || match pod.file.written("late") {
        lines if lines == ["came"] => Ok(()),
        lines => Err(format!("{lines:?}")),
    });
}
