//! Environment variables and `$(NAME)` references (rows 11.3 to 11.7).

mod fields;
pub mod file;
pub mod objects;
mod resources;
pub mod services;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, EnvVarSource, FileKeySelector, Pod};
use messages::quantity::Quantity;

use self::objects::EnvObjects;

/// Where values come from that are not in the container itself.
#[derive(Clone, Debug)]
pub struct EnvSources<'a> {
    /// The container's pod.
    pub pod: &'a Pod,
    /// The pod's addresses, as the runtime has them; the node's for a pod on its network.
    pub pod_ips: &'a [String],
    /// The node's addresses, primary first.
    pub host_ips: &'a [String],
    /// What pods may have of the node, by resource name.
    pub allocatable: &'a BTreeMap<String, Quantity>,
    /// The files that variables are read from; absent while the gate EnvFiles is off, which leaves such variables
    /// empty.
    pub files: Option<&'a BTreeMap<EnvFile, FileText>>,
    /// What the API server has.
    pub objects: &'a EnvObjects,
}

/// A file of variables: the volume's name and the path within it.
pub type EnvFile = (String, String);

/// What is known of a file of variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileText {
    /// Its content, and its path on the node.
    Content(String, String),
    /// Its volume is not mounted.
    NoVolume,
    /// There is no such file, or it cannot be read; the log says why.
    Unreadable,
}

/// Why a container's environment cannot be had: waiting reason CreateContainerConfigError.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvError {
    /// A field of the pod has no value.
    #[error("{0}")]
    Field(String),
    /// An amount of a resource has no value.
    #[error("{0}")]
    Resource(String),
    /// The volume of a file of variables is not there.
    #[error("cannot find the volume {0:?} referenced by FileKeyRef")]
    NoVolume(String),
    /// A file of variables cannot be read or makes no sense. What is in it is not for everybody to know.
    #[error("couldn't parse env file")]
    File,
    /// A file of variables does not have the variable.
    #[error("environment variable key {key:?} not found in file {file:?}")]
    NoKey {
        /// The variable.
        key: String,
        /// The file on the node.
        file: String,
    },
    /// A secret or a config map, or a key of it, cannot be had.
    #[error("{0}")]
    Object(String),
    /// A source that does not exist.
    #[error("environment variable {0:?} has a source that is not supported by this kubelet")]
    Unsupported(String),
}

/// The files that variables of a container are read from.
pub fn files(container: &Container) -> impl Iterator<Item = EnvFile> {
    let variables = container.env.iter().flatten();
    variables
        .filter_map(|variable| variable.value_from.as_ref()?.file_key_ref.as_ref())
        .map(|file| (file.volume_name.clone(), file.path.clone()))
}

/// A container's final environment: what whole objects give, then its variables in the order of declaration, then the
/// services. Each name is there once, with its last value; services give way.
///
/// A value may refer to variables declared before it, and to services. A variable without value and source is empty.
///
/// # Errors
/// [`EnvError`] for the first variable whose source has no value.
pub fn environment(
    container: &Container,
    sources: &EnvSources<'_>,
) -> Result<Vec<(String, String)>, EnvError> {
    let mut order: Vec<String> = Vec::new();
    let mut values: BTreeMap<String, String> = BTreeMap::new();
    let services = &sources.objects.services;
    for source in container.env_from.iter().flatten() {
        for (name, value) in objects::all_of(source, sources.objects)? {
            if values.insert(name.clone(), value).is_none() {
                order.push(name);
            }
        }
    }
    for variable in container.env.as_deref().unwrap_or_default() {
        let plain = variable.value.as_deref().unwrap_or_default();
        let value = match &variable.value_from {
            Some(source) if plain.is_empty() => match value_from(&variable.name, source, container, sources)?
            {
                Some(value) => value,
                None => continue,
            },
            _ => expand(plain, |name| values.get(name).or_else(|| services.get(name)).cloned()),
        };
        if values.insert(variable.name.clone(), value).is_none() {
            order.push(variable.name.clone());
        }
    }
    for (name, value) in services {
        if !values.contains_key(name) {
            values.insert(name.clone(), value.clone());
            order.push(name.clone());
        }
    }
    let with_values = order.into_iter().map(|name| {
        let value = values.remove(&name).unwrap_or_default();
        (name, value)
    });
    Ok(with_values.collect())
}

/// `None` for an optional variable that is not there.
fn value_from(
    name: &str,
    source: &EnvVarSource,
    container: &Container,
    sources: &EnvSources<'_>,
) -> Result<Option<String>, EnvError> {
    if let Some(field) = &source.field_ref {
        fields::field_value(field, sources).map(Some)
    } else if let Some(resource) = &source.resource_field_ref {
        resources::resource_value(resource, container, sources).map(Some)
    } else if let Some(file) = &source.file_key_ref {
        match sources.files {
            Some(files) => from_file(file, files),
            None => Ok(Some(String::new())),
        }
    } else if let Some(key) = &source.config_map_key_ref {
        objects::of_config_map(key, namespace(sources.pod), sources.objects)
    } else if let Some(key) = &source.secret_key_ref {
        objects::of_secret(key, namespace(sources.pod), sources.objects)
    } else {
        Err(EnvError::Unsupported(name.to_owned()))
    }
}

fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or_default()
}

/// A variable that is empty in its file counts as missing, as upstream has it.
fn from_file(
    selector: &FileKeySelector,
    files: &BTreeMap<EnvFile, FileText>,
) -> Result<Option<String>, EnvError> {
    let file = (selector.volume_name.clone(), selector.path.clone());
    match files.get(&file) {
        None | Some(FileText::NoVolume) => Err(EnvError::NoVolume(selector.volume_name.clone())),
        Some(FileText::Unreadable) => Err(EnvError::File),
        Some(FileText::Content(text, path)) => match file::value_in(text, &selector.key) {
            Err(_) => Err(EnvError::File),
            Ok(value) if !value.is_empty() => Ok(Some(value)),
            Ok(_) if selector.optional == Some(true) => Ok(None),
            Ok(_) => Err(EnvError::NoKey { key: selector.key.clone(), file: path.clone() }),
        },
    }
}

/// Expands a mount's `subPathExpr`; every variable in it must have a value.
///
/// # Errors
/// The names of those that have none, sorted, for people.
pub fn expand_sub_path(text: &str, environment: &[(String, String)]) -> Result<String, String> {
    let missing = std::cell::RefCell::new(std::collections::BTreeSet::new());
    let expanded = expand(text, |name| {
        let value = environment.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
        if value.as_ref().is_none_or(String::is_empty) {
            missing.borrow_mut().insert(name.to_owned());
        }
        value
    });
    let missing = missing.into_inner();
    if missing.is_empty() {
        return Ok(expanded);
    }
    let names: Vec<String> = missing.into_iter().collect();
    Err(format!("missing value for {}", names.join(", ")))
}

/// Expands each text with the container's final environment.
pub fn expand_all(texts: Option<&[String]>, environment: &[(String, String)]) -> Vec<String> {
    let lookup = |name: &str| environment.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    texts.unwrap_or_default().iter().map(|text| expand(text, lookup)).collect()
}

