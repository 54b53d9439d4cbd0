//! PURE: AppArmor profiles need a kernel that enforces them (row 16.6).

use k8s_openapi::api::core::v1::{AppArmorProfile, Pod, PodSpec};
use messages::facts::Rejection;
use pod_rules::annotations::{
    APPARMOR_PREFIX, PROFILE_LOCALHOST_PREFIX, PROFILE_RUNTIME_DEFAULT, PROFILE_UNCONFINED,
};

/// How a container is confined.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Profile {
    Unconfined,
    RuntimeDefault,
    Localhost(String),
}

/// Refuses a pod with a profile that this node cannot enforce. A pod that runs already is not judged here at
/// all; a phase of Running proves nothing, since other clients of the API server can write it.
pub(super) fn check(pod: &Pod, enabled: bool) -> Result<(), Rejection> {
    let Some(spec) = &pod.spec else { return Ok(()) };
    let profiles: Vec<Profile> =
        containers(spec).filter_map(|(name, own)| of_container(pod, spec, name, own)).collect();
    if profiles.iter().all(|profile| *profile == Profile::Unconfined) {
        return Ok(());
    }
    let refuse = |why: &str| Err(Rejection::new("AppArmor", format!("Cannot enforce AppArmor: {why}")));
    if !enabled {
        return refuse("AppArmor is not enabled on the host");
    }
    match profiles.iter().find(|p| matches!(p, Profile::Localhost(name) if name.trim().is_empty())) {
        Some(Profile::Localhost(name)) => refuse(&format!("invalid empty AppArmor profile name: {name:?}")),
        _ => Ok(()),
    }
}

fn containers(spec: &PodSpec) -> impl Iterator<Item = (&str, Option<&AppArmorProfile>)> {
    spec.init_containers.iter().flatten().chain(&spec.containers).map(|container| {
        let context = container.security_context.as_ref();
        (container.name.as_str(), context.and_then(|context| context.app_armor_profile.as_ref()))
    })
}

/// The container's own profile, else the one in its annotation, else the pod's.
fn of_container(pod: &Pod, spec: &PodSpec, name: &str, own: Option<&AppArmorProfile>) -> Option<Profile> {
    let of_pod = spec.security_context.as_ref().and_then(|context| context.app_armor_profile.as_ref());
    let annotations = pod.metadata.annotations.as_ref();
    let annotated = || {
        let value = annotations?.get(&format!("{APPARMOR_PREFIX}{name}"))?;
        match value.as_str() {
            "" => None,
            PROFILE_UNCONFINED => Some(Profile::Unconfined),
            PROFILE_RUNTIME_DEFAULT => Some(Profile::RuntimeDefault),
            other => {
                let name = other.strip_prefix(PROFILE_LOCALHOST_PREFIX);
                name.map(|name| Profile::Localhost(name.to_owned()))
            }
        }
    };
    own.map(of_field).or_else(annotated).or_else(|| of_pod.map(of_field))
}

fn of_field(profile: &AppArmorProfile) -> Profile {
    match profile.type_.as_str() {
        "Unconfined" => Profile::Unconfined,
        "Localhost" => Profile::Localhost(profile.localhost_profile.clone().unwrap_or_default()),
        _ => Profile::RuntimeDefault,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodStatus;
    use serde_json::{Value, json};

    use super::*;

    fn pod(annotation: &str, of_pod: Value, own: Value) -> Pod {
        let context =
            |profile: Value| if profile.is_null() { json!({}) } else { json!({"appArmorProfile": profile}) };
        let annotations = match annotation {
            "" => json!({}),
            value => json!({"container.apparmor.security.beta.kubernetes.io/a": value}),
        };
        let pod = json!({
            "metadata": {"annotations": annotations},
            "spec": {"securityContext": context(of_pod), "containers": [{"name": "a", "securityContext": context(own)}]},
        });
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn a_profile_needs_apparmor() {
        let (none, localhost) = (Value::Null, json!({"type": "Localhost", "localhostProfile": "p"}));
        let (default, free) = (json!({"type": "RuntimeDefault"}), json!({"type": "Unconfined"}));
        for (pod, needed) in [
            (pod("", none.clone(), none.clone()), false),
            (pod("", free.clone(), none.clone()), false),
            (pod("", default.clone(), none.clone()), true),
            (pod("", default.clone(), free.clone()), false),
            (pod("", free.clone(), localhost.clone()), true),
            (pod("unconfined", default.clone(), none.clone()), false),
            (pod("runtime/default", none.clone(), none.clone()), true),
            (pod("localhost/p", none.clone(), none.clone()), true),
            (pod("localhost/p", none, free), false),
        ] {
            let refused = check(&pod, false).err().map(|why| (why.reason, why.message));
            let expected = needed.then(|| {
                (
                    "AppArmor".to_owned(),
                    "Cannot enforce AppArmor: AppArmor is not enabled on the host".to_owned(),
                )
            });
            assert_eq!(refused, expected, "{pod:?}");
            assert_eq!(check(&pod, true), Ok(()));
        }
        let empty = check(&pod("localhost/ ", Value::Null, Value::Null), true).unwrap_err();
        assert_eq!(empty.message, "Cannot enforce AppArmor: invalid empty AppArmor profile name: \" \"");
    }

    #[test]
    fn a_phase_that_others_wrote_makes_no_difference() {
        let mut pod = pod("", json!({"type": "RuntimeDefault"}), Value::Null);
        pod.status = Some(PodStatus { phase: Some("Running".to_owned()), ..PodStatus::default() });
        assert!(check(&pod, false).is_err());
    }
}
