//! PURE: the node's taints that a pod does not tolerate (row 16.2).

use k8s_openapi::api::core::v1::{Pod, Taint, Toleration};
use pod_rules::taints::NO_EXECUTE;

/// Whether the pod does not tolerate a taint that would end a running pod (`NoExecute`). The kubelet checks
/// no other taints.
pub(super) fn untolerated(pod: &Pod, taints: &[Taint]) -> bool {
    taints.iter().filter(|taint| taint.effect == NO_EXECUTE).any(|taint| !tolerated(pod, taint))
}

/// Whether the pod tolerates this taint.
pub(super) fn tolerated(pod: &Pod, taint: &Taint) -> bool {
    let mut tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    tolerations.any(|toleration| tolerates(toleration, taint))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let of_effect = text(&toleration.effect).is_empty() || text(&toleration.effect) == taint.effect;
    let of_key = text(&toleration.key).is_empty() || text(&toleration.key) == taint.key;
    let of_value = match text(&toleration.operator).as_str() {
        "" | "Equal" => text(&toleration.value) == text(&taint.value),
        "Exists" => true,
        _ => false,
    };
    of_effect && of_key && of_value
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodSpec;

    use super::*;

    fn taint(key: &str, value: &str, effect: &str) -> Taint {
        Taint {
            key: key.to_owned(),
            value: Some(value.to_owned()),
            effect: effect.to_owned(),
            time_added: None,
        }
    }

    fn pod(key: &str, operator: &str, value: &str, effect: &str) -> Pod {
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let toleration = Toleration {
            key: some(key),
            operator: some(operator),
            value: some(value),
            effect: some(effect),
            ..Toleration::default()
        };
        let spec = PodSpec { tolerations: Some(vec![toleration]), ..PodSpec::default() };
        Pod { spec: Some(spec), ..Pod::default() }
    }

    #[test]
    fn only_what_is_borne() {
        let taints = [taint("down", "yes", "NoExecute"), taint("other", "", "NoSchedule")];
        for (pod, expected) in [
            (Pod::default(), true),
            (pod("down", "Equal", "yes", "NoExecute"), false),
            (pod("down", "", "yes", ""), false),
            (pod("down", "Equal", "no", ""), true),
            (pod("down", "Exists", "", "NoExecute"), false),
            (pod("down", "Exists", "", "NoSchedule"), true),
            (pod("", "Exists", "", ""), false),
            (pod("up", "Exists", "", ""), true),
        ] {
            assert_eq!(untolerated(&pod, &taints), expected, "{pod:?}");
        }
        assert!(!untolerated(&Pod::default(), &taints[1..]), "only NoExecute counts");
    }
}