/// Replaces `$(NAME)` by the variable's value; `$$` is a literal dollar, so `$$(NAME)` stays `$(NAME)`. What is not
/// a reference, or refers to nothing known, stays as it is.
pub fn expand(text: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        rest = if let Some(tail) = after.strip_prefix('$') {
            out.push('$');
            tail
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match lookup(name) {
                Some(value) => out.push_str(&value),
                None => {
                    out.push_str("$(");
                    out.push_str(name);
                    out.push(')');
                }
            }
            tail
        } else {
            out.push('$');
            after
        };
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use k8s_openapi::api::core::v1::{EnvVar, ObjectFieldSelector};
    use proptest::prelude::*;

    use super::*;

    /// Calls `with` with the sources of a pod with two addresses on a node of 4 CPUs.
    pub fn with_sources(pod: &Pod, with: impl FnOnce(&EnvSources<'_>)) {
        let ips = |ips: [&str; 2]| ips.map(str::to_owned);
        let (pod_ips, host_ips) = (ips(["fd00::1", "10.0.0.1"]), ips(["192.0.2.1", "2001:db8::1"]));
        let amounts = [("cpu", "4"), ("memory", "8Gi"), ("ephemeral-storage", "100Gi")];
        let allocatable: BTreeMap<String, Quantity> =
            amounts.map(|(name, text)| (name.to_owned(), Quantity::parse(text).expect("a quantity"))).into();
        let files: BTreeMap<EnvFile, FileText> = [
            (("v", "vars"), FileText::Content("A='from file'\nEMPTY=''\n".into(), "/v/vars".into())),
            (("v", "bad"), FileText::Content("nonsense".into(), "/v/bad".into())),
            (("v", "gone"), FileText::Unreadable),
            (("w", "vars"), FileText::NoVolume),
        ]
        .map(|((volume, path), text)| ((volume.to_owned(), path.to_owned()), text))
        .into();
        with(&EnvSources {
            pod,
            pod_ips: &pod_ips,
            host_ips: &host_ips,
            allocatable: &allocatable,
            files: Some(&files),
            objects: &EnvObjects::default(),
        });
    }

    fn lookup(name: &str) -> Option<String> {
        match name {
            "A" => Some("1".into()),
            "B" => Some("$(A)".into()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    /// Results of upstream's expansion for the same inputs.
    #[test]
    fn references_are_expanded_as_upstream_does() {
        for (text, expected) in [
            ("$(A)", "1"),
            ("---$(A)---", "---1---"),
            ("$(B)", "$(A)"),
            ("$(EMPTY)x", "x"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$$$$(A)", "$$(A)"),
            ("$(MISSING)", "$(MISSING)"),
            ("$(A", "$(A"),
            ("$A", "$A"),
            ("$", "$"),
            ("$$", "$"),
            ("x$", "x$"),
            ("$(", "$("),
            ("$()", "$()"),
            ("$($(A))", "$($(A))"),
            ("$é", "$é"),
        ] {
            assert_eq!(expand(text, lookup), expected, "{text}");
        }
    }

    #[test]
    fn later_variables_see_earlier_ones_and_the_last_value_of_a_name_wins() {
        let variable = |name: &str, value: &str| EnvVar {
            name: name.into(),
            value: Some(value.into()),
            ..EnvVar::default()
        };
        let container = Container {
            env: Some(vec![
                variable("HOST", "db"),
                variable("URL", "http://$(HOST):$(PORT)"),
                variable("PORT", "80"),
                variable("HOST", "$(HOST)-2"),
                EnvVar { name: "NONE".into(), ..EnvVar::default() },
            ]),
            ..Container::default()
        };
        let expected = [("HOST", "db-2"), ("URL", "http://db:$(PORT)"), ("PORT", "80"), ("NONE", "")];
        let expected: Vec<(String, String)> =
            expected.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        with_sources(&Pod::default(), |sources| assert_eq!(environment(&container, sources), Ok(expected)));
    }

    fn from(name: &str, source: EnvVarSource) -> EnvVar {
        EnvVar { name: name.into(), value: None, value_from: Some(source) }
    }

    fn file(name: &str, (volume, path, key): (&str, &str, &str), optional: bool) -> EnvVar {
        let file_key_ref = Some(FileKeySelector {
            key: key.into(),
            optional: Some(optional),
            path: path.into(),
            volume_name: volume.into(),
        });
        from(name, EnvVarSource { file_key_ref, ..EnvVarSource::default() })
    }

    #[test]
    fn values_come_from_fields_and_files() {
        let field =
            ObjectFieldSelector { api_version: Some("v1".into()), field_path: "metadata.name".into() };
        let field = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
        let env = vec![
            from("POD", field),
            file("FILE", ("v", "vars", "A"), false),
            file("OPTIONAL", ("v", "vars", "NONE"), true),
            EnvVar { name: "BOTH".into(), value: Some("$(POD)-$(FILE)".into()), value_from: None },
        ];
        let container = Container { env: Some(env), ..Container::default() };
        assert_eq!(files(&container).count(), 2);
        let pod = crate::fixtures::pod("Always", vec![], vec![]);
        with_sources(&pod, |sources| {
            let expected = [("POD", "web"), ("FILE", "from file"), ("BOTH", "web-from file")];
            let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
            assert_eq!(environment(&container, sources), Ok(expected.to_vec()));
            // With the gate off nothing is read.
            let off = EnvSources { files: None, ..sources.clone() };
            let env = environment(&container, &off).expect("no file is missed");
            assert!(env.contains(&("FILE".into(), String::new())));
        });
    }

    #[test]
    fn what_has_no_value_says_so_in_upstreams_words() {
        with_sources(&Pod::default(), |sources| {
            let error = |variable: EnvVar| {
                let container = Container { env: Some(vec![variable]), ..Container::default() };
                environment(&container, sources).expect_err("no value").to_string()
            };
            for (place, optional, expected) in [
                (("v", "vars", "B"), false, "environment variable key \"B\" not found in file \"/v/vars\""),
                (
                    ("v", "vars", "EMPTY"),
                    false,
                    "environment variable key \"EMPTY\" not found in file \"/v/vars\"",
                ),
                (("v", "bad", "A"), true, "couldn't parse env file"),
                (("v", "gone", "A"), true, "couldn't parse env file"),
                (("w", "vars", "A"), true, "cannot find the volume \"w\" referenced by FileKeyRef"),
            ] {
                assert_eq!(error(file("X", place, optional)), expected);
            }
        });
    }

    #[test]
    fn a_sub_path_needs_every_variable() {
        let environment = [("A", "1"), ("EMPTY", "")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(expand_sub_path("x/$(A)/$$(B)", &environment), Ok("x/1/$(B)".into()));
        let error = expand_sub_path("$(C)/$(EMPTY)/$(B)/$(C)", &environment);
        assert_eq!(error, Err("missing value for B, C, EMPTY".into()));
    }

    proptest! {
        #[test]
        fn text_without_a_dollar_stays(text in "[^$]*") {
            prop_assert_eq!(expand(&text, lookup), text);
        }

        #[test]
        fn doubling_every_dollar_quotes_any_text(text in ".*") {
            prop_assert_eq!(expand(&text.replace('$', "$$"), lookup), text);
        }
    }
}
