//! Reads JSON text into a tree, and reports repeated keys, which serde_json accepts silently.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};

use crate::node::{Budget, DEPTH_MAX, Node, Number, Path, TWICE_MAX};
use crate::{Text, TextError, Twice};

impl From<serde_json::Error> for TextError {
    fn from(error: serde_json::Error) -> Self {
        Self { reason: error.to_string(), unfinished: error.is_eof() }
    }
}

/// Reads exactly one JSON value.
pub(crate) fn parse(text: &str) -> Result<Text, TextError> {
    let (budget, twice) = (RefCell::new(Budget::new()), RefCell::default());
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let tree = Tree { budget: &budget, twice: &twice, path: Path::Root, depth: 0 };
    let document = tree.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(Text { document, further: 0, twice: twice.into_inner() })
}

/// The value of a repeated field in Go's decoder, which reads the second value into the first one, so that objects and
/// the items of lists are merged.
fn merged(first: Node, second: Node) -> Node {
    match (first, second) {
        (Node::Mapping(mut entries), Node::Mapping(further)) => {
            let places = further.iter().enumerate().map(|(place, (key, _))| (key.clone(), place));
            let places: BTreeMap<String, usize> = places.collect();
            let mut further: Vec<Option<(String, Node)>> = further.into_iter().map(Some).collect();
            for (key, known) in &mut entries {
                if let Some((_, value)) = places.get(key.as_str()).and_then(|place| further[*place].take()) {
                    *known = merged(std::mem::replace(known, Node::Null), value);
                }
            }
            entries.extend(further.into_iter().flatten());
            Node::Mapping(entries)
        }
        (Node::Sequence(first), Node::Sequence(second)) => {
            let mut first = first.into_iter();
            let merge = |item| match first.next() {
                Some(known) => merged(known, item),
                None => item,
            };
            Node::Sequence(second.into_iter().map(merge).collect())
        }
        (_, second) => second,
    }
}

struct Tree<'a> {
    budget: &'a RefCell<Budget>,
    twice: &'a RefCell<Vec<Twice>>,
    path: Path<'a>,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Tree<'_> {
    type Value = Node;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        self.budget.borrow_mut().take(1, 0).map_err(D::Error::custom)?;
        if self.depth > DEPTH_MAX {
            return Err(D::Error::custom(format!("more than {DEPTH_MAX} levels deep at {}", self.path)));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value, value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Number(Number::Int(value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Number(i64::try_from(value).map_or(Number::Unsigned(value), Number::Int)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Number(Number::Float(value, value.to_string())))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Node, E> {
        self.budget.borrow_mut().take(0, value.len()).map_err(E::custom)?;
        Ok(Node::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut sequence = Vec::new();
        loop {
            let path = Path::Index(&self.path, sequence.len());
            let seed = Tree { budget: self.budget, twice: self.twice, path, depth: self.depth + 1 };
            match items.next_element_seed(seed)? {
                Some(item) => sequence.push(item),
                None => return Ok(Node::Sequence(sequence)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut mapping: Vec<(String, Node)> = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            self.budget.borrow_mut().take(0, key.len()).map_err(A::Error::custom)?;
            let path = Path::Key(&self.path, &key);
            let seed = Tree { budget: self.budget, twice: self.twice, path, depth: self.depth + 1 };
            let value = entries.next_value_seed(seed)?;
            if seen.insert(key.clone()) {
                mapping.push((key, value));
                continue;
            }
            if self.twice.borrow().len() == TWICE_MAX {
                return Err(A::Error::custom(format!(
                    "{path}: more than {TWICE_MAX} fields are given twice"
                )));
            }
            self.twice.borrow_mut().push(Twice { path: path.to_string(), value: value.excerpt() });
            if let Some((_, known)) = mapping.iter_mut().find(|(known, _)| *known == key) {
                *known = merged(std::mem::replace(known, Node::Null), value);
            }
        }
        Ok(Node::Mapping(mapping))
    }
}
