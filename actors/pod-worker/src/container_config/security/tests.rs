use bridge_cri::wire::{SupplementalGroupsPolicy, security_profile::ProfileType};
use serde_json::{Value, json};

use super::*;
use crate::fixtures::{container as plain, pod as plain_pod, pod_ref};

fn image(uid: Option<i64>, username: &str) -> PresentImage {
    PresentImage { image_ref: String::new(), uid, username: username.into() }
}

fn container(context: Value) -> Container {
    let context = serde_json::from_value(context).expect("a security context");
    Container { security_context: Some(context), ..plain("c") }
}

fn pod(context: Value) -> Pod {
    let mut pod = plain_pod("Always", vec![], vec![]);
    let context = serde_json::from_value(context).expect("a security context");
    pod.spec.as_mut().expect("spec").security_context = Some(context);
    pod
}

fn made(of_pod: Value, own: Value) -> LinuxContainerSecurityContext {
    let image = image(None, "");
    security_context(&pod(of_pod), &container(own), &image, None, &NodeRules::default()).expect("valid")
}

fn number(value: Option<Int64Value>) -> Option<i64> {
    value.map(|value| value.value)
}

#[test]
fn without_a_context_a_container_has_the_usual_confinement() {
    let pod = plain_pod("Always", vec![], vec![]);
    let rules = NodeRules { thermal_paths: vec!["/sys/cpu0/thermal".into()], ..NodeRules::default() };
    let context = security_context(&pod, &plain("c"), &image(None, ""), None, &rules).expect("valid");
    assert!(!context.privileged && !context.readonly_rootfs && !context.no_new_privs);
    assert_eq!((number(context.run_as_user), number(context.run_as_group)), (Some(0), None));
    assert_eq!((context.capabilities, context.selinux_options, context.apparmor), (None, None, None));
    assert_eq!(context.seccomp.expect("always given").profile_type(), ProfileType::Unconfined);
    assert_eq!(context.masked_paths.len(), 13);
    assert_eq!(context.masked_paths.last().map(String::as_str), Some("/sys/cpu0/thermal"));
    assert_eq!(context.readonly_paths, READONLY_PATHS);
    assert_eq!(context.supplemental_groups, [] as [i64; 0]);
}

#[test]
fn the_user_is_the_containers_else_the_pods_else_the_images() {
    let user = |of_pod: Value, own: Value, image: &PresentImage| {
        let made = security_context(&pod(of_pod), &container(own), image, None, &NodeRules::default());
        let made = made.expect("valid");
        (number(made.run_as_user), number(made.run_as_group), made.run_as_username)
    };
    let none = || json!({});
    let (numbered, named, silent) = (image(Some(7), ""), image(None, "nobody"), image(None, ""));
    assert_eq!(user(none(), none(), &numbered), (Some(7), None, String::new()));
    assert_eq!(user(none(), none(), &named), (None, None, "nobody".to_owned()));
    assert_eq!(user(none(), none(), &silent), (Some(0), None, String::new()));
    let of_pod = || json!({"runAsUser": 1000, "runAsGroup": 2000});
    assert_eq!(user(of_pod(), none(), &named), (Some(1000), Some(2000), String::new()));
    assert_eq!(user(of_pod(), json!({"runAsUser": 0}), &named), (Some(0), Some(2000), String::new()));
    assert_eq!(user(of_pod(), json!({"runAsGroup": 3}), &named), (Some(1000), Some(3), String::new()));
    assert_eq!(user(none(), json!({"runAsGroup": 3}), &named), (None, Some(3), "nobody".to_owned()));
}

fn refusal(of_pod: Value, own: Value, image: &PresentImage) -> Result<(), String> {
    verify_non_root(&pod(of_pod), &pod_ref(), &container(own), image).map_err(|error| error.to_string())
}

#[test]
fn who_must_not_be_root_is_not() {
    let non_root = || json!({"runAsNonRoot": true});
    let (silent, named) = (image(None, ""), image(None, "nobody"));
    let of = |text: &str| Err(format!("{text} (pod: \"web_ns(uid-1)\", container: c)"));
    let image_root = || of("container has runAsNonRoot and image will run as root");

    assert_eq!(refusal(json!({}), json!({}), &silent), Ok(()), "nobody asks");
    assert_eq!(refusal(json!({"runAsNonRoot": false}), json!({}), &silent), Ok(()));
    assert_eq!(refusal(non_root(), json!({"runAsNonRoot": false}), &silent), Ok(()), "the container's wins");
    assert_eq!(refusal(non_root(), json!({}), &silent), image_root());
    assert_eq!(refusal(json!({}), non_root(), &silent), image_root());
    assert_eq!(refusal(json!({"runAsNonRoot": false}), non_root(), &image(Some(0), "")), image_root());
    assert_eq!(refusal(non_root(), json!({}), &image(Some(7), "")), Ok(()));

    let named_refused =
        "container has runAsNonRoot and image has non-numeric user (nobody), cannot verify user is non-root";
    assert_eq!(refusal(non_root(), json!({}), &named), of(named_refused));
    assert_eq!(refusal(non_root(), json!({"runAsUser": 7}), &named), Ok(()));
    let mut of_pod = non_root();
    of_pod["runAsUser"] = json!(7);
    assert_eq!(refusal(of_pod.clone(), json!({}), &silent), Ok(()));
    let root = of("container's runAsUser breaks non-root policy");
    assert_eq!(refusal(of_pod, json!({"runAsUser": 0}), &named), root);

    for uid in [-1, i64::from(i32::MAX) + 1] {
        let text = format!(
            "container has runAsNonRoot and image has an invalid user id ({uid}). (Must be 1-(2147483647)): must be \
             between 0 and 2147483647, inclusive"
        );
        assert_eq!(refusal(non_root(), json!({}), &image(Some(uid), "")), of(&text));
    }
    assert_eq!(refusal(non_root(), json!({}), &image(Some(i64::from(i32::MAX)), "")), Ok(()));
}

