//! PURE: the pod that is asked about, by name, namespace and name, or UID.

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use crate::model::Supervision;
use crate::text::neutralised;

/// The most characters of a name that are compared.
const NAME_CHARS_MAX: usize = 253;
/// Names that differ in at most so many letters, and in a third of them, are near.
const LETTERS_OFF_MAX: usize = 2;
/// The most names that a message has.
const NAMES_MAX: usize = 5;
/// What the names of pods' workers begin with in the tree.
pub const WORKER_PREFIX: &str = "PodWorker/";

/// The pod that is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    namespace: Option<String>,
    /// Its name, or its UID.
    name: String,
}

/// Why no pod, or not one pod, is the one that is asked about.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// The name has a namespace that is not the one of `-n`.
    #[error("{name:?} is not in the namespace {namespace:?}: name the namespace once")]
    TwoNamespaces {
        /// The pod as given.
        name: String,
        /// The namespace as given.
        namespace: String,
    },
    /// The name is empty, or has an empty part.
    #[error("{0:?} is no pod: name it as NAME, NAMESPACE/NAME or by its UID")]
    NoName(String),
    /// Pods of several namespaces have the name.
    #[error("several pods have the name {name:?}: {}; name one as NAMESPACE/NAME", .pods.join(", "))]
    Several {
        /// The name as given.
        name: String,
        /// The pods, with their namespaces.
        pods: Vec<String>,
    },
    /// The node has no such pod.
    #[error("{server} has no pod {name:?}; {}", near(.pods))]
    Unknown {
        /// The kubelet that was asked.
        server: String,
        /// The pod as given.
        name: String,
        /// Pods with names like it.
        pods: Vec<String>,
    },
}

impl FindError {
    /// Whether the command line is wrong, whatever pods there are.
    pub fn is_wrong_use(&self) -> bool {
        !matches!(self, Self::Unknown { .. })
    }
}

fn near(pods: &[String]) -> String {
    if pods.is_empty() {
        return "`understudy pods` lists those that it has".to_owned();
    }
    format!("near names: {}", pods.join(", "))
}

/// A pod of the node.
#[derive(Clone, Debug)]
pub struct Subject<'a> {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The pod; `None` once it is not desired any more, while its worker ends it.
    pub pod: Option<&'a Pod>,
}

impl Subject<'_> {
    /// `namespace/name`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl Asked {
    /// From the command line.
    ///
    /// # Errors
    /// A part is empty, or two namespaces are named.
    pub fn parse(pod: &str, namespace: Option<&str>) -> Result<Self, FindError> {
        let (own, name) = pod.split_once('/').map_or((None, pod), |(own, name)| (Some(own), name));
        if name.is_empty() || name.contains('/') || own == Some("") || namespace == Some("") {
            return Err(FindError::NoName(pod.to_owned()));
        }
        match (own, namespace) {
            (Some(own), Some(namespace)) if own != namespace => {
                Err(FindError::TwoNamespaces { name: pod.to_owned(), namespace: namespace.to_owned() })
            }
            _ => Ok(Self { namespace: own.or(namespace).map(str::to_owned), name: name.to_owned() }),
        }
    }

    fn text(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.clone(),
        }
    }

    /// The one pod that is meant.
    ///
    /// # Errors
    /// No pod or several pods are.
    pub fn find<'a>(
        &self,
        server: &str,
        pods: &'a [Pod],
        tree: &Supervision,
    ) -> Result<Subject<'a>, FindError> {
        let all = subjects(pods, tree);
        let within = |subject: &&Subject<'_>| {
            self.namespace.as_ref().is_none_or(|namespace| subject.namespace == *namespace)
        };
        if let Some(found) = all.iter().filter(within).find(|subject| subject.uid == self.name) {
            return Ok(found.clone());
        }
        let named: Vec<&Subject<'_>> =
            all.iter().filter(within).filter(|subject| subject.name == self.name).collect();
        // A successor waits while the worker of an earlier pod of its name ends that: the successor is meant.
        let desired: Vec<&Subject<'_>> =
            named.iter().copied().filter(|subject| subject.pod.is_some()).collect();
        let meant = if desired.is_empty() { named } else { desired };
        match meant.as_slice() {
            [] => Err(FindError::Unknown {
                server: neutralised(server),
                name: self.text(),
                pods: self.near_names(&all),
            }),
            [one] => Ok((*one).clone()),
            several => {
                let pods = several.iter().take(NAMES_MAX).map(|subject| neutralised(&subject.full_name()));
                Err(FindError::Several { name: self.text(), pods: pods.collect() })
            }
        }
    }

    fn near_names(&self, all: &[Subject<'_>]) -> Vec<String> {
        let most = LETTERS_OFF_MAX.min(self.name.chars().count() / 3);
        let named = all.iter().filter(|subject| !subject.name.is_empty());
        let mut near: Vec<(usize, String)> = named
            .filter_map(|subject| {
                let off = letters_off(&self.name, &subject.name);
                let alike = subject.name.contains(&self.name) || self.name.contains(&subject.name);
                let off = if alike { off.min(LETTERS_OFF_MAX) } else { off };
                (alike || off <= most).then(|| (off, neutralised(&subject.full_name())))
            })
            .collect();
        near.sort();
        near.dedup();
        near.into_iter().take(NAMES_MAX).map(|(_, name)| name).collect()
    }
}

