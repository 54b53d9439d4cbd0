//! PURE: the objects of the API server that a pod refers to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, EnvFromSource, EnvVar, Pod, PodSpec, Volume};
use messages::PodUid;

use crate::object_store::Kind;
use crate::room::Name;

/// What pods refer to, and which pods refer to an object.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct References {
    of_pods: BTreeMap<PodUid, BTreeSet<(Kind, Name)>>,
    pods_of: BTreeMap<(Kind, Name), BTreeSet<PodUid>>,
}

impl References {
    /// The pod refers to exactly these objects from now on.
    pub fn set(&mut self, uid: &PodUid, objects: BTreeSet<(Kind, Name)>) {
        let before = self.of_pods.remove(uid).unwrap_or_default();
        for object in before.difference(&objects) {
            if let Some(pods) = self.pods_of.get_mut(object) {
                pods.remove(uid);
                if pods.is_empty() {
                    self.pods_of.remove(object);
                }
            }
        }
        for object in objects.difference(&before) {
            self.pods_of.entry(object.clone()).or_default().insert(uid.clone());
        }
        if !objects.is_empty() {
            self.of_pods.insert(uid.clone(), objects);
        }
    }

    /// Whether the pod is known to refer to the object.
    pub fn refers(&self, uid: &PodUid, object: &(Kind, Name)) -> bool {
        self.of_pods.get(uid).is_some_and(|objects| objects.contains(object))
    }

    /// The pods that refer to the object.
    pub fn pods(&self, object: &(Kind, Name)) -> impl Iterator<Item = &PodUid> {
        self.pods_of.get(object).into_iter().flatten()
    }

    /// Every object that a pod refers to.
    pub fn objects(&self) -> impl Iterator<Item = &(Kind, Name)> {
        self.pods_of.keys()
    }
}

/// At most so many objects are known to be what a pod refers to. Further ones are read like the others when an actor asks for them,
/// but not watched for long.
const OBJECTS_MAX: usize = 4096;

/// What one pod refers to.
#[derive(Default)]
struct ObjectsOfPod<'a>(BTreeSet<(Kind, &'a str)>);

impl<'a> ObjectsOfPod<'a> {
    fn add(&mut self, kind: Kind, name: &'a str) {
        if !name.is_empty() && self.0.len() < OBJECTS_MAX {
            self.0.insert((kind, name));
        }
    }

    fn variables(&mut self, env: Option<&'a Vec<EnvVar>>, from: Option<&'a Vec<EnvFromSource>>) {
        for source in env.into_iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
            source.secret_key_ref.iter().for_each(|one| self.add(Kind::Secret, &one.name));
            source.config_map_key_ref.iter().for_each(|one| self.add(Kind::ConfigMap, &one.name));
        }
        for source in from.into_iter().flatten() {
            source.secret_ref.iter().for_each(|one| self.add(Kind::Secret, &one.name));
            source.config_map_ref.iter().for_each(|one| self.add(Kind::ConfigMap, &one.name));
        }
    }

    fn volume(&mut self, volume: &'a Volume) {
        let secret = volume.secret.as_ref().and_then(|secret| secret.secret_name.as_deref());
        secret.into_iter().for_each(|name| self.add(Kind::Secret, name));
        volume.config_map.iter().for_each(|one| self.add(Kind::ConfigMap, &one.name));
        let projected = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
        for source in projected {
            source.secret.iter().for_each(|one| self.add(Kind::Secret, &one.name));
            source.config_map.iter().for_each(|one| self.add(Kind::ConfigMap, &one.name));
        }
    }

    fn spec(&mut self, spec: &'a PodSpec) {
        let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        containers
            .for_each(|Container { env, env_from, .. }| self.variables(env.as_ref(), env_from.as_ref()));
        for container in spec.ephemeral_containers.iter().flatten() {
            self.variables(container.env.as_ref(), container.env_from.as_ref());
        }
        spec.volumes.iter().flatten().for_each(|volume| self.volume(volume));
        spec.image_pull_secrets.iter().flatten().for_each(|one| self.add(Kind::Secret, &one.name));
        spec.runtime_class_name.iter().for_each(|name| self.add(Kind::RuntimeClass, name));
    }
}

