//! [`Node`]: a selector in CouchDB's normal form. The three steps of the conversion are those of CouchDB 3.5, because
//! their effect is visible: `{"$not": {"a": 1}}` becomes `{"a": {"$ne": 1}}`, which does not match a document without
//! `a`.

use settee_model::collate::Collation;
use settee_model::json::{Json, Kind, Value, write_array, write_string};

use crate::error::Refusal;
use crate::limits::{MAX_CONDITIONS, MAX_DEPTH, MAX_EXPRESSIONS, MAX_NAME_BYTES};
use crate::operator::{self, EQ, Negation, Operator};

#[derive(Clone, Debug)]
pub(crate) enum Node {
    Everything,
    /// An empty list matches everything.
    And(Vec<Node>),
    /// An empty list matches everything as well.
    Or(Vec<Node>),
    /// In the normal form only within `$elemMatch` and similar operators.
    Nor(Vec<Node>),
    Not(Box<Node>),
    /// In the normal form the name is the whole path; an empty one is the value itself.
    Field(String, Box<Node>),
    ElemMatch(Box<Node>),
    AllMatch(Box<Node>),
    KeyMapMatch(Box<Node>),
    Text(Json),
    Leaf(&'static Operator, Json),
}

/// CouchDB names these operators of MongoDB when it rejects them.
const NOT_SUPPORTED: &[&str] = &["$where", "$geoWithin", "$geoIntersects", "$near", "$nearSphere"];

pub(super) fn normalise(selector: Value<'_>) -> Result<Node, Refusal> {
    if selector.members().next().is_none() {
        return Ok(Node::Everything);
    }
    // CouchDB validates first the operators with their arguments in the order of the selector, then the names.
    let first_error = || SelectorParser { validates: true, ..SelectorParser::default() }.condition(selector, 0).err();
    named(selector).map_err(|refusal| first_error().unwrap_or(refusal))
}

fn named(selector: Value<'_>) -> Result<Node, Refusal> {
    let node = SelectorParser::default().condition(selector, 0)?;
    let node = NamePropagation::default().push(node, "")?;
    match push_negations(node) {
        Node::Field(name, _) if name.is_empty() => Err(Refusal::MissingFieldName),
        node => Ok(node),
    }
}

#[derive(Default)]
pub(super) struct SelectorParser {
    pub(super) conditions: usize,
    expressions: usize,
    validates: bool,
}

impl SelectorParser {
    pub(super) fn condition(&mut self, value: Value<'_>, depth: usize) -> Result<Node, Refusal> {
        if depth > MAX_DEPTH {
            return Err(Refusal::TooDeep);
        }
        self.conditions += 1;
        if self.conditions > MAX_CONDITIONS {
            return Err(Refusal::TooManyConditions);
        }
        let mut members = value.members();
        match (members.next(), members.next()) {
            (None, _) => Ok(Node::Leaf(EQ, owned(value))),
            (Some((name, argument)), None) => self.member(name, argument, depth),
            (Some(_), Some(_)) => {
                let parts = value.members().map(|(name, argument)| self.member(name, argument, depth + 1));
                parts.collect::<Result<_, _>>().map(Node::And)
            }
        }
    }

    fn member(&mut self, name: Value<'_>, argument: Value<'_>, depth: usize) -> Result<Node, Refusal> {
        let name = name.as_str().unwrap_or_default();
        match name.as_ref() {
            "$and" => self.list("$and", argument, depth).map(Node::And),
            "$or" => self.list("$or", argument, depth).map(Node::Or),
            "$nor" => self.list("$nor", argument, depth).map(Node::Nor),
            "$not" => self.object("$not", argument, depth).map(Node::Not),
            "$elemMatch" => self.object("$elemMatch", argument, depth).map(Node::ElemMatch),
            "$allMatch" => self.object("$allMatch", argument, depth).map(Node::AllMatch),
            "$keyMapMatch" => self.object("$keyMapMatch", argument, depth).map(Node::KeyMapMatch),
            "$text" => match argument.kind() {
                Kind::String | Kind::Number | Kind::Bool => Ok(Node::Text(owned(argument))),
                Kind::Null | Kind::Array | Kind::Object => Err(bad_argument("$text", argument)),
            },
            // CouchDB's internal name for the field that `$text` searches.
            "$default" => Err(Refusal::BadField(crate::shown(argument))),
            name if NOT_SUPPORTED.contains(&name) => Err(Refusal::NotSupported(name.to_owned())),
            name if name.starts_with('$') => match operator::find(name) {
                Some(operator) => {
                    self.expressions += usize::from(operator.name == "$regex");
                    if self.expressions > MAX_EXPRESSIONS {
                        return Err(Refusal::TooManyExpressions);
                    }
                    if self.validates {
                        operator.test(argument, Collation::Unicode)?;
                    }
                    Ok(Node::Leaf(operator, owned(argument)))
                }
                None => Err(Refusal::InvalidOperator(name.to_owned())),
            },
            name => Ok(Node::Field(name.to_owned(), Box::new(self.condition(argument, depth + 1)?))),
        }
    }