/// The desired pods, and those that only a worker is left of.
pub fn subjects<'a>(pods: &'a [Pod], tree: &Supervision) -> Vec<Subject<'a>> {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let mut all: Vec<Subject<'a>> = pods
        .iter()
        .map(|pod| Subject {
            namespace: text(&pod.metadata.namespace),
            name: text(&pod.metadata.name),
            uid: text(&pod.metadata.uid),
            pod: Some(pod),
        })
        .collect();
    for actor in &tree.actors {
        let Some(uid) = actor.name.strip_prefix(WORKER_PREFIX) else { continue };
        let named = actor.observed.get("pod").and_then(Value::as_str);
        let Some((namespace, name)) = named.and_then(|named| named.split_once('/')) else { continue };
        if !all.iter().any(|subject| subject.uid == uid) {
            let (namespace, name, uid) = (namespace.to_owned(), name.to_owned(), uid.to_owned());
            all.push(Subject { namespace, name, uid, pod: None });
        }
    }
    all
}

/// In how many letters two names differ: added, left out or another.
fn letters_off(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().take(NAME_CHARS_MAX).collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.chars().take(NAME_CHARS_MAX).enumerate() {
        let mut before = row[0];
        row[0] = line + 1;
        for (column, other) in other.iter().enumerate() {
            let replaced = before + usize::from(letter != *other);
            before = row[column + 1];
            row[column + 1] = replaced.min(before + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Actor;

    fn pods() -> Vec<Pod> {
        let named = [("default", "web-node", "u-1"), ("default", "job", "u-2"), ("other", "job", "u-3")];
        let pod = |(namespace, name, uid): (&str, &str, &str)| {
            let metadata = serde_json::json!({ "namespace": namespace, "name": name, "uid": uid });
            serde_json::from_value(serde_json::json!({ "metadata": metadata })).unwrap()
        };
        named.into_iter().map(pod).collect()
    }

    fn tree() -> Supervision {
        let worker = |uid: &str, pod: &str| Actor {
            name: format!("PodWorker/{uid}"),
            observed: serde_json::json!({ "pod": pod }),
            ..Actor::default()
        };
        let actors = vec![worker("u-1", "default/web-node"), worker("u-0", "default/gone")];
        Supervision { actors, ..Supervision::default() }
    }

    fn found(pod: &str, namespace: Option<&str>) -> Result<String, String> {
        let (pods, tree) = (pods(), tree());
        let asked = Asked::parse(pod, namespace).map_err(|error| error.to_string())?;
        let found = asked.find("http://node", &pods, &tree);
        found.map(|subject| subject.uid).map_err(|error| error.to_string())
    }

    #[test]
    fn a_pod_is_found_by_name_namespace_and_uid() {
        for (pod, namespace, uid) in [
            ("web-node", None, "u-1"),
            ("default/job", None, "u-2"),
            ("job", Some("other"), "u-3"),
            ("other/job", Some("other"), "u-3"),
            ("u-2", None, "u-2"),
            ("gone", None, "u-0"),
        ] {
            assert_eq!(found(pod, namespace), Ok(uid.to_owned()), "{pod}");
        }
    }

    #[test]
    fn a_pod_that_is_not_there_has_its_near_names_told() {
        for (pod, message) in [
            ("web", "http://node has no pod \"web\"; near names: default/web-node"),
            ("wbe-node", "http://node has no pod \"wbe-node\"; near names: default/web-node"),
            ("third/job", "http://node has no pod \"third/job\"; near names: default/job, other/job"),
            (
                "quite-another",
                "http://node has no pod \"quite-another\"; `understudy pods` lists those that it has",
            ),
        ] {
            assert_eq!(found(pod, None), Err(message.to_owned()));
        }
    }

    #[test]
    fn wrong_use_is_told_from_an_unknown_pod() {
        let several =
            "several pods have the name \"job\": default/job, other/job; name one as NAMESPACE/NAME";
        assert_eq!(found("job", None), Err(several.to_owned()));
        for wrong in ["", "/job", "default/", "a/b/c"] {
            assert!(Asked::parse(wrong, None).is_err_and(|error| error.is_wrong_use()), "{wrong}");
        }
        assert!(Asked::parse("default/job", Some("other")).is_err_and(|error| error.is_wrong_use()));
        let unknown = FindError::Unknown { server: String::new(), name: String::new(), pods: Vec::new() };
        assert!(!unknown.is_wrong_use());
    }

    #[test]
    fn letters_are_counted() {
        for (one, other, off) in [("", "abc", 3), ("abc", "abc", 0), ("abc", "acb", 2), ("web", "wob", 1)] {
            assert_eq!(letters_off(one, other), off, "{one} {other}");
        }
    }
}
