//! Reads YAML text into a tree: the first document, with aliases and merge keys expanded within a budget, so that a
//! short text cannot grow to gigabytes.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, StrInput, Tag};

use crate::node::{Budget, DEPTH_MAX, Node, Number, TWICE_MAX, key_excerpt};
use crate::{Text, TextError, Twice};
use crate::{lenient, scalar};

/// The number up to which further documents are counted.
const DOCUMENTS_MAX: usize = 100;
/// Most bytes that are read again after repairs of one text: 160 repairs of a manifest of 100 KiB.
const READ_AGAIN_BYTES_MAX: usize = 16 << 20;
/// The most bytes of a text that was repaired.
const REPAIRED_BYTES_MAX: usize = 16 << 20;

/// Reads the first document and counts the later ones, which Kubernetes does not read either.
pub(crate) fn parse(text: &str) -> Result<Text, TextError> {
    let mut text = Cow::Borrowed(text);
    let mut left = READ_AGAIN_BYTES_MAX;
    loop {
        let mut builder = Builder::new(&text);
        let error = match builder.text() {
            Ok(text) => return Ok(text),
            Err(error) => error,
        };
        left = left.saturating_sub(text.len());
        let refused = builder.refused.filter(|_| left > 0);
        let repaired = refused.and_then(|refused| lenient::repaired(&text, &refused, REPAIRED_BYTES_MAX));
        let Some(repaired) = repaired else { return Err(error) };
        text = Cow::Owned(repaired);
    }
}

/// What a value costs.
#[derive(Clone, Copy)]
struct Cost {
    nodes: usize,
    bytes: usize,
    /// The levels of collections within each other; a scalar has none.
    depth: usize,
}

/// An anchored value, and the cost of repeating it.
struct Anchored {
    node: Node,
    cost: Cost,
}

/// A collection that is not complete yet.
struct Open {
    collection: Collection,
    anchor: usize,
    /// What was spent before it, and the depth of its deepest value so far.
    cost: Cost,
}

enum Collection {
    Sequence(Vec<Node>),
    Mapping { entries: Vec<(String, Node)>, seen: BTreeSet<String>, merged: Vec<Node>, key: Option<Key> },
}

enum Key {
    Text(String),
    /// The mapping has the key already, and the last value counts. The number is the field's index in the list of
    /// repeated fields.
    Again(String, usize),
    /// `<<`: the entries of its value become entries of this mapping.
    Merge,
}

struct Builder<'t> {
    parser: Parser<'t, StrInput<'t>>,
    end: usize,
    budget: Budget,
    anchors: BTreeMap<usize, Anchored>,
    open: Vec<Open>,
    line: usize,
    twice: Vec<Twice>,
    /// Where and why the parser gave up.
    refused: Option<ScanError>,
}

impl<'t> Builder<'t> {
    fn new(text: &'t str) -> Self {
        Self {
            parser: Parser::new_from_str(text),
            end: text.trim_end().chars().count(),
            budget: Budget::new(),
            anchors: BTreeMap::new(),
            open: Vec::new(),
            line: 1,
            twice: Vec::new(),
            refused: None,
        }
    }

    fn text(&mut self) -> Result<Text, TextError> {
        let document = self.document()?.unwrap_or(Node::Null);
        let twice = std::mem::take(&mut self.twice);
        let mut further = 0;
        while further < DOCUMENTS_MAX {
            match self.document() {
                Ok(Some(node)) if node.is_null() => {}
                Ok(Some(_)) => further += 1,
                Ok(None) => break,
                // What is not read need not be right; it is counted, since it is there.
                Err(_) => {
                    further += 1;
                    break;
                }
            }
        }
        Ok(Text { document, further, twice })
    }

    fn error(&self, reason: impl Into<String>) -> TextError {
        TextError { reason: format!("line {}: {}", self.line, reason.into()), unfinished: false }
    }

    fn too_deep(&self) -> TextError {
        self.error(format!("more than {DEPTH_MAX} levels deep"))
    }