    fn list(&mut self, operator: &'static str, argument: Value<'_>, depth: usize) -> Result<Vec<Node>, Refusal> {
        if !argument.is_array() {
            return Err(bad_argument(operator, argument));
        }
        argument.elements().map(|part| self.condition(part, depth + 1)).collect()
    }

    fn object(&mut self, operator: &'static str, argument: Value<'_>, depth: usize) -> Result<Box<Node>, Refusal> {
        if !argument.is_object() {
            return Err(bad_argument(operator, argument));
        }
        self.condition(argument, depth + 1).map(Box::new)
    }
}

fn bad_argument(operator: &'static str, argument: Value<'_>) -> Refusal {
    Refusal::BadArgument { operator, argument: crate::shown(argument) }
}

fn owned(value: Value<'_>) -> Json {
    Json::trusted(value.raw().to_vec())
}

/// Moves names down to the operators: `{"a": {"b": {"$gt": 1}}}` becomes `{"a.b": {"$gt": 1}}`. Each condition below a
/// long name contains a copy, so the copied bytes are limited.
#[derive(Default)]
struct NamePropagation {
    bytes: usize,
}

impl NamePropagation {
    fn push(&mut self, node: Node, path: &str) -> Result<Node, Refusal> {
        Ok(match node {
            Node::And(nodes) => Node::And(self.push_each(nodes, path)?),
            Node::Or(nodes) => Node::Or(self.push_each(nodes, path)?),
            Node::Nor(nodes) => Node::Nor(self.push_each(nodes, path)?),
            Node::Not(node) => Node::Not(self.push_own(*node, path)?),
            Node::ElemMatch(node) => {
                let node = Node::ElemMatch(self.push_own(*node, "")?);
                self.named(node, path)?
            }
            Node::AllMatch(node) => {
                let node = Node::AllMatch(self.push_own(*node, "")?);
                self.named(node, path)?
            }
            Node::KeyMapMatch(node) => {
                let node = Node::KeyMapMatch(self.push_own(*node, "")?);
                self.named(node, path)?
            }
            Node::Text(argument) if path.is_empty() => Node::Text(argument),
            Node::Text(argument) => return Err(Refusal::BadField(crate::shown(argument.value()))),
            Node::Leaf(..) | Node::Everything => self.named(node, path)?,
            Node::Field(name, node) if path.is_empty() => self.push(*node, &name)?,
            Node::Field(name, node) => {
                self.count(path.len() + name.len())?;
                self.push(*node, &format!("{path}.{name}"))?
            }
        })
    }

    fn push_each(&mut self, nodes: Vec<Node>, path: &str) -> Result<Vec<Node>, Refusal> {
        nodes.into_iter().map(|node| self.push(node, path)).collect()
    }

    fn push_own(&mut self, node: Node, path: &str) -> Result<Box<Node>, Refusal> {
        self.push(node, path).map(Box::new)
    }

    fn named(&mut self, node: Node, path: &str) -> Result<Node, Refusal> {
        self.count(path.len())?;
        Ok(Node::Field(path.to_owned(), Box::new(node)))
    }