#[test]
fn what_a_container_may_do_is_passed_on() {
    let own = json!({
        "privileged": true,
        "readOnlyRootFilesystem": true,
        "capabilities": {"add": ["NET_ADMIN", "SYS_TIME"], "drop": ["ALL"]},
    });
    let context = made(json!({}), own);
    assert!(context.privileged && context.readonly_rootfs);
    let capabilities = context.capabilities.expect("given");
    assert_eq!(capabilities.add_capabilities, ["NET_ADMIN", "SYS_TIME"]);
    assert_eq!(capabilities.drop_capabilities, ["ALL"]);
    assert_eq!(capabilities.add_ambient_capabilities, [] as [String; 0]);
}

#[test]
fn only_escalation_that_is_forbidden_sets_no_new_privs() {
    for (own, expected) in [
        (json!({}), false),
        (json!({"allowPrivilegeEscalation": true}), false),
        (json!({"allowPrivilegeEscalation": false}), true),
    ] {
        assert_eq!(made(json!({}), own.clone()).no_new_privs, expected, "{own}");
    }
}

#[test]
fn an_unmasked_proc_hides_nothing() {
    let context = made(json!({}), json!({"procMount": "Unmasked"}));
    assert_eq!((context.masked_paths.len(), context.readonly_paths.len()), (0, 0));
    let context = made(json!({}), json!({"procMount": "Default"}));
    assert_eq!((context.masked_paths.len(), context.readonly_paths.len()), (12, 5));
}

#[test]
fn selinux_options_are_the_containers_else_the_pods_as_a_whole() {
    let of_pod = || json!({"seLinuxOptions": {"level": "s0:c1,c2", "type": "t"}});
    let options = made(of_pod(), json!({})).selinux_options.expect("the pod's");
    assert_eq!((options.level.as_str(), options.r#type.as_str()), ("s0:c1,c2", "t"));
    let options = made(of_pod(), json!({"seLinuxOptions": {"user": "u", "role": "r"}}));
    let options = options.selinux_options.expect("the container's");
    assert_eq!((options.level.as_str(), options.user.as_str(), options.role.as_str()), ("", "u", "r"));
}

#[test]
fn groups_are_the_volumes_first_and_then_the_others() {
    let of_pod = json!({"fsGroup": 5, "supplementalGroups": [1, 2], "supplementalGroupsPolicy": "Strict"});
    let context = made(of_pod, json!({}));
    assert_eq!(context.supplemental_groups, [5, 1, 2]);
    assert_eq!(context.supplemental_groups_policy(), SupplementalGroupsPolicy::Strict);
    let merge = made(json!({"supplementalGroupsPolicy": "Merge"}), json!({}));
    assert_eq!(merge.supplemental_groups_policy(), SupplementalGroupsPolicy::Merge);
    let unknown = pod(json!({"supplementalGroupsPolicy": "x"}));
    let error = security_context(&unknown, &plain("c"), &image(None, ""), None, &NodeRules::default());
    assert_eq!(error.expect_err("unknown").to_string(), "unsupported supplementalGroupsPolicy: x");
}

#[test]
#[expect(deprecated, reason = "older runtimes know no other field")]
fn apparmor_is_given_in_both_forms() {
    let context = made(json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": "p"}}), json!({}));
    assert_eq!(context.apparmor_profile, "localhost/p");
    assert_eq!(context.apparmor.expect("given").localhost_ref, "p");
}

#[test]
fn a_target_is_looked_into_only_by_who_has_processes_of_its_own() {
    let seen = |pod: &Pod, target| {
        let made = security_context(pod, &plain("c"), &image(None, ""), target, &NodeRules::default());
        let options = made.expect("valid").namespace_options.expect("always given");
        (options.pid(), options.target_id)
    };
    let mut pod = plain_pod("Always", vec![], vec![]);
    assert_eq!(seen(&pod, None), (NamespaceMode::Container, String::new()));
    assert_eq!(seen(&pod, Some("id")), (NamespaceMode::Target, "id".to_owned()));
    pod.spec.as_mut().expect("spec").share_process_namespace = Some(true);
    assert_eq!(seen(&pod, Some("id")), (NamespaceMode::Pod, String::new()));
    pod.spec.as_mut().expect("spec").host_pid = Some(true);
    assert_eq!(seen(&pod, Some("id")), (NamespaceMode::Node, String::new()));
}
