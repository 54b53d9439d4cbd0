//! Decodes a manifest's bytes into Pods. A value of the wrong type is an error that names file, field and value.
//!
//! As upstream does: a field that a Pod does not have is ignored, and of a field that is given twice the last value
//! counts; but [`Decoded::ignored_fields`] names them, so that a misspelt field is noticed. JSON and YAML (1.1) are
//! both read, only the first document of a YAML stream counts (the others are reported in
//! [`Decoded::ignored_documents`]), and a manifest's `status` is dropped.

mod strict;

#[cfg(test)]
mod tests;

use bridge_text::Node;
use k8s_openapi::api::core::v1::Pod;
use messages::facts::REFUSAL_BYTES_MAX;
use pod_rules::errors::listed;
use pod_spec::nesting;

pub use strict::FieldProblem;

/// Largest manifest, in bytes: upstream's bound of 10 MiB.
pub const MANIFEST_BYTES_MAX: usize = 10 << 20;

/// The result of decoding a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The pods, as written: nothing is defaulted or validated. One, unless the manifest is a PodList.
    pub pods: Vec<Pod>,
    /// Fields that have no effect: unknown ones, and those that are given again.
    pub ignored_fields: Vec<FieldProblem>,
    /// The number of documents with content after the first one, which do not count. The caller should report them.
    pub ignored_documents: usize,
}

/// Why bytes are not a Pod manifest. `origin` is the file or URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// More bytes than [`MANIFEST_BYTES_MAX`].
    #[error("{origin}: the manifest has {bytes} bytes, at most {MANIFEST_BYTES_MAX} are read")]
    TooLarge {
        /// File or URL.
        origin: String,
        /// Its size in bytes.
        bytes: usize,
    },
    /// There are only blanks and comments: perhaps the file is about to be written.
    #[error("{origin}: the manifest is empty")]
    Empty {
        /// File or URL.
        origin: String,
    },
    /// The text breaks off: most likely the file is still being written.
    #[error("{origin}: the manifest is incomplete: {reason}")]
    Unfinished {
        /// File or URL.
        origin: String,
        /// Where the text breaks off.
        reason: String,
    },
    /// The bytes are neither JSON nor YAML, or exceed a limit of the parser.
    #[error("{origin}: the manifest cannot be parsed: {reason}")]
    Syntax {
        /// File or URL.
        origin: String,
        /// The parser's message, with the place.
        reason: String,
    },
    /// The manifest is for another kind of object.
    #[error("{origin}: {field}: wants {wanted}, found {found}")]
    WrongKind {
        /// File or URL.
        origin: String,
        /// `kind` or `apiVersion`.
        field: &'static str,
        /// The value that is expected.
        wanted: &'static str,
        /// The value found, or `nothing`.
        found: String,
    },
    /// Values that do not fit their fields. The list also has the fields that a Pod does not have.
    #[error("{origin}: {}", listed(String::new(), problems, REFUSAL_BYTES_MAX))]
    Fields {
        /// File or URL.
        origin: String,
        /// Each field with its path and value.
        problems: Vec<FieldProblem>,
    },
}

/// Reads the manifest of a single v1 Pod, as the files of the static-pod directory are.
pub fn decode_pod(origin: &str, bytes: &[u8]) -> Result<Decoded, DecodeError> {
    decode(origin, bytes, false)
}

/// Reads a v1 Pod or a v1 PodList, as manifest URLs serve them.
pub fn decode_pods(origin: &str, bytes: &[u8]) -> Result<Decoded, DecodeError> {
    decode(origin, bytes, true)
}

fn decode(origin: &str, bytes: &[u8], lists: bool) -> Result<Decoded, DecodeError> {
    let owned = || origin.to_owned();
    let Parsed { document, ignored_documents, twice } = parse(origin, bytes)?;
    if document.is_null() {
        return Err(DecodeError::Empty { origin: owned() });
    }
    let is_list = lists && matches!(document.get("kind"), Some(Node::String(kind)) if kind == "PodList");
    require(origin, &document, "apiVersion", "v1")?;
    require(origin, &document, "kind", if is_list { "PodList" } else { "Pod" })?;
    let fields = |problems| DecodeError::Fields { origin: owned(), problems };
    let (pods, unknown) = if is_list {
        list(document).map_err(fields)?
    } else {
        let (pod, unknown) = one(document).map_err(fields)?;
        (vec![pod], unknown)
    };
    let ignored_fields = twice.into_iter().chain(unknown).collect();
    Ok(Decoded { pods, ignored_fields, ignored_documents })
}

/// The parsed text of a manifest.
struct Parsed {
    document: Node,
    ignored_documents: usize,
    /// Fields that are given more than once.
    twice: Vec<FieldProblem>,
}

