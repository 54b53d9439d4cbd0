//! Validation errors in Kubernetes' form: `spec.containers[0].image: Required value`.

use std::fmt;

use pod_rules::errors::cut;

/// All errors of a pod have at most about so many bytes, and none is kept beyond that: its author chooses how many there are.
pub(super) const ERRORS_BYTES_MAX: usize = 32 << 20;
/// The most bytes that one error keeps of its path, of the value and of what would be right, each.
pub(super) const PART_BYTES_MAX: usize = 1024;

/// The kinds of errors of a field's value, in Kubernetes' words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorKind {
    /// The value refers to something that does not exist.
    NotFound,
    /// A value is missing.
    Required,
    /// The value must be unique and is not.
    Duplicate,
    /// The value is malformed.
    Invalid,
    /// The value is not one that the field may have.
    Unsupported,
    /// The value is well formed but not allowed here.
    Forbidden,
    /// The value is too long.
    TooLong,
    /// The list is too long.
    TooMany,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid => "Invalid value",
            Self::Unsupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
        })
    }
}

/// One error of a field, as Kubernetes' API reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The kind of the error.
    pub kind: ErrorKind,
    /// The field's path from the top of the Pod: `spec.containers[0].image`.
    pub field: String,
    /// The bad value as text (strings in quotes), where the kind has one.
    pub value: Option<String>,
    /// What would be right; may be empty.
    pub detail: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.kind)?;
        if let Some(value) = &self.value {
            write!(f, ": {value}")?;
        }
        if self.detail.is_empty() { Ok(()) } else { write!(f, ": {}", self.detail) }
    }
}

/// The path of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path(String);

impl Path {
    pub(super) fn new(root: &str) -> Self {
        Self(root.to_owned())
    }

    pub(super) fn child(&self, name: &str) -> Self {
        Self(format!("{}.{name}", self.0))
    }

    pub(super) fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    pub(super) fn key(&self, key: &str) -> Self {
        Self(format!("{}[{key}]", self.0))
    }
}

/// A value that an error can show.
pub(super) trait Shown {
    fn shown(&self) -> String;
}

impl Shown for str {
    fn shown(&self) -> String {
        format!("{self:?}")
    }
}

impl Shown for String {
    fn shown(&self) -> String {
        self.as_str().shown()
    }
}

macro_rules! shown_plainly {
    ($($type:ty),*) => {$(
        impl Shown for $type {
            fn shown(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

shown_plainly!(bool, i32, i64, usize);

impl Shown for Vec<String> {
    fn shown(&self) -> String {
        format!("[{}]", self.iter().map(|item| format!("{item:?}")).collect::<Vec<_>>().join(","))
    }
}

/// The errors found so far.
#[derive(Debug, Default)]
pub(super) struct Errors {
    found: Vec<FieldError>,
    /// What their texts have.
    bytes: usize,
}

impl Errors {
    pub(super) fn into_vec(self) -> Vec<FieldError> {
        self.found
    }

    pub(super) fn len(&self) -> usize {
        self.found.len()
    }

    fn push(&mut self, kind: ErrorKind, path: &Path, value: Option<String>, detail: impl Into<String>) {
        if self.bytes >= ERRORS_BYTES_MAX {
            return;
        }
        let (mut field, mut value, mut detail) = (path.0.clone(), value, detail.into());
        for part in [&mut field, &mut detail].into_iter().chain(&mut value) {
            cut(part, PART_BYTES_MAX);
            self.bytes += part.len();
        }
        self.found.push(FieldError { kind, field, value, detail });
    }

    pub(super) fn required(&mut self, path: &Path, detail: &str) {
        self.push(ErrorKind::Required, path, None, detail);
    }

    pub(super) fn invalid<V: Shown + ?Sized>(&mut self, path: &Path, value: &V, detail: impl Into<String>) {
        self.push(ErrorKind::Invalid, path, Some(value.shown()), detail);
    }

    /// Adds one error for each message.
    pub(super) fn all_invalid<V: Shown + ?Sized>(&mut self, path: &Path, value: &V, messages: Vec<String>) {
        for message in messages {
            self.invalid(path, value, message);
        }
    }

    pub(super) fn duplicate<V: Shown + ?Sized>(&mut self, path: &Path, value: &V) {
        self.push(ErrorKind::Duplicate, path, Some(value.shown()), "");
    }

    pub(super) fn not_found(&mut self, path: &Path, value: &str, detail: impl Into<String>) {
        self.push(ErrorKind::NotFound, path, Some(value.shown()), detail);
    }

    pub(super) fn forbidden(&mut self, path: &Path, detail: &str) {
        self.push(ErrorKind::Forbidden, path, None, detail);
    }

    pub(super) fn unsupported(&mut self, path: &Path, value: &str, supported: &[&str]) {
        let list = supported.iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(", ");
        self.push(ErrorKind::Unsupported, path, Some(value.shown()), format!("supported values: {list}"));
    }

    pub(super) fn too_long(&mut self, path: &Path, bytes_max: usize) {
        self.push(ErrorKind::TooLong, path, None, format!("may not be more than {bytes_max} bytes"));
    }

    pub(super) fn too_many(&mut self, path: &Path, count: usize, count_max: usize) {
        let detail = format!("must have at most {count_max} items");
        self.push(ErrorKind::TooMany, path, Some(count.shown()), detail);
    }

    /// Adds an error unless the value is one of those supported.
    pub(super) fn one_of(&mut self, path: &Path, value: &str, supported: &[&str]) {
        if !supported.contains(&value) {
            self.unsupported(path, value, supported);
        }
    }

    /// Adds an error unless the value is given and one of those supported.
    pub(super) fn required_one_of(&mut self, path: &Path, value: &str, supported: &[&str]) {
        if value.is_empty() {
            self.required(path, "");
        } else {
            self.one_of(path, value, supported);
        }
    }

    pub(super) fn not_negative(&mut self, path: &Path, value: i64) {
        if value < 0 {
            self.invalid(path, &value, "must be greater than or equal to 0");
        }
    }

    /// Adds an error if a required text is empty.
    pub(super) fn not_empty(&mut self, path: &Path, value: &str) {
        if value.is_empty() {
            self.required(path, "");
        }
    }
}

/// The text of an optional field; Kubernetes does not distinguish a missing text from an empty one.
pub(super) fn text(field: &Option<String>) -> &str {
    field.as_deref().unwrap_or_default()
}

/// The items of an optional list.
pub(super) fn items<T>(field: &Option<Vec<T>>) -> &[T] {
    field.as_deref().unwrap_or_default()
}
