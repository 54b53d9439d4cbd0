//! Environment variables and `$(NAME)` references (rows 11.3 to 11.7).

mod fields;
pub mod file;
pub mod objects;
mod resources;
pub mod services;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, EnvVarSource, FileKeySelector, Pod};
use pod_spec::expansion::{Budget, CONTAINER_BYTES_MAX, TooLong, expand};
use pod_spec::quantity::Quantity;

use self::file::EnvVariables;
use self::objects::EnvObjects;

/// The most bytes that making one environment handles, those of variables that later ones replace among them: the author of a pod
/// may declare a name, or name an object, as often as a pod's size allows.
const WORK_BYTES_MAX: usize = 4 * CONTAINER_BYTES_MAX;
/// What each variable counts there beside its text.
const VARIABLE_WORK: usize = 64;
/// The most bytes of the name of a variable in a message: with a prefix it may be as long as the pod.
const SHOWN_NAME_BYTES: usize = 256;
/// The most bytes of a path within a volume, as the kernel has it.
const PATH_BYTES_MAX: usize = 4096;

/// The sources of values outside of the container's spec.
#[derive(Clone, Debug)]
pub struct EnvSources<'a> {
    /// The container's pod.
    pub pod: &'a Pod,
    /// The pod's addresses from the runtime; for a pod on the node's network the node's addresses.
    pub pod_ips: &'a [String],
    /// The node's addresses, primary first.
    pub host_ips: &'a [String],
    /// The node's allocatable amounts, by resource name.
    pub allocatable: &'a BTreeMap<String, Quantity>,
    /// The contents of the files of variables; `None` while the gate EnvFiles is off, which leaves such
    /// variables empty.
    pub files: Option<&'a BTreeMap<EnvFile, FileText>>,
    /// The objects that the API server has.
    pub objects: &'a EnvObjects,
}

/// A file of variables: the volume's name and the path within it.
pub type EnvFile = (String, String);

/// The result of reading a file of variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileText {
    /// What was wanted of the file, and its path on the node.
    Content(EnvVariables, String),
    /// The file's volume is not mounted.
    NoVolume,
    /// The file does not exist or cannot be read; the log has the cause.
    Unreadable,
}

/// Why a container's environment cannot be made: its waiting reason is CreateContainerConfigError.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvError {
    /// A field of the pod has no value; the text says why.
    #[error("{0}")]
    Field(String),
    /// An amount of a resource has no value; the text says why.
    #[error("{0}")]
    Resource(String),
    /// The volume of a file of variables is not mounted.
    #[error("cannot find the volume {0:?} referenced by FileKeyRef")]
    NoVolume(String),
    /// A file of variables cannot be read or parsed. The message does not quote the file, which may hold
    /// secrets.
    #[error("couldn't parse env file")]
    File,
    /// A file of variables does not have the wanted variable.
    #[error("environment variable key {key:?} not found in file {file:?}")]
    NoKey {
        /// The variable.
        key: String,
        /// The file on the node.
        file: String,
    },
    /// A secret, a config map, or a key of one cannot be had; the text says why.
    #[error("{0}")]
    Object(String),
    /// The environment is too long with this variable.
    #[error("container {container:?}: environment variable {variable:?}: {error}")]
    TooLong {
        /// The container.
        container: String,
        /// The variable.
        variable: String,
        /// The limit that is exceeded.
        error: TooLong,
    },
    /// Variables replace each other too often.
    #[error(
        "container {container:?}: environment variable {variable:?}: with all the variables that others replace, the \
         environment would have more than {WORK_BYTES_MAX} bytes"
    )]
    TooMuchWork {
        /// The container.
        container: String,
        /// The variable.
        variable: String,
    },
    /// The source of this variable is none that this kubelet supports.
    #[error("environment variable {0:?} has a source that is not supported by this kubelet")]
    Unsupported(String),
}