fn parse(origin: &str, bytes: &[u8]) -> Result<Parsed, DecodeError> {
    let owned = || origin.to_owned();
    if bytes.len() > MANIFEST_BYTES_MAX {
        return Err(DecodeError::TooLarge { origin: owned(), bytes: bytes.len() });
    }
    if bytes.contains(&0) {
        // A file system that allocated a file's blocks before its contents arrived shows zeros.
        let reason = "it holds zero bytes".to_owned();
        return Err(DecodeError::Unfinished { origin: owned(), reason });
    }
    let text = std::str::from_utf8(bytes).map_err(|error| match error.error_len() {
        None => DecodeError::Unfinished { origin: owned(), reason: "the last character is cut".to_owned() },
        Some(_) => DecodeError::Syntax {
            origin: owned(),
            reason: format!("byte {} is not UTF-8", error.valid_up_to()),
        },
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Err(DecodeError::Empty { origin: owned() });
    }
    match bridge_text::parse(text) {
        Ok(text) => Ok(Parsed {
            document: text.document,
            ignored_documents: text.further,
            twice: text.twice.into_iter().map(|twice| strict::given_twice(twice.path)).collect(),
        }),
        Err(error) if error.unfinished => {
            Err(DecodeError::Unfinished { origin: owned(), reason: error.reason })
        }
        Err(error) => Err(DecodeError::Syntax { origin: owned(), reason: error.reason }),
    }
}

fn require(
    origin: &str,
    document: &Node,
    field: &'static str,
    wanted: &'static str,
) -> Result<(), DecodeError> {
    match document.get(field) {
        Some(Node::String(found)) if found == wanted => Ok(()),
        found => Err(DecodeError::WrongKind {
            origin: origin.to_owned(),
            field,
            wanted,
            found: match (document, found) {
                (_, Some(found)) => found.excerpt(),
                (Node::Mapping(_), None) => "nothing".to_owned(),
                (other, None) => other.excerpt(),
            },
        }),
    }
}

/// The manifest without its `status`, which is no part of what its author wants.
fn without_status(mut document: Node) -> Node {
    if let Node::Mapping(entries) = &mut document {
        entries.retain(|(key, _)| key != "status");
    }
    document
}

/// A pod, and the fields that a Pod does not have.
fn one(document: Node) -> Result<(Pod, Vec<FieldProblem>), Vec<FieldProblem>> {
    let spec = document.get("spec");
    let volumes = match spec.and_then(|spec| spec.get("volumes")) {
        Some(Node::Sequence(volumes)) => volumes.len(),
        _ => 0,
    };
    let parts = [("spec", spec, volumes), ("metadata", document.get("metadata"), 0)];
    let excess = parts.into_iter().find_map(|(path, part, volumes)| {
        let problem = nesting::excess(part.map_or(0, nested), volumes)?;
        Some(FieldProblem { path: path.to_owned(), problem })
    });
    match excess {
        Some(problem) => Err(vec![problem]),
        None => strict::from_node(&without_status(document)),
    }
}

/// How many lists and mappings are nested in a value, itself among them.
fn nested(value: &Node) -> usize {
    match value {
        Node::Sequence(items) => 1 + items.iter().map(nested).sum::<usize>(),
        Node::Mapping(entries) => 1 + entries.iter().map(|(_, value)| nested(value)).sum::<usize>(),
        Node::Null | Node::Bool(..) | Node::Number(_) | Node::String(_) => 0,
    }
}

/// The pods of a PodList, whose items may leave out kind and apiVersion, and the fields that a Pod does not have.
fn list(document: Node) -> Result<(Vec<Pod>, Vec<FieldProblem>), Vec<FieldProblem>> {
    let Node::Mapping(entries) = document else { return Ok(Default::default()) };
    let (mut pods, mut unknown, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    for (key, value) in entries {
        match (key.as_str(), value) {
            ("apiVersion" | "kind" | "metadata", _) | ("items", Node::Null) => {}
            ("items", Node::Sequence(items)) => {
                for (index, item) in items.into_iter().enumerate() {
                    let below = |problem: FieldProblem| FieldProblem {
                        path: format!("items[{index}].{}", problem.path).trim_end_matches('.').to_owned(),
                        problem: problem.problem,
                    };
                    match one(item) {
                        Ok((pod, ignored)) => {
                            pods.push(pod);
                            unknown.extend(ignored.into_iter().map(below));
                        }
                        Err(wrong) => problems.extend(wrong.into_iter().map(below)),
                    }
                }
            }
            ("items", other) => problems
                .push(FieldProblem { path: key, problem: format!("wants a list, not {}", other.excerpt()) }),
            (_, other) => unknown.push(strict::unknown_field(key, &other)),
        }
    }
    if problems.is_empty() { Ok((pods, unknown)) } else { Err(problems) }
}