    fn count(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.bytes += bytes;
        if self.bytes > MAX_NAME_BYTES { Err(Refusal::NamesTooLong) } else { Ok(()) }
    }
}

/// As in CouchDB, negations within `$elemMatch` and similar operators are not moved.
fn push_negations(node: Node) -> Node {
    match node {
        Node::Not(node) => negate(*node),
        Node::Nor(nodes) => Node::And(nodes.into_iter().map(negate).collect()),
        Node::And(nodes) => Node::And(nodes.into_iter().map(push_negations).collect()),
        Node::Or(nodes) => Node::Or(nodes.into_iter().map(push_negations).collect()),
        Node::Everything
        | Node::Field(..)
        | Node::ElemMatch(_)
        | Node::AllMatch(_)
        | Node::KeyMapMatch(_)
        | Node::Text(_)
        | Node::Leaf(..) => node,
    }
}

fn negate(node: Node) -> Node {
    match node {
        Node::Not(node) => push_negations(*node),
        Node::Nor(nodes) => Node::Or(nodes.into_iter().map(push_negations).collect()),
        Node::And(nodes) => Node::Or(nodes.into_iter().map(negate).collect()),
        Node::Or(nodes) => Node::And(nodes.into_iter().map(negate).collect()),
        Node::Field(name, node) => Node::Field(name, Box::new(negate(*node))),
        Node::Leaf(operator, argument) => negate_leaf(operator, argument),
        Node::Everything | Node::ElemMatch(_) | Node::AllMatch(_) | Node::KeyMapMatch(_) | Node::Text(_) => {
            Node::Not(Box::new(node))
        }
    }
}

fn negate_leaf(operator: &'static Operator, argument: Json) -> Node {
    match operator.negation {
        Negation::Operator(name) => match operator::find(name) {
            Some(opposite) => Node::Leaf(opposite, argument),
            None => Node::Not(Box::new(Node::Leaf(operator, argument))),
        },
        Negation::Argument => match argument.value().as_bool() {
            Some(true) => Node::Leaf(operator, Json::trusted(b"false".to_vec())),
            Some(false) => Node::Leaf(operator, Json::trusted(b"true".to_vec())),
            None => Node::Leaf(operator, argument),
        },
        Negation::Wrapped => Node::Not(Box::new(Node::Leaf(operator, argument))),
    }
}

impl Node {
    pub(crate) fn conjuncts(&self) -> Vec<&Node> {
        match self {
            Self::And(nodes) => nodes.iter().flat_map(Self::conjuncts).collect(),
            Self::Everything => Vec::new(),
            node => vec![node],
        }
    }

    pub(crate) fn has_text(&self) -> bool {
        match self {
            Self::Text(_) => true,
            Self::And(nodes) | Self::Or(nodes) | Self::Nor(nodes) => nodes.iter().any(Self::has_text),
            Self::Not(node)
            | Self::Field(_, node)
            | Self::ElemMatch(node)
            | Self::AllMatch(node)
            | Self::KeyMapMatch(node) => node.has_text(),
            Self::Everything | Self::Leaf(..) => false,
        }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let named = |out: &mut Vec<u8>, name: &str, node: &Node| {
            out.push(b'{');
            write_string(out, name);
            out.push(b':');
            node.write(out);
            out.push(b'}');
        };
        let list = |out: &mut Vec<u8>, name: &str, nodes: &[Node]| {
            out.push(b'{');
            write_string(out, name);
            out.push(b':');
            write_array(out, nodes, |out, node| node.write(out));
            out.push(b'}');
        };
        match self {
            Self::Everything => out.extend_from_slice(b"{}"),
            Self::And(nodes) => list(out, "$and", nodes),
            Self::Or(nodes) => list(out, "$or", nodes),
            Self::Nor(nodes) => list(out, "$nor", nodes),
            Self::Not(node) => named(out, "$not", node),
            Self::Field(name, node) => named(out, name, node),
            Self::ElemMatch(node) => named(out, "$elemMatch", node),
            Self::AllMatch(node) => named(out, "$allMatch", node),
            Self::KeyMapMatch(node) => named(out, "$keyMapMatch", node),
            Self::Text(argument) => {
                out.extend_from_slice(b"{\"$default\":{\"$text\":");
                out.extend_from_slice(argument.as_bytes());
                out.extend_from_slice(b"}}");
            }
            Self::Leaf(operator, argument) => {
                out.push(b'{');
                write_string(out, operator.name);
                out.push(b':');
                out.extend_from_slice(argument.as_bytes());
                out.push(b'}');
            }
        }
    }
}
