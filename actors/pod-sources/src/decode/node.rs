//! What a manifest's text says before anybody knows what it means: a tree that keeps numbers as they were written.

use std::fmt;

/// Deepest nesting that a manifest may have; a Pod needs about 20 levels.
pub(super) const DEPTH_MAX: usize = 64;
/// Most values that a manifest may have once its YAML aliases are written out.
pub(super) const NODES_MAX: usize = 200_000;
/// Most bytes of text that a manifest may have once its YAML aliases are written out.
pub(super) const TEXT_BYTES_MAX: usize = 16 << 20;

/// Most fields of a manifest that may be given again: each costs a search.
pub(super) const TWICE_MAX: usize = 100;

/// A value of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Null,
    /// A truth value and, for YAML, its text: `n` is false.
    Bool(bool, String),
    Number(Number),
    String(String),
    Sequence(Vec<Node>),
    /// Keys in the order of the file, each once.
    Mapping(Vec<(String, Node)>),
}

/// A number, and for YAML its text: a quantity must not pass through a float.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Number {
    Int(i64),
    Unsigned(u64),
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
    /// The value of a key, if this is a mapping that has it.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Mapping(entries) => entries.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// Whether the text held nothing but comments and blanks.
    pub(super) fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The value in a few words for an error message: short values as they are, long ones cut, trees by their size.
    pub(super) fn excerpt(&self) -> String {
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
                [(key, _), ..] => format!("a mapping of {} ({key}, ...)", entries.len()),
            },
        }
    }
}

/// Where in a manifest a value stands: `spec.containers[0].image`. The segments live on the stack of the walk.
#[derive(Clone, Copy)]
pub(super) enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(Path::Root, key) => f.write_str(key),
            Self::Key(parent, key) if key.contains('.') => write!(f, "{parent}[{key}]"),
            Self::Key(parent, key) => write!(f, "{parent}.{key}"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// What may still be built of one manifest.
#[derive(Debug)]
pub(super) struct Budget {
    nodes: usize,
    bytes: usize,
}

impl Budget {
    pub(super) fn new() -> Self {
        Self { nodes: NODES_MAX, bytes: TEXT_BYTES_MAX }
    }

    /// Values and bytes of text taken so far.
    pub(super) fn spent(&self) -> (usize, usize) {
        (NODES_MAX - self.nodes, TEXT_BYTES_MAX - self.bytes)
    }

    /// Takes values and bytes of text; `Err` names the limit that is exceeded.
    pub(super) fn take(&mut self, nodes: usize, bytes: usize) -> Result<(), String> {
        self.nodes = self.nodes.checked_sub(nodes).ok_or_else(|| format!("more than {NODES_MAX} values"))?;
        self.bytes = self
            .bytes
            .checked_sub(bytes)
            .ok_or_else(|| format!("more than {TEXT_BYTES_MAX} bytes of text"))?;
        Ok(())
    }
}