/// The files that the container's variables are read from, each with the variables that are wanted of it.
pub fn files(container: &Container) -> BTreeMap<EnvFile, BTreeSet<String>> {
    let mut files: BTreeMap<EnvFile, BTreeSet<String>> = BTreeMap::new();
    let variables = container.env.iter().flatten();
    for file in variables.filter_map(|variable| variable.value_from.as_ref()?.file_key_ref.as_ref()) {
        let wanted = files.entry((file.volume_name.clone(), file.path.clone())).or_default();
        wanted.insert(file.key.clone());
    }
    files
}

/// A container's final environment: the variables of whole objects (`envFrom`), then the container's own in
/// the order of declaration, then those of services. Each name occurs once, with its last value; a service's
/// variable does not replace another.
///
/// A value may refer to variables declared before it and to services. A variable without value and source is
/// empty.
///
/// # Errors
/// [`EnvError`] for the first variable whose source has no value.
pub fn environment(
    container: &Container,
    sources: &EnvSources<'_>,
) -> Result<Vec<(String, String)>, EnvError> {
    let mut made = Made {
        budget: Budget::of_container(),
        work: Budget::of(WORK_BYTES_MAX),
        order: Vec::new(),
        values: BTreeMap::new(),
    };
    let services = &sources.objects.services;
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        for (key, value) in objects::all_of(source, sources.objects)? {
            made.put(container, prefix, key, value)?;
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
            _ => {
                let lookup =
                    |name: &str| made.values.get(name).or_else(|| services.get(name)).map(String::as_str);
                // The variable's length is counted when `put` keeps it.
                expand(plain, lookup, &mut made.budget.clone())
                    .map_err(|error| too_long(container, &variable.name, error))?
            }
        };
        made.put(container, "", &variable.name, value.into())?;
    }
    for (name, value) in services {
        if !made.values.contains_key(name) {
            made.put(container, "", name, value.into())?;
        }
    }
    let Made { order, mut values, .. } = made;
    let with_values = order.into_iter().map(|name| {
        let value = values.remove(&name).unwrap_or_default();
        (name, value)
    });
    Ok(with_values.collect())
}

fn too_long(container: &Container, variable: &str, error: TooLong) -> EnvError {
    EnvError::TooLong { container: container.name.clone(), variable: shown(variable), error }
}

/// The name of a variable as messages have it.
fn shown(name: &str) -> String {
    match name.floor_char_boundary(SHOWN_NAME_BYTES) {
        at if at < name.len() => format!("{}...", &name[..at]),
        _ => name.to_owned(),
    }
}

/// An environment that is being made.
struct Made {
    budget: Budget,
    work: Budget,
    order: Vec<String>,
    values: BTreeMap<String, String>,
}

impl Made {
    /// Keeps a variable, whose name is built of two parts only when there is room for it.
    fn put(
        &mut self,
        container: &Container,
        prefix: &str,
        key: &str,
        value: Cow<'_, str>,
    ) -> Result<(), EnvError> {
        let bytes = prefix.len() + key.len() + value.len() + VARIABLE_WORK;
        self.work.take(bytes).map_err(|_| EnvError::TooMuchWork {
            container: container.name.clone(),
            variable: shown(&format!("{}{key}", shown(prefix))),
        })?;
        let name = format!("{prefix}{key}");
        if let Some(older) = self.values.get(&name) {
            self.budget.give_back(name.len() + older.len());
        } else {
            self.order.push(name.clone());
        }
        self.budget.take(name.len() + value.len()).map_err(|error| too_long(container, &name, error))?;
        self.values.insert(name, value.into_owned());
        Ok(())
    }
}

/// The value from a variable's source; `None` for an optional source that does not exist.
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

