//! Images that may be pulled only with a secret.

#[path = "../standalone/registry/http.rs"]
#[allow(dead_code, reason = "the other suite uses all of it")]
mod http;
#[path = "../standalone/registry/server.rs"]
#[allow(dead_code, reason = "the other suite uses all of it")]
mod server;

use k8s_openapi::api::core::v1::Secret;
use serde_json::json;
use server::{PASSWORD, Registry, USER, basic};

use crate::Shared;
use crate::environment::Missing;
use crate::member::{Member, has_program, named};
use crate::node::{LATER, SOON};
use crate::spec::{containers, sleeper, with};

pub const ALL: &[(&str, Shared)] = &[("a_pull_secret_opens_a_private_registry", private)];

/// Whether a registry can be started.
pub fn available() -> Result<(), Missing> {
    if has_program("docker-registry") {
        return Ok(());
    }
    Err(Missing {
        reason: "no docker-registry: tests/env/install-runtime --tests installs it".to_owned(),
        fails: std::env::var_os("CI").is_some()
            && std::env::var("UNDERSTUDY_REQUIRE_CLUSTER").as_deref() == Ok("1"),
    })
}

fn private(member: &Member) {
    let registry = Registry::private(&member.setting.runtime);
    let image = registry.push("guarded:1", 1000).at(registry.port);
    let auths = json!({"auths": {format!("127.0.0.1:{}", registry.port): {"auth": basic(USER, PASSWORD)}}});
    let spec = with(
        containers([with(sleeper("main"), json!({"image": image, "imagePullPolicy": "Always"}))]),
        json!({"imagePullSecrets": [{"name": "pull"}]}),
    );
    let pod = member.pod("guarded", spec);
    let waits = |reason: &str| matches!(reason, "ErrImagePull" | "ImagePullBackOff");
    pod.wait("cannot pull", SOON, |pod| waits(pod.waiting("main").0));
    let secret = json!({
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": auths.to_string()},
    });
    member.api.create::<Secret>(named(member, "pull", secret));
    let running = pod.wait("Running", LATER, |pod| pod.is_running("main"));
    pod.event(&running, "Pulled", "guarded:1");

    // The image is now on the node, and the pods with the secret pull it again and again: no pull policy gives it to
    // others.
    for (policy, reasons) in [
        ("Always", ["ErrImagePull", "ImagePullBackOff"]),
        ("IfNotPresent", ["ErrImagePull", "ImagePullBackOff"]),
        ("Never", ["ErrImageNeverPull"; 2]),
    ] {
        let of = |secrets: serde_json::Value| {
            let main = with(sleeper("main"), json!({"image": image, "imagePullPolicy": policy}));
            with(containers([main]), json!({"imagePullSecrets": secrets}))
        };
        let name = policy.to_lowercase();
        let mine = member.pod(&format!("mine-{name}"), of(json!([{"name": "pull"}])));
        let stranger = member.pod(&format!("stranger-{name}"), of(json!([])));
        mine.wait("Running", LATER, |pod| pod.is_running("main"));
        let refused = stranger.wait("refused", SOON, |pod| reasons.contains(&pod.waiting("main").0));
        if policy != "Never" {
            stranger.event(&refused, "Failed", "Failed to pull image");
        }
    }
}
