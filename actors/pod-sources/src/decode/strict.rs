//! Turns a tree into a typed object, and tells which fields of the tree the type does not have.
//!
//! The API's types ignore fields that they do not have. But each of them tells its deserializer the names of its
//! fields, and asks in another way for maps with free keys (labels, limits). So this deserializer finds the ignored
//! fields at every depth, without a list of its own that could become outdated.

use std::cell::RefCell;
use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserializer, forward_to_deserialize_any};

use bridge_text::{Node, Number, Path};
use pod_spec::quantity::Quantity;

/// The error of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldProblem {
    /// The field's path from the top of the manifest, `spec.containers[0].image`.
    pub path: String,
    /// What is wrong, with the value.
    pub problem: String,
}

impl fmt::Display for FieldProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return f.write_str(&self.problem);
        }
        write!(f, "{}: {}", self.path, self.problem)
    }
}

/// The problem of a field that the type does not have.
pub(super) fn unknown_field(path: String, value: &Node) -> FieldProblem {
    FieldProblem { path, problem: format!("unknown field with the value {}", value.excerpt()) }
}

/// The problem of a field that is given more than once.
pub(super) fn given_twice(path: String) -> FieldProblem {
    FieldProblem { path, problem: "the field is given twice, and the last value counts".to_owned() }
}

/// Reads `node` as a `T`, and returns the fields that `T` does not have.
///
/// # Errors
/// The first value that does not fit, and the fields that `T` does not have.
pub(super) fn from_node<T: DeserializeOwned>(
    node: &Node,
) -> Result<(T, Vec<FieldProblem>), Vec<FieldProblem>> {
    let unknown = RefCell::new(Vec::new());
    let result = T::deserialize(At { node, path: Path::Root, unknown: &unknown });
    let mut problems = unknown.into_inner();
    match result {
        Ok(value) => Ok((value, problems)),
        Err(Misfit { path, problem }) => {
            problems.push(FieldProblem { path: path.unwrap_or_default(), problem });
            Err(problems)
        }
    }
}

/// A value that does not fit; the innermost deserializer that sees it adds the path.
#[derive(Debug)]
struct Misfit {
    path: Option<String>,
    problem: String,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl std::error::Error for Misfit {}

impl serde::de::Error for Misfit {
    fn custom<T: fmt::Display>(problem: T) -> Self {
        Self { path: None, problem: problem.to_string() }
    }
}

#[derive(Clone, Copy)]
struct At<'a> {
    node: &'a Node,
    path: Path<'a>,
    unknown: &'a RefCell<Vec<FieldProblem>>,
}

impl<'a> At<'a> {
    fn here<T>(&self, result: Result<T, Misfit>) -> Result<T, Misfit> {
        result.map_err(|misfit| Misfit {
            path: Some(misfit.path.unwrap_or_else(|| self.path.to_string())),
            problem: misfit.problem,
        })
    }

    fn wanted<T>(&self, what: &str) -> Result<T, Misfit> {
        let hint = match self.node {
            Node::Bool(..) | Node::Number(_) if what == "a string" => " (put it in quotes)",
            _ => "",
        };
        let problem = format!("wants {what}, not {}{hint}", self.node.excerpt());
        self.here(Err(Misfit { path: None, problem }))
    }