/// The value of a variable in a file. An empty one counts as missing, as upstream has it.
fn from_file(
    selector: &FileKeySelector,
    files: &BTreeMap<EnvFile, FileText>,
) -> Result<Option<String>, EnvError> {
    let file = (selector.volume_name.clone(), selector.path.clone());
    match files.get(&file) {
        None | Some(FileText::NoVolume) => Err(EnvError::NoVolume(selector.volume_name.clone())),
        Some(FileText::Unreadable) => Err(EnvError::File),
        Some(FileText::Content(variables, path)) => match variables.value(&selector.key) {
            Err(_) => Err(EnvError::File),
            Ok(value) if !value.is_empty() => Ok(Some(value.to_owned())),
            Ok(_) if selector.optional == Some(true) => Ok(None),
            Ok(_) => Err(EnvError::NoKey { key: selector.key.clone(), file: path.clone() }),
        },
    }
}

/// A container's final environment, by name.
#[derive(Clone, Debug)]
pub struct Variables<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Variables<'a> {
    /// The variables of this environment.
    pub fn new(environment: &'a [(String, String)]) -> Self {
        Self(environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect())
    }

    /// Expands a mount's `subPathExpr`; every variable in it must have a value.
    ///
    /// # Errors
    /// The sorted names of the variables without a value, for people; or that the path becomes too long.
    pub fn expand_sub_path(&self, text: &str) -> Result<String, String> {
        let missing = std::cell::RefCell::new(std::collections::BTreeSet::new());
        let lookup = |name: &str| {
            let value = self.0.get(name).copied();
            if value.is_none_or(str::is_empty) {
                missing.borrow_mut().insert(name.to_owned());
            }
            value
        };
        let expanded = expand(text, lookup, &mut Budget::of(PATH_BYTES_MAX));
        let missing = missing.into_inner();
        if missing.is_empty() {
            return expanded
                .map_err(|_| format!("subPathExpr: the path would have more than {PATH_BYTES_MAX} bytes"));
        }
        let names: Vec<String> = missing.into_iter().collect();
        Err(format!("missing value for {}", names.join(", ")))
    }

    /// Expands the references in each text.
    ///
    /// # Errors
    /// [`TooLong`] when the expanded texts exceed the budget.
    pub fn expand_all(&self, texts: Option<&[String]>, budget: &mut Budget) -> Result<Vec<String>, TooLong> {
        let texts = texts.unwrap_or_default().iter();
        texts.map(|text| expand(text, |name| self.0.get(name).copied(), budget)).collect()
    }

    /// The length that the environment leaves for command and arguments.
    ///
    /// # Errors
    /// [`TooLong`] when the environment alone is too long.
    pub fn left(&self) -> Result<Budget, TooLong> {
        let mut budget = Budget::of_container();
        self.0.iter().try_for_each(|(name, value)| budget.take(name.len() + value.len()))?;
        Ok(budget)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use k8s_openapi::api::core::v1::{EnvVar, ObjectFieldSelector};

    use super::*;

    /// Calls `with` with the sources of a pod with two addresses on a node of 4 CPUs.
    pub fn with_sources(pod: &Pod, with: impl FnOnce(&EnvSources<'_>)) {
        let ips = |ips: [&str; 2]| ips.map(str::to_owned);
        let (pod_ips, host_ips) = (ips(["fd00::1", "10.0.0.1"]), ips(["192.0.2.1", "2001:db8::1"]));
        let amounts = [("cpu", "4"), ("memory", "8Gi"), ("ephemeral-storage", "100Gi")];
        let allocatable: BTreeMap<String, Quantity> =
            amounts.map(|(name, text)| (name.to_owned(), Quantity::parse(text).expect("a quantity"))).into();
        let wanted = ["A", "B", "EMPTY"].map(str::to_owned).into();
        let content =
            |text: &str, path: &str| FileText::Content(EnvVariables::parse(text, &wanted), path.to_owned());
        let files: BTreeMap<EnvFile, FileText> = [
            (("v", "vars"), content("A='from file'\nEMPTY=''\n", "/v/vars")),
            (("v", "bad"), content("nonsense", "/v/bad")),
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
        let wanted = ["A", "NONE"].map(str::to_owned).into();
        assert_eq!(files(&container), BTreeMap::from([(("v".to_owned(), "vars".to_owned()), wanted)]));
        let pod = crate::fixtures::pod("Always", vec![], vec![]);
        with_sources(&pod, |sources| {
            let expected = [("POD", "web"), ("FILE", "from file"), ("BOTH", "web-from file")];
            let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
            assert_eq!(environment(&container, sources), Ok(expected.to_vec()));
            // With the gate off no file is read.
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
        let variables = Variables::new(&environment);
        assert_eq!(variables.expand_sub_path("x/$(A)/$$(B)"), Ok("x/1/$(B)".into()));
        let error = variables.expand_sub_path("$(C)/$(EMPTY)/$(B)/$(C)");
        assert_eq!(error, Err("missing value for B, C, EMPTY".into()));
        let long = [("V".to_owned(), "v".repeat(1024))];
        let of = |times| Variables::new(&long).expand_sub_path(&"$(V)".repeat(times));
        assert_eq!(of(4).map(|path| path.len()), Ok(4096), "as long as a path may be");
        assert_eq!(of(5), Err("subPathExpr: the path would have more than 4096 bytes".into()));
    }

    #[test]
    fn variables_that_double_end_at_the_bound_and_name_the_one_that_crossed_it() {
        let double = |n: u32| EnvVar {
            name: format!("V{n}"),
            value: Some(if n == 0 { "x".repeat(16) } else { format!("$(V{0})$(V{0})", n - 1) }),
            ..EnvVar::default()
        };
        let bomb =
            Container { name: "c".into(), env: Some((0..35).map(double).collect()), ..Container::default() };
        let many = Container { env: Some((0..18).map(double).collect()), ..bomb.clone() };
        // A name that is declared again counts once.
        let again = EnvVar { name: "A".into(), value: Some("y".repeat(1 << 20)), ..EnvVar::default() };
        let anew = Container { env: Some(vec![again; 20]), ..bomb.clone() };
        with_sources(&Pod::default(), |sources| {
            let error = environment(&bomb, sources).expect_err("512 GiB").to_string();
            let expected = "container \"c\": environment variable \"V18\": environment, command and arguments \
                            would have more than 8388608 bytes";
            assert_eq!(error, expected);
            assert_eq!(environment(&many, sources).expect("4 MiB").len(), 18);
            assert_eq!(environment(&anew, sources).expect("1 MiB").len(), 1);
        });
    }

    #[test]
    fn what_replaces_itself_for_ever_or_has_an_endless_name_ends_at_a_bound() {
        let keys: BTreeMap<String, String> = (0..30_000).map(|n| (format!("K{n}"), String::new())).collect();
        let map = serde_json::json!({"metadata": {}, "data": keys});
        let map = std::sync::Arc::new(serde_json::from_value(map).expect("a config map"));
        let objects =
            EnvObjects { config_maps: BTreeMap::from([("m".to_owned(), Ok(map))]), ..EnvObjects::default() };
        let source = |prefix: usize| {
            let source = serde_json::json!({"prefix": "p".repeat(prefix), "configMapRef": {"name": "m"}});
            serde_json::from_value(source).expect("a source")
        };
        let from =
            |sources: Vec<_>| Container { name: "c".into(), env_from: Some(sources), ..Container::default() };
        with_sources(&Pod::default(), |sources| {
            let sources = EnvSources { objects: &objects, ..sources.clone() };
            assert_eq!(environment(&from(vec![source(1); 10]), &sources).expect("ten times").len(), 30_000);
            let error = environment(&from(vec![source(1); 2_000]), &sources).expect_err("sixty millions");
            assert!(error.to_string().contains("would have more than 33554432 bytes"), "{error}");
            let error = environment(&from(vec![source(400_000)]), &sources).expect_err("12 GB");
            assert!(error.to_string().contains("would have more than 8388608 bytes"), "{error}");
            assert!(error.to_string().len() < 1_000, "{error}");
        });
    }
}
