//! Variables from secrets and config maps (row 11.3).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapKeySelector, Container, EnvFromSource, Secret, SecretKeySelector,
};
use messages::object_cache::ObjectError;

use super::EnvError;

/// ObjectCache's answer about an object.
pub type Found<K> = Result<Arc<K>, ObjectError>;

/// The objects that a container's variables come from, as ObjectCache has them now.
#[derive(Clone, Debug, Default)]
pub struct EnvObjects {
    /// Secrets by name.
    pub secrets: BTreeMap<String, Found<Secret>>,
    /// Config maps by name.
    pub config_maps: BTreeMap<String, Found<ConfigMap>>,
    /// The variables of the services that the pod is told of, by the variable's name.
    pub services: BTreeMap<String, String>,
}

/// The names of the secrets, and those of the config maps, that a container's variables come from.
pub fn needed(container: &Container) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut secrets, mut config_maps) = (BTreeSet::new(), BTreeSet::new());
    for source in container.env_from.iter().flatten() {
        secrets.extend(source.secret_ref.iter().map(|one| one.name.clone()));
        config_maps.extend(source.config_map_ref.iter().map(|one| one.name.clone()));
    }
    let variables = container.env.iter().flatten();
    for source in variables.filter_map(|variable| variable.value_from.as_ref()) {
        secrets.extend(source.secret_key_ref.iter().map(|one| one.name.clone()));
        config_maps.extend(source.config_map_key_ref.iter().map(|one| one.name.clone()));
    }
    (secrets, config_maps)
}

/// The object; none if it does not exist and is optional.
fn there<'a, K>(
    objects: &'a BTreeMap<String, Found<K>>,
    name: &str,
    optional: Option<bool>,
) -> Result<Option<&'a Arc<K>>, EnvError> {
    match objects.get(name) {
        Some(Ok(object)) => Ok(Some(object)),
        Some(Err(error)) if error.not_found && optional == Some(true) => Ok(None),
        Some(Err(error)) => Err(EnvError::Object(error.message.clone())),
        None => Err(EnvError::Object(format!("{name:?} was not asked for"))),
    }
}

/// The keys and values of one `envFrom` source. They are not copied: the author of a pod may name large objects many times.
pub(super) fn all_of<'a>(
    source: &EnvFromSource,
    objects: &'a EnvObjects,
) -> Result<impl Iterator<Item = (&'a str, Cow<'a, str>)>, EnvError> {
    let config_map = match &source.config_map_ref {
        Some(wanted) => there(&objects.config_maps, &wanted.name, wanted.optional)?,
        None => None,
    };
    let secret = match &source.secret_ref {
        Some(wanted) if source.config_map_ref.is_none() => {
            there(&objects.secrets, &wanted.name, wanted.optional)?
        }
        _ => None,
    };
    let config_map = config_map.into_iter().flat_map(|found| found.data.iter().flatten());
    let secret = secret.into_iter().flat_map(|found| found.data.iter().flatten());
    let config_map = config_map.map(|(key, value)| (key.as_str(), Cow::Borrowed(value.as_str())));
    Ok(config_map.chain(secret.map(|(key, value)| (key.as_str(), String::from_utf8_lossy(&value.0)))))
}

/// The value of a key of a config map; none if it does not exist and is optional.
pub(super) fn of_config_map(
    wanted: &ConfigMapKeySelector,
    namespace: &str,
    objects: &EnvObjects,
) -> Result<Option<String>, EnvError> {
    let (name, key) = (&wanted.name, &wanted.key);
    let Some(found) = there(&objects.config_maps, name, wanted.optional)? else { return Ok(None) };
    match found.data.as_ref().and_then(|data| data.get(key)) {
        Some(value) => Ok(Some(value.clone())),
        None if wanted.optional == Some(true) => Ok(None),
        None => Err(EnvError::Object(format!("couldn't find key {key} in ConfigMap {namespace}/{name}"))),
    }
}

/// The value of a key of a secret; none if it does not exist and is optional.
pub(super) fn of_secret(
    wanted: &SecretKeySelector,
    namespace: &str,
    objects: &EnvObjects,
) -> Result<Option<String>, EnvError> {
    let (name, key) = (&wanted.name, &wanted.key);
    let Some(found) = there(&objects.secrets, name, wanted.optional)? else { return Ok(None) };
    match found.data.as_ref().and_then(|data| data.get(key)) {
        Some(value) => Ok(Some(text(&value.0))),
        None if wanted.optional == Some(true) => Ok(None),
        None => Err(EnvError::Object(format!("couldn't find key {key} in Secret {namespace}/{name}"))),
    }
}