/// The secrets, config maps and runtime classes that a pod refers to; none for a pod that has ended.
pub fn of(pod: &Pod) -> BTreeSet<(Kind, Name)> {
    if pod_rules::phases::pod_has_ended(pod) {
        return BTreeSet::new();
    }
    let mut found = ObjectsOfPod::default();
    pod.spec.iter().for_each(|spec| found.spec(spec));
    let namespace: Arc<str> = Arc::from(pod.metadata.namespace.as_deref().unwrap_or_default());
    let within = |kind| if kind == Kind::RuntimeClass { Arc::from("") } else { namespace.clone() };
    found.0.into_iter().map(|(kind, name)| (kind, (within(kind), Arc::from(name)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(spec: serde_json::Value, phase: &str) -> Pod {
        let metadata = serde_json::json!({"name": "p", "namespace": "ns"});
        let pod = serde_json::json!({"metadata": metadata, "spec": spec, "status": {"phase": phase}});
        serde_json::from_value(pod).expect("a pod")
    }

    #[test]
    fn references_are_found_from_both_ends() {
        let object = |name: &str| (Kind::Secret, (Arc::from("ns"), Arc::from(name)));
        let set = |names: &[&str]| names.iter().map(|name| object(name)).collect::<BTreeSet<_>>();
        let (a, b) = (PodUid::new("a"), PodUid::new("b"));
        let mut references = References::default();
        references.set(&a, set(&["x", "y"]));
        references.set(&b, set(&["y"]));
        assert_eq!(references.pods(&object("y")).collect::<Vec<_>>(), [&a, &b]);
        assert!(references.refers(&a, &object("x")) && !references.refers(&b, &object("x")));
        references.set(&a, set(&["z"]));
        assert_eq!(references.pods(&object("y")).collect::<Vec<_>>(), [&b]);
        assert_eq!(references.objects().cloned().collect::<BTreeSet<_>>(), set(&["y", "z"]));
        references.set(&a, set(&[]));
        references.set(&b, set(&[]));
        assert_eq!(references, References::default(), "nothing is left behind");
    }

    #[test]
    fn every_place_that_names_an_object_is_known() {
        let key = |name: &str| serde_json::json!({"name": name, "key": "k"});
        let env = |n: u32| {
            serde_json::json!([
                {"name": "A", "valueFrom": {"secretKeyRef": key(&format!("s{n}"))}},
                {"name": "B", "valueFrom": {"configMapKeyRef": key(&format!("c{n}"))}},
            ])
        };
        let spec = serde_json::json!({
            "containers": [{"name": "a", "env": env(1), "envFrom": [
                {"secretRef": {"name": "s2"}}, {"configMapRef": {"name": "c2"}}
            ]}],
            "initContainers": [{"name": "i", "env": env(3)}],
            "ephemeralContainers": [{"name": "e", "env": env(4)}],
            "volumes": [
                {"name": "v", "secret": {"secretName": "s5"}},
                {"name": "w", "configMap": {"name": "c5"}},
                {"name": "x", "projected": {"sources": [
                    {"secret": {"name": "s6"}}, {"configMap": {"name": "c6"}}, {"downwardAPI": {"items": []}}
                ]}},
            ],
            "runtimeClassName": "r1",
            "imagePullSecrets": [{"name": "s7"}, {"name": "s1"}, {"name": ""}],
        });
        let named = |kind: Kind| -> Vec<String> {
            let of = of(&pod(spec.clone(), "Running"));
            let within = |kind: Kind| if kind == Kind::RuntimeClass { "" } else { "ns" };
            assert!(of.iter().all(|(kind, (namespace, _))| &**namespace == within(*kind)));
            of.iter().filter(|(one, _)| *one == kind).map(|(_, (_, name))| name.to_string()).collect()
        };
        assert_eq!(named(Kind::Secret), ["s1", "s2", "s3", "s4", "s5", "s6", "s7"]);
        assert_eq!(named(Kind::ConfigMap), ["c1", "c2", "c3", "c4", "c5", "c6"]);
        assert_eq!(named(Kind::RuntimeClass), ["r1"]);
        assert!(of(&pod(spec, "Succeeded")).is_empty(), "it needs nothing any more");
    }
}
