//! YAML as a tree of bounded depth and size.

use saphyr_parser::{Event, Parser};

use crate::import::ImportError;
use crate::import::rule::FileLine;

/// A YAML value, and its line.
#[derive(Debug)]
pub(super) struct YamlNode {
    pub(super) line: FileLine,
    content: Content,
}

#[derive(Debug)]
enum Content {
    None,
    Text(String),
    List(Vec<YamlNode>),
    Map(Vec<(String, YamlNode)>),
}

/// The value of a missing key.
const NONE: &YamlNode = &YamlNode { line: FileLine { file: 0, number: 0 }, content: Content::None };

impl YamlNode {
    /// The value of a key in a map. It is `NONE` if the key is missing or this node is not a map.
    pub(super) fn get(&self, name: &str) -> &YamlNode {
        self.entries().iter().find(|(key, _)| key == name).map_or(NONE, |(_, node)| node)
    }

    pub(super) fn is_none(&self) -> bool {
        matches!(self.content, Content::None)
    }

    /// The objects of a Kubernetes list, and the node itself, which may be a single object.
    pub(super) fn objects(&self) -> impl Iterator<Item = &YamlNode> {
        self.get("items").items().iter().chain([self])
    }

    pub(super) fn text(&self) -> &str {
        if let Content::Text(text) = &self.content { text } else { "" }
    }

    pub(super) fn items(&self) -> &[YamlNode] {
        if let Content::List(items) = &self.content { items } else { &[] }
    }

    pub(super) fn entries(&self) -> &[(String, YamlNode)] {
        if let Content::Map(entries) = &self.content { entries } else { &[] }
    }
}

/// The maximum depth of nesting. Kubernetes objects have about ten levels.
const DEPTH_MAX: usize = 64;

const NODES_MAX: usize = 200_000;

/// A list or map that is still being read, and the key whose value comes next.
type OpenNode = (YamlNode, Option<String>);

/// Reads all documents in a text that begins after the line `above`. References to anchors are refused, so that no text
/// can expand when it is read.
pub(super) fn documents(text: &str, above: FileLine) -> Result<Vec<YamlNode>, ImportError> {
    let fault = |line: usize, reason: &str| ImportError::Syntax { line, reason: reason.to_owned() };
    let (mut done, mut open, mut nodes): (Vec<YamlNode>, Vec<OpenNode>, usize) = Default::default();
    for event in Parser::new_from_str(text) {
        let (event, span) =
            event.map_err(|error| fault(above.number + error.marker().line(), error.info()))?;
        let line = FileLine { number: above.number + span.start.line(), ..above };
        let begin = |content| (YamlNode { line, content }, None);
        let whole = match event {
            Event::Alias(_) => {
                return Err(fault(line.number, "this is a reference to an anchor: write the value itself"));
            }
            Event::Scalar(text, ..) => Some(YamlNode { line, content: Content::Text(text.into_owned()) }),
            Event::SequenceStart(..) => {
                open.push(begin(Content::List(Vec::new())));
                None
            }
            Event::MappingStart(..) => {
                open.push(begin(Content::Map(Vec::new())));
                None
            }
            Event::SequenceEnd | Event::MappingEnd => open.pop().map(|(node, _)| node),
            _ => None,
        };
        nodes += 1;
        if open.len() > DEPTH_MAX || nodes > NODES_MAX {
            return Err(fault(line.number, "the YAML is too deeply nested or too long"));
        }
        if let Some(node) = whole {
            add(node, &mut open, &mut done);
        }
    }
    Ok(done)
}

/// Calls `read` for each document, and for each document in those files of a ConfigMap that contain the text `held`.
pub(super) fn each_document(
    all: &[YamlNode],
    held: &str,
    read: &mut dyn FnMut(&YamlNode) -> Result<(), ImportError>,
) -> Result<(), ImportError> {
    for document in all {
        read(document)?;
        let is_map = |object: &&YamlNode| object.get("kind").text() == "ConfigMap";
        let inner = document.objects().filter(is_map).flat_map(|map| map.get("data").entries());
        for (_, file) in inner.filter(|(_, file)| file.text().contains(held)) {
            let above = FileLine { number: file.line.number - 1, ..file.line };
            documents(file.text(), above)?.iter().try_for_each(&mut *read)?;
        }
    }
    Ok(())
}

/// Adds a complete node to the innermost open list or map, or to the documents if none is open.
fn add(node: YamlNode, open: &mut [OpenNode], done: &mut Vec<YamlNode>) {
    match open.last_mut() {
        None => done.push(node),
        Some((YamlNode { content: Content::List(items), .. }, _)) => items.push(node),
        Some((YamlNode { content: Content::Map(entries), .. }, key)) => match key.take() {
            Some(key) => entries.push((key, node)),
            None => *key = Some(node.text().to_owned()),
        },
        Some(_) => unreachable!("a scalar is never open"),
    }
}