/// The value as text, since the runtime takes no other: bytes that are no UTF-8 are replaced.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;
    use crate::env::tests::with_sources;
    use crate::env::{EnvSources, environment};

    fn from<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
        serde_json::from_value(value).expect("an object of the API")
    }

    fn objects() -> EnvObjects {
        let gone =
            |kind: &str| ObjectError { not_found: true, message: format!("{kind} \"gone\" not found") };
        let map = from(serde_json::json!({"metadata": {}, "data": {"A": "map a", "B": "map b"}}));
        let secret = from(serde_json::json!({"metadata": {}, "data": {"B": "c2VjcmV0IGI=", "C": "Yw=="}}));
        let services = [("KUBERNETES_SERVICE_HOST", "10.0.0.1"), ("A", "never")];
        EnvObjects {
            secrets: BTreeMap::from([
                ("s".to_owned(), Ok(Arc::new(secret))),
                ("gone".to_owned(), Err(gone("secret"))),
            ]),
            config_maps: BTreeMap::from([
                ("m".to_owned(), Ok(Arc::new(map))),
                ("gone".to_owned(), Err(gone("configmap"))),
            ]),
            services: services.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        }
    }

    fn of(container: serde_json::Value) -> Result<Vec<(String, String)>, String> {
        let container: Container = from(container);
        let pod: Pod = from(serde_json::json!({"metadata": {"namespace": "ns"}}));
        let mut result = Ok(Vec::new());
        with_sources(&pod, |sources| {
            let objects = objects();
            let sources = EnvSources { objects: &objects, ..sources.clone() };
            result = environment(&container, &sources).map_err(|error| error.to_string());
        });
        result
    }

    fn env(pairs: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
        Ok(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn sources_come_first_then_variables_then_services() {
        let container = serde_json::json!({"name": "c",
        "envFrom": [
            {"configMapRef": {"name": "m"}},
            {"prefix": "P_", "secretRef": {"name": "s"}},
            {"secretRef": {"name": "s"}},
            {"configMapRef": {"name": "gone", "optional": true}},
        ],
        "env": [
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "C"}}},
            {"name": "B", "value": "$(B), $(KEY) at $(KUBERNETES_SERVICE_HOST)"},
            {"name": "NONE", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "Z", "optional": true}}},
            {"name": "GONE", "valueFrom": {"secretKeyRef": {"name": "gone", "key": "Z", "optional": true}}},
            {"name": "MAP", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "B"}}},
        ]});
        let names: (BTreeSet<String>, BTreeSet<String>) = needed(&from(container.clone()));
        assert_eq!(names.0.iter().collect::<Vec<_>>(), ["gone", "s"]);
        assert_eq!(names.1.iter().collect::<Vec<_>>(), ["gone", "m"]);
        assert_eq!(
            of(container),
            env(&[
                ("A", "map a"),
                ("B", "secret b, c at 10.0.0.1"),
                ("P_B", "secret b"),
                ("P_C", "c"),
                ("C", "c"),
                ("KEY", "c"),
                ("MAP", "map b"),
                ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
            ])
        );
    }

    #[test]
    fn what_is_missing_says_so_in_upstreams_words() {
        let variable = |source: serde_json::Value| {
            of(serde_json::json!({"name": "c", "env": [{"name": "X", "valueFrom": source}]}))
        };
        let all = |source: serde_json::Value| of(serde_json::json!({"name": "c", "envFrom": [source]}));
        for (result, error) in [
            (
                variable(serde_json::json!({"configMapKeyRef": {"name": "m", "key": "Z"}})),
                "couldn't find key Z in ConfigMap ns/m",
            ),
            (
                variable(serde_json::json!({"secretKeyRef": {"name": "s", "key": "Z"}})),
                "couldn't find key Z in Secret ns/s",
            ),
            (
                variable(serde_json::json!({"configMapKeyRef": {"name": "gone", "key": "Z"}})),
                "configmap \"gone\" not found",
            ),
            (all(serde_json::json!({"secretRef": {"name": "gone"}})), "secret \"gone\" not found"),
            (
                all(serde_json::json!({"configMapRef": {"name": "gone", "optional": false}})),
                "configmap \"gone\" not found",
            ),
        ] {
            assert_eq!(result, Err(error.to_owned()));
        }
    }
}
