//! The tree of a text before it is decoded; it keeps numbers as they were written.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value};

/// The deepest nesting of a text; a Pod needs about 20.
pub(crate) const DEPTH_MAX: usize = 64;
/// The most values of a text once its YAML aliases are expanded.
pub(crate) const NODES_MAX: usize = 200_000;
/// The most bytes of a text once its YAML aliases are expanded.
pub(crate) const TEXT_BYTES_MAX: usize = 16 << 20;

/// The most repeated fields that are reported: each one costs a search.
pub(crate) const TWICE_MAX: usize = 100;

/// A value of a text.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// The null value.
    Null,
    /// A truth value and, for YAML, its spelling: `n` is false.
    Bool(bool, String),
    /// A number.
    Number(Number),
    /// Text.
    String(String),
    /// A list.
    Sequence(Vec<Node>),
    /// A mapping: keys in the order of the text, each once.
    Mapping(Vec<(String, Node)>),
}

/// A number, and for YAML its spelling, since a quantity must not pass through a float.
#[derive(Clone, Debug, PartialEq)]
pub enum Number {
    /// An integer.
    Int(i64),
    /// An integer that fits only an unsigned type.
    Unsigned(u64),
    /// Any other number, with its spelling.
    Float(f64, String),
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(number) => write!(f, "{number}"),
            Self::Unsigned(number) => write!(f, "{number}"),
            Self::Float(_, text) => f.write_str(text),
        }
    }
}

impl Node {
    /// The value of a key; `None` if this is no mapping or lacks the key.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Mapping(entries) => entries.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// Whether the value is null: the text held nothing but comments and blanks.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The value as JSON; bools and numbers lose their spelling.
    ///
    /// # Errors
    /// A number that JSON does not have, named by its field.
    pub(crate) fn into_json(self) -> Result<Value, String> {
        self.json_at(&Path::Root)
    }

    fn json_at(self, path: &Path<'_>) -> Result<Value, String> {
        Ok(match self {
            Self::Null => Value::Null,
            Self::Bool(value, _) => Value::Bool(value),
            Self::Number(Number::Int(number)) => number.into(),
            Self::Number(Number::Unsigned(number)) => number.into(),
            Self::Number(Number::Float(number, text)) => serde_json::Number::from_f64(number)
                .map(Value::Number)
                .ok_or_else(|| format!("field \"{path}\": {text} is not a number in JSON"))?,
            Self::String(text) => Value::String(text),
            Self::Sequence(items) => {
                let items = items.into_iter().enumerate();
                let items = items.map(|(index, item)| item.json_at(&Path::Index(path, index)));
                Value::Array(items.collect::<Result<_, _>>()?)
            }
            Self::Mapping(entries) => {
                let mut object = Map::new();
                for (key, value) in entries {
                    let value = value.json_at(&Path::Key(path, &key))?;
                    object.insert(key, value);
                }
                Value::Object(object)
            }
        })
    }

    /// The value in short form for an error message: short values as they are, long ones cut, lists and mappings by
    /// their size.
    pub fn excerpt(&self) -> String {
        const CHARS_MAX: usize = 60;
        match self {
            Self::Null => "null".to_owned(),
            Self::Bool(value, text) if *text == value.to_string() => text.clone(),
            Self::Bool(value, text) => format!("{text}, which is YAML for {value},"),
            Self::Number(number) => number.to_string(),
            Self::String(text) if text.chars().count() > CHARS_MAX => {
                format!("{:?}...", text.chars().take(CHARS_MAX).collect::<String>())
            }
            Self::String(text) => format!("{text:?}"),
            Self::Sequence(items) => format!("a list of {}", items.len()),
            Self::Mapping(entries) => match entries.as_slice() {
                [] => "{}".to_owned(),
                [(key, _), ..] => format!("a mapping of {} ({}, ...)", entries.len(), key_excerpt(key)),
            },
        }
    }
}

/// A key as messages show it: cut if it is longer than any that Kubernetes takes, so that the path of a value stays short.
pub(crate) fn key_excerpt(key: &str) -> Cow<'_, str> {
    const CHARS_MAX: usize = 400;
    match key.char_indices().nth(CHARS_MAX) {
        None => Cow::Borrowed(key),
        Some((end, _)) => Cow::Owned(format!("{}...", &key[..end])),
    }
}

/// Where in a document a value stands: `spec.containers[0].image`. The segments live on the stack of the walk.
#[derive(Clone, Copy, Debug)]
pub enum Path<'a> {
    /// The document itself.
    Root,
    /// The value of a key of a mapping.
    Key(&'a Path<'a>, &'a str),
    /// An item of a list, from 0.
    Index(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(Path::Root, key) => f.write_str(&key_excerpt(key)),
            Self::Key(parent, key) if key.contains('.') => write!(f, "{parent}[{}]", key_excerpt(key)),
            Self::Key(parent, key) => write!(f, "{parent}.{}", key_excerpt(key)),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// The values and bytes that may still be built of one text.
#[derive(Debug)]
pub(crate) struct Budget {
    nodes: usize,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new() -> Self {
        Self { nodes: NODES_MAX, bytes: TEXT_BYTES_MAX }
    }

    /// The values and bytes taken so far.
    pub(crate) fn spent(&self) -> (usize, usize) {
        (NODES_MAX - self.nodes, TEXT_BYTES_MAX - self.bytes)
    }

    /// Takes values and bytes; `Err` names the limit that is exceeded.
    pub(crate) fn take(&mut self, nodes: usize, bytes: usize) -> Result<(), String> {
        self.nodes = self.nodes.checked_sub(nodes).ok_or_else(|| format!("more than {NODES_MAX} values"))?;
        self.bytes = self
            .bytes
            .checked_sub(bytes)
            .ok_or_else(|| format!("more than {TEXT_BYTES_MAX} bytes of text"))?;
        Ok(())
    }
}
