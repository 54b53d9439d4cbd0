//! A request after parsing: a verb on an object.

use std::collections::BTreeMap;

use http::{Method, Request};
use serde_json::Value;

use super::refusal::Refusal;
use super::resources::{self, Resource};

/// The verbs, as RBAC and audit logs name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads all selected objects.
    List,
    /// Streams changes.
    Watch,
    /// Creates an object, or posts to a subresource.
    Create,
    /// Replaces an object.
    Update,
    /// Changes an object.
    Patch,
    /// Deletes an object.
    Delete,
}

impl Verb {
    /// The verb in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

/// The type of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatchKind {
    Merge,
    Strategic,
}

#[derive(Clone, Debug)]
pub(super) struct Call {
    pub verb: Verb,
    pub resource: &'static Resource,
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub subresource: Option<String>,
    pub query: BTreeMap<String, String>,
    pub patch: PatchKind,
    pub body: Value,
}

impl Call {
    pub fn of(verb: Verb, resource: &'static Resource, namespace: Option<&str>, name: Option<&str>) -> Self {
        Self {
            verb,
            resource,
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            subresource: None,
            query: BTreeMap::new(),
            patch: PatchKind::Merge,
            body: Value::Null,
        }
    }

    /// The kind and subresource: `pods`, or `pods/status`.
    pub fn target(&self) -> String {
        match &self.subresource {
            Some(subresource) => format!("{}/{subresource}", self.resource.plural),
            None => self.resource.plural.to_owned(),
        }
    }

    /// Parses a request; `bytes` is its body.
    pub fn read<B>(request: &Request<B>, bytes: &[u8]) -> Result<Self, Refusal> {
        let path: Vec<String> =
            request.uri().path().split('/').filter(|part| !part.is_empty()).map(unescaped).collect();
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let (group, version, rest) = match path.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Err(Refusal::unknown_path()),
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() && !is_own(rest) => {
                (Some(*namespace), rest)
            }
            rest => (None, rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, None, None),
            [plural, name] => (*plural, Some(*name), None),
            [plural, name, subresource] => (*plural, Some(*name), Some(*subresource)),
            _ => return Err(Refusal::unknown_path()),
        };
        let resource = resources::find(group, version, plural).ok_or_else(Refusal::unknown_path)?;
        let query = query(request.uri().query().unwrap_or_default());
        let watch = query.get("watch").is_some_and(|watch| watch == "true" || watch == "1");
        let mut call = Self::of(verb(request.method(), name.is_some(), watch)?, resource, namespace, name);
        call.subresource = subresource.map(str::to_owned);
        call.query = query;
        if call.verb == Verb::Patch {
            let content = request.headers().get(http::header::CONTENT_TYPE);
            call.patch = match content.and_then(|value| value.to_str().ok()).unwrap_or_default() {
                "application/merge-patch+json" => PatchKind::Merge,
                "application/strategic-merge-patch+json" => PatchKind::Strategic,
                other => {
                    let message = format!("the body of the request was in an unknown format: {other:?}");
                    return Err(Refusal::new(415, "UnsupportedMediaType", message));
                }
            };
        }
        if !bytes.is_empty() {
            let read = serde_json::from_slice(bytes);
            call.body = read.map_err(|error| Refusal::bad_request(format!("body: {error}")))?;
        }
        Ok(call)
    }
}

/// Whether the path is about the namespace itself, such as `/api/v1/namespaces/NAME/status`.
fn is_own(rest: &[&str]) -> bool {
    matches!(rest, ["status" | "finalize"])
}

fn verb(method: &Method, named: bool, watch: bool) -> Result<Verb, Refusal> {
    Ok(match (method.as_str(), named) {
        ("GET", false) if watch => Verb::Watch,
        ("GET", false) => Verb::List,
        ("GET", true) => Verb::Get,
        ("POST", _) => Verb::Create,
        ("PUT", true) => Verb::Update,
        ("PATCH", true) => Verb::Patch,
        ("DELETE", true) => Verb::Delete,
        _ => return Err(Refusal::not_allowed()),
    })
}

/// A part of a path, percent-decoded.
fn unescaped(part: &str) -> String {
    percent_encoding::percent_decode_str(part).decode_utf8_lossy().into_owned()
}

fn query(text: &str) -> BTreeMap<String, String> {
    form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}
