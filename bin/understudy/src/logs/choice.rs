//! PURE: which container of a pod is meant, as kubectl chooses it.

use k8s_openapi::api::core::v1::Pod;

use crate::view::text::neutralised;

/// The annotation that names the container to take where none is named.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// A chosen container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Its name.
    pub name: String,
    /// All containers, if there was a choice that nothing made.
    pub among: Vec<String>,
}

/// Chooses the container.
///
/// # Errors
/// The pod has none, or none of this name; the text names those that it has.
pub fn choose(pod: &Pod, asked: Option<&str>) -> Result<Choice, String> {
    let all = names(pod);
    let told = || all.iter().map(|(name, kind)| format!("{}{kind}", neutralised(name))).collect::<Vec<_>>();
    let has = |wanted: &str| all.iter().any(|(name, _)| *name == wanted);
    if let Some(asked) = asked {
        return match has(asked) {
            true => Ok(Choice { name: asked.to_owned(), among: Vec::new() }),
            false => Err(format!("no container {asked:?}; it has: {}", told().join(", "))),
        };
    }
    let annotated = pod.metadata.annotations.as_ref().and_then(|all| all.get(DEFAULT_CONTAINER));
    if let Some(name) = annotated.filter(|name| has(name)) {
        return Ok(Choice { name: name.clone(), among: Vec::new() });
    }
    match all.as_slice() {
        [] => Err("it has no containers".to_owned()),
        [(only, _)] => Ok(Choice { name: (*only).to_owned(), among: Vec::new() }),
        [(first, _), ..] => Ok(Choice { name: (*first).to_owned(), among: told() }),
    }
}

/// The pod's containers, ordinary ones first, each with what else it is.
fn names(pod: &Pod) -> Vec<(&str, &'static str)> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let mains = spec.containers.iter().map(|container| (container.name.as_str(), ""));
    let inits = spec.init_containers.iter().flatten().map(|container| (container.name.as_str(), " (init)"));
    let later = spec.ephemeral_containers.iter().flatten();
    let later = later.map(|container| (container.name.as_str(), " (ephem)"));
    mains.chain(inits).chain(later).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn chosen(annotations: Value, asked: Option<&str>) -> Result<(String, String), String> {
        let spec = json!({
            "containers": [{ "name": "app" }, { "name": "beside" }],
            "initContainers": [{ "name": "prepare" }],
            "ephemeralContainers": [{ "name": "debug" }],
        });
        let pod = json!({ "metadata": { "annotations": annotations }, "spec": spec });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        choose(&pod, asked).map(|choice| (choice.name, choice.among.join(", ")))
    }

    #[test]
    fn the_container_is_the_one_that_kubectl_takes() {
        let plain = |name: &str| Ok((name.to_owned(), String::new()));
        let among = "app, beside, prepare (init), debug (ephem)";
        assert_eq!(chosen(json!({}), None), Ok(("app".to_owned(), among.to_owned())));
        for name in ["beside", "prepare", "debug"] {
            assert_eq!(chosen(json!({}), Some(name)), plain(name));
        }
        assert_eq!(chosen(json!({ DEFAULT_CONTAINER: "beside" }), None), plain("beside"));
        // An annotation that names none is passed over.
        assert_eq!(chosen(json!({ DEFAULT_CONTAINER: "none" }), None).unwrap().0, "app");
        assert_eq!(chosen(json!({}), Some("no")), Err(format!("no container \"no\"; it has: {among}")));
        let one: Pod =
            serde_json::from_value(json!({ "spec": { "containers": [{ "name": "a" }] } })).unwrap();
        assert_eq!(choose(&one, None), Ok(Choice { name: "a".to_owned(), among: Vec::new() }));
        assert!(choose(&Pod::default(), None).is_err());
    }
}
