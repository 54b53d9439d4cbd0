//! PURE: decodes a CredentialProviderConfig. Unknown fields, fields that are set twice and values of another type are refused.

use std::path::Path;

use pod_rules::durations::GoDuration;
use serde_json::{Map, Value as Json};

use crate::config::error::{FieldError, shown};

const KIND: &str = "CredentialProviderConfig";
/// The versions of the kind; the last alone has tokens.
const VERSIONS: [&str; 3] =
    ["kubelet.config.k8s.io/v1alpha1", "kubelet.config.k8s.io/v1beta1", "kubelet.config.k8s.io/v1"];

/// A provider as its file has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its file and its place there, for errors.
    pub place: String,
    pub name: String,
    pub match_images: Vec<String>,
    pub default_cache: Option<GoDuration>,
    pub api_version: String,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    pub tokens: Option<Tokens>,
}

/// `tokenAttributes`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tokens {
    pub audience: String,
    pub cache: String,
    pub required: Option<bool>,
    pub required_keys: Vec<String>,
    pub optional_keys: Vec<String>,
}

/// An object whose fields are taken out one by one.
struct Fields<'a> {
    place: String,
    fields: Map<String, Json>,
    errors: &'a mut Vec<String>,
}

impl<'a> Fields<'a> {
    /// The object at this place; one without fields if the value is none.
    fn of(place: String, json: Json, errors: &'a mut Vec<String>) -> Self {
        let fields = match json {
            Json::Object(fields) => fields,
            Json::Null => Map::new(),
            other => {
                errors.push(wrong(&place, &other, "an object"));
                Map::new()
            }
        };
        Self { place, fields, errors }
    }

    fn take<T>(&mut self, name: &str, expected: &str, read: impl FnOnce(&Json) -> Option<T>) -> Option<T> {
        let json = self.fields.remove(name).filter(|json| !json.is_null())?;
        let read = read(&json);
        if read.is_none() {
            self.errors.push(wrong(&format!("{}.{name}", self.place), &json, expected));
        }
        read
    }

    fn text(&mut self, name: &str) -> String {
        self.take(name, "a string", |json| json.as_str().map(str::to_owned)).unwrap_or_default()
    }

    fn texts(&mut self, name: &str) -> Vec<String> {
        let text = |json: &Json| json.as_str().map(str::to_owned);
        let read = |json: &Json| -> Option<Vec<String>> { json.as_array()?.iter().map(text).collect() };
        self.take(name, "a list of strings", read).unwrap_or_default()
    }

    fn items(&mut self, name: &str) -> Vec<Json> {
        self.take(name, "a list of objects", |json| json.as_array().cloned()).unwrap_or_default()
    }

    /// Refuses the fields that are left.
    fn end(self) {
        for (name, value) in &self.fields {
            let error = FieldError::unknown(name, value);
            self.errors.push(format!("{}: {error}", self.place));
        }
    }
}

fn wrong(place: &str, json: &Json, expected: &str) -> String {
    // What is part of an environment or an argument may be a secret.
    if place.contains(".env") || place.ends_with(".args") {
        return format!("{place}: invalid value: expected {expected}");
    }
    format!("{place}: invalid value {}: expected {expected}", shown(json))
}

/// The providers of a file.
///
/// # Errors
/// All problems of the file, each with its place.
pub(super) fn entries(file: &Path, content: &[u8]) -> Result<Vec<Entry>, Vec<String>> {
    let of_file = |reason: String| vec![format!("{}: {reason}", file.display())];
    let text = std::str::from_utf8(content).map_err(|error| of_file(error.to_string()))?;
    let json = bridge_text::strict_value(text).map_err(of_file)?;
    let mut errors = Vec::new();
    let mut config = Fields::of(file.display().to_string(), json, &mut errors);
    let (kind, version) = (config.text("kind"), config.text("apiVersion"));
    if kind != KIND || !VERSIONS.contains(&&*version) {
        let versions = VERSIONS.join(", ");
        return Err(of_file(format!(
            "found kind {kind:?} and apiVersion {version:?}, expected {KIND:?} and one of {versions}"
        )));
    }
    let has_tokens = version == VERSIONS[2];
    let items = config.items("providers");
    config.end();
    let place = |number: usize| format!("{}: providers[{number}]", file.display());
    let entries = items
        .into_iter()
        .enumerate()
        .map(|(number, item)| entry(place(number), item, has_tokens, &mut errors))
        .collect();
    if errors.is_empty() { Ok(entries) } else { Err(errors) }
}

fn entry(place: String, json: Json, has_tokens: bool, errors: &mut Vec<String>) -> Entry {
    let mut fields = Fields::of(place.clone(), json, errors);
    let duration =
        |json: &Json| -> Option<GoDuration> { json.as_str().and_then(|text| GoDuration::parse(text).ok()) };
    let mut entry = Entry {
        name: fields.text("name"),
        match_images: fields.texts("matchImages"),
        default_cache: fields.take("defaultCacheDuration", "a duration such as \"12h\"", duration),
        api_version: fields.text("apiVersion"),
        args: fields.texts("args"),
        place: place.clone(),
        ..Entry::default()
    };
    let env = fields.items("env");
    let tokens = if has_tokens { fields.take("tokenAttributes", "an object", object) } else { None };
    fields.end();
    for (number, variable) in env.into_iter().enumerate() {
        let mut variable = Fields::of(format!("{place}.env[{number}]"), variable, errors);
        entry.env.push((variable.text("name"), variable.text("value")));
        // The value of an unknown field may be a secret.
        variable.fields.values_mut().for_each(|value| *value = Json::Null);
        variable.end();
    }
    entry.tokens = tokens.map(|json| {
        let mut fields = Fields::of(format!("{place}.tokenAttributes"), json, errors);
        let tokens = Tokens {
            audience: fields.text("serviceAccountTokenAudience"),
            cache: fields.text("cacheType"),
            required: fields.take("requireServiceAccount", "true or false", Json::as_bool),
            required_keys: fields.texts("requiredServiceAccountAnnotationKeys"),
            optional_keys: fields.texts("optionalServiceAccountAnnotationKeys"),
        };
        fields.end();
        tokens
    });
    entry
}

fn object(json: &Json) -> Option<Json> {
    json.is_object().then(|| json.clone())
}