    /// The next document, `None` at the end of the stream.
    fn document(&mut self) -> Result<Option<Node>, TextError> {
        self.open.clear();
        self.anchors.clear();
        loop {
            let (event, span) = match self.parser.next_event() {
                None => return Ok(None),
                Some(Ok(event)) => event,
                Some(Err(error)) => {
                    let marker = error.marker();
                    self.line = marker.line();
                    // An open quote is reported at its beginning, other errors where they are noticed.
                    let unfinished = marker.index() >= self.end || error.info().contains("end of stream");
                    let told = TextError { unfinished, ..self.error(error.info()) };
                    self.refused = Some(error);
                    return Err(told);
                }
            };
            self.line = span.start.line();
            if let Some(document) = self.event(event)? {
                return Ok(Some(document));
            }
        }
    }

    /// Takes one event; returns the document when it is complete.
    fn event(&mut self, event: Event<'_>) -> Result<Option<Node>, TextError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.budget.take(1, text.len()).map_err(|reason| self.error(reason))?;
                if self.take_key(&text, style)? {
                    return Ok(None);
                }
                let node = self.scalar(&text, style, tag.as_deref())?;
                self.remember(anchor, &node, Cost { nodes: 1, bytes: text.len(), depth: 0 })?;
                self.place(node, 0)
            }
            Event::Alias(anchor) => {
                let anchored = self
                    .anchors
                    .get(&anchor)
                    .ok_or_else(|| self.error("an alias stands inside the value that it names"))?;
                let Cost { nodes, bytes, depth } = anchored.cost;
                if self.open.len() + depth > DEPTH_MAX {
                    return Err(self.too_deep());
                }
                if self.budget.take(nodes, bytes).is_err() {
                    return Err(self.error("the aliases of this file expand beyond all bounds"));
                }
                let node = self.anchors[&anchor].node.clone();
                self.place(node, depth)
            }
            Event::SequenceStart(anchor, tag) => {
                self.open(Collection::Sequence(Vec::new()), anchor, tag.as_deref(), "seq")
            }
            Event::MappingStart(anchor, tag) => {
                let collection = Collection::Mapping {
                    entries: Vec::new(),
                    seen: BTreeSet::new(),
                    merged: Vec::new(),
                    key: None,
                };
                self.open(collection, anchor, tag.as_deref(), "map")
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(None),
        }
    }

    fn open(
        &mut self,
        collection: Collection,
        anchor: usize,
        tag: Option<&Tag>,
        expected: &str,
    ) -> Result<Option<Node>, TextError> {
        if let Some(Open { collection: Collection::Mapping { key: None, .. }, .. }) = self.open.last() {
            return Err(self.error("a key must be a string"));
        }
        if tag.is_some_and(|tag| !is_core(tag, expected)) {
            return Err(self.error("unknown tag"));
        }
        if self.open.len() >= DEPTH_MAX {
            return Err(self.too_deep());
        }
        let (nodes, bytes) = self.budget.spent();
        self.budget.take(1, 0).map_err(|reason| self.error(reason))?;
        self.open.push(Open { collection, anchor, cost: Cost { nodes, bytes, depth: 0 } });
        Ok(None)
    }

    fn close(&mut self) -> Result<Option<Node>, TextError> {
        let Some(Open { collection, anchor, cost }) = self.open.pop() else {
            return Err(self.error("a collection ends that never began"));
        };
        let node = match collection {
            Collection::Sequence(items) => Node::Sequence(items),
            Collection::Mapping { mut entries, mut seen, merged, .. } => {
                // Own entries win over merged ones, earlier merged ones over later ones.
                for (key, value) in merged.into_iter().flat_map(mapping_entries) {
                    if seen.insert(key.clone()) {
                        entries.push((key, value));
                    }
                }
                Node::Mapping(entries)
            }
        };
        let (nodes, bytes) = self.budget.spent();
        let depth = cost.depth + 1;
        self.remember(anchor, &node, Cost { nodes: nodes - cost.nodes, bytes: bytes - cost.bytes, depth })?;
        self.place(node, depth)
    }

    /// Keeps a copy of an anchored value, and pays for it: nested anchors would else multiply a file's size.
    fn remember(&mut self, anchor: usize, node: &Node, cost: Cost) -> Result<(), TextError> {
        if anchor == 0 {
            return Ok(());
        }
        self.budget.take(cost.nodes, cost.bytes).map_err(|reason| self.error(reason))?;
        self.anchors.insert(anchor, Anchored { node: node.clone(), cost });
        Ok(())
    }
    /// Takes a scalar as the key of the innermost mapping, if it awaits one.
    fn take_key(&mut self, text: &str, style: ScalarStyle) -> Result<bool, TextError> {
        let Some(Open { collection: Collection::Mapping { seen, key: key @ None, .. }, .. }) =
            self.open.last_mut()
        else {
            return Ok(false);
        };
        if text == "<<" && style == ScalarStyle::Plain {
            *key = Some(Key::Merge);
            return Ok(true);
        }
        if text.is_empty() && style == ScalarStyle::Plain {
            return Err(self.error("a key must be a string, not null"));
        }
        if seen.insert(text.to_owned()) {
            *key = Some(Key::Text(text.to_owned()));
            return Ok(true);
        }
        *key = Some(Key::Again(text.to_owned(), self.twice.len()));
        // The path is made for such a key only: keys may be as long as the text, and values as many.
        let path = self.path();
        if self.twice.len() == TWICE_MAX {
            return Err(self.error(format!("{path}: more than {TWICE_MAX} fields are given twice")));
        }
        self.twice.push(Twice { path, value: String::new() });
        Ok(true)
    }

    /// Puts a value where it belongs; gives it back when it is the whole document.
    fn place(&mut self, node: Node, depth: usize) -> Result<Option<Node>, TextError> {
        if let Some(Open { cost, .. }) = self.open.last_mut() {
            cost.depth = cost.depth.max(depth);
        }
        let line = self.line;
        let fail = |reason: &str| TextError { reason: format!("line {line}: {reason}"), unfinished: false };
        match self.open.last_mut().map(|open| &mut open.collection) {
            None => return Ok(Some(node)),
            Some(Collection::Sequence(items)) => items.push(node),
            Some(Collection::Mapping { entries, merged, key, .. }) => match key.take() {
                None => return Err(fail("a key must be a string")),
                Some(Key::Text(key)) => entries.push((key, node)),
                Some(Key::Again(key, number)) => {
                    if let Some(twice) = self.twice.get_mut(number) {
                        twice.value = node.excerpt();
                    }
                    entries.retain(|(known, _)| *known != key);
                    entries.push((key, node));
                }
                Some(Key::Merge) => match node {
                    Node::Mapping(_) => merged.push(node),
                    Node::Sequence(items) if items.iter().all(|item| matches!(item, Node::Mapping(_))) => {
                        merged.extend(items);
                    }
                    _ => return Err(fail("what is merged with << must be a mapping or a list of mappings")),
                },
            },
        }
        Ok(None)
    }

    /// The path of the value being read.
    fn path(&self) -> String {
        let mut path = String::new();
        for open in &self.open {
            match &open.collection {
                Collection::Sequence(items) => path.push_str(&format!("[{}]", items.len())),
                Collection::Mapping { key: Some(Key::Text(key) | Key::Again(key, _)), .. } => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(&key_excerpt(key));
                }
                Collection::Mapping { .. } => {}
            }
        }
        path
    }

    fn scalar(&self, text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Node, TextError> {
        let Some(tag) = tag else {
            return Ok(match style {
                ScalarStyle::Plain => scalar::resolve(text),
                _ => Node::String(text.to_owned()),
            });
        };
        let wrong = || self.error(format!("{:?} is no {}", key_excerpt(text), tag.suffix));
        if is_core(tag, "str") || (tag.handle.is_empty() && tag.suffix == "!") {
            return Ok(Node::String(text.to_owned()));
        }
        let resolved = scalar::resolve(text);
        match (tag.is_yaml_core_schema().then_some(tag.suffix.as_str()), resolved) {
            (Some("null"), node @ Node::Null)
            | (Some("bool"), node @ Node::Bool(..))
            | (Some("int"), node @ Node::Number(Number::Int(_) | Number::Unsigned(_)))
            | (Some("float"), node @ Node::Number(_)) => Ok(node),
            (Some("null" | "bool" | "int" | "float"), _) => Err(wrong()),
            _ => Err(self.error("unknown tag")),
        }
    }
}

fn is_core(tag: &Tag, name: &str) -> bool {
    tag.is_yaml_core_schema() && tag.suffix == name
}

fn mapping_entries(node: Node) -> Vec<(String, Node)> {
    match node {
        Node::Mapping(entries) => entries,
        _ => Vec::new(),
    }
}