    fn integer<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        // A float without fraction is an integer: YAML writers turn 1000000 into 1e+06.
        const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
        let result = match self.node {
            Node::Null => visitor.visit_i64(0),
            Node::Number(Number::Int(value)) => visitor.visit_i64(*value),
            Node::Number(Number::Unsigned(value)) => visitor.visit_u64(*value),
            Node::Number(Number::Float(value, _)) if value.fract() == 0.0 && value.abs() < EXACT_MAX => {
                visitor.visit_i64(*value as i64)
            }
            _ => return self.wanted("an integer"),
        };
        self.here(result)
    }

    fn text<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        let result = match self.node {
            Node::Null => visitor.visit_str(""),
            Node::String(text) => visitor.visit_str(text),
            _ => return self.wanted("a string"),
        };
        self.here(result)
    }

    fn quantity<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        let text = match self.node {
            Node::Null => "0".to_owned(),
            Node::String(text) => text.clone(),
            Node::Number(number) => number.to_string(),
            _ => return self.wanted("a quantity"),
        };
        let result = match Quantity::parse(&text) {
            Ok(_) => visitor.visit_newtype_struct(StrDeserializer::new(&text)),
            Err(error) => Err(serde::de::Error::custom(error)),
        };
        self.here(result)
    }

    fn entries<'de, V: Visitor<'de>>(
        self,
        fields: Option<&'static [&'static str]>,
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        let entries: &[(String, Node)] = match self.node {
            Node::Null => &[],
            Node::Mapping(entries) => entries,
            _ => return self.wanted("a mapping"),
        };
        if let Some(fields) = fields {
            for (key, value) in entries.iter().filter(|(key, _)| !fields.contains(&key.as_str())) {
                let path = Path::Key(&self.path, key).to_string();
                self.unknown.borrow_mut().push(unknown_field(path, value));
            }
        }
        let result = visitor.visit_map(Entries { at: self, entries: entries.iter(), fields, value: None });
        self.here(result)
    }
}

impl<'de> Deserializer<'de> for At<'_> {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        let result = match self.node {
            Node::Null => visitor.visit_unit(),
            Node::Bool(value, _) => visitor.visit_bool(*value),
            Node::Number(Number::Int(value)) => visitor.visit_i64(*value),
            Node::Number(Number::Unsigned(value)) => visitor.visit_u64(*value),
            Node::Number(Number::Float(value, _)) => visitor.visit_f64(*value),
            Node::String(text) => visitor.visit_str(text),
            Node::Sequence(_) => return self.deserialize_seq(visitor),
            Node::Mapping(_) => return self.entries(None, visitor),
        };
        self.here(result)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.node {
            Node::Null => visitor.visit_bool(false),
            Node::Bool(value, _) => visitor.visit_bool(*value),
            _ => self.wanted("true or false"),
        }
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        self.integer(visitor)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        self.integer(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        self.text(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        self.text(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.node {
            Node::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        if name == "Quantity" {
            return self.quantity(visitor);
        }
        self.here(visitor.visit_newtype_struct(self))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        let items: &[Node] = match self.node {
            Node::Null => &[],
            Node::Sequence(items) => items,
            _ => return self.wanted("a list"),
        };
        let result = visitor.visit_seq(Items { at: self, items: items.iter(), index: 0 });
        self.here(result)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        self.entries(None, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        self.entries(Some(fields), visitor)
    }

    forward_to_deserialize_any! {
        i8 i16 u8 u16 u32 u64 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct enum identifier
        ignored_any
    }
}

struct Items<'a> {
    at: At<'a>,
    items: std::slice::Iter<'a, Node>,
    index: usize,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Misfit;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Misfit> {
        let Some(node) = self.items.next() else { return Ok(None) };
        let path = Path::Index(&self.at.path, self.index);
        self.index += 1;
        seed.deserialize(At { node, path, unknown: self.at.unknown }).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

struct Entries<'a> {
    at: At<'a>,
    entries: std::slice::Iter<'a, (String, Node)>,
    fields: Option<&'static [&'static str]>,
    value: Option<(&'a str, &'a Node)>,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Misfit;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Misfit> {
        for (key, node) in self.entries.by_ref() {
            if self.fields.is_some_and(|fields| !fields.contains(&key.as_str())) {
                continue;
            }
            self.value = Some((key, node));
            return seed.deserialize(StrDeserializer::new(key)).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Misfit> {
        let Some((key, node)) = self.value.take() else {
            return Err(serde::de::Error::invalid_type(Unexpected::Map, &"a value after each key"));
        };
        let path = Path::Key(&self.at.path, key);
        seed.deserialize(At { node, path, unknown: self.at.unknown })
    }
}
