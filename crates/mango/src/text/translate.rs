//! [`clause`] translates a selector to a query of a text index as CouchDB does: a comparison finds values of the type
//! of its argument only. Where CouchDB's query finds too few documents or fails (`$keyMapMatch`, lists and objects
//! within lists), this query finds more.

use std::ops::Bound;

use settee_model::json::{Json, Kind, Value};

use super::clause::{Clause, Scalar};
use super::path::Path;
use crate::error::Refusal;
use crate::selector::Node;

/// With more members, every value is tested.
const MAX_MEMBERS: usize = 1_024;

/// The largest permitted `$in` occurs twice. Further conditions are only tested.
const MAX_CLAUSES: usize = 4 * MAX_MEMBERS;

/// Longer paths come from values, which may be nested more deeply than queries.
const MAX_PATH: usize = 100;

/// In all paths of a clause. Each condition contains the whole path to its value.
const MAX_NAMES: usize = 64 << 10;

pub(crate) fn clause(node: &Node) -> Result<Clause, Refusal> {
    Translation { clauses: 0, names: 0 }.translate(node, &Path::default())
}

/// Counts the output, because a position in an array doubles the conditions below it.
struct Translation {
    clauses: usize,
    names: usize,
}

impl Translation {
    fn admits(&mut self, path: &Path) -> bool {
        self.clauses += 1;
        self.names += path.len();
        self.clauses <= MAX_CLAUSES && self.names <= MAX_NAMES && path.len() <= MAX_PATH
    }

    fn translate(&mut self, node: &Node, path: &Path) -> Result<Clause, Refusal> {
        if !self.admits(path) {
            return Ok(anything());
        }
        Ok(match node {
            Node::Everything => Clause::Exists(path.clone()),
            Node::And(nodes) => Clause::And(self.each(nodes, path)?),
            Node::Or(nodes) if nodes.is_empty() => Clause::And(Vec::new()),
            Node::Or(nodes) => Clause::Or(self.each(nodes, path)?),
            // Remains only within arrays, whose other elements may match.
            Node::Nor(_) => Clause::Exists(path.clone()).approximate(),
            Node::Not(node) => Clause::Except(path.clone(), Box::new(self.translate(node, path)?)),
            Node::Field(name, node) => self.translate_path(node, &path.join(&Path::parse(name)?))?,
            Node::ElemMatch(node) | Node::AllMatch(node) => self.translate(node, &path.elements())?.approximate(),
            Node::KeyMapMatch(_) => Clause::Exists(path.clone()).approximate(),
            Node::Text(argument) => match argument.value().as_str() {
                Some(text) => Clause::Words(text.into_owned()),
                None => return Err(Refusal::InvalidTextOperator("$text")),
            },
            Node::Leaf(operator, argument) => self.leaf(operator.name, argument, path),
        })
    }

    fn each(&mut self, nodes: &[Node], path: &Path) -> Result<Vec<Clause>, Refusal> {
        nodes.iter().map(|node| self.translate(node, path)).collect()
    }

    /// A position in an array may also be the name of a member.
    fn translate_path(&mut self, node: &Node, path: &Path) -> Result<Clause, Refusal> {
        Ok(match path.of_elements() {
            None => self.translate(node, path)?,
            Some(elements) => {
                let (named, counted) = (self.translate(node, path)?, self.translate(node, &elements)?);
                // If the array is too short the value is absent, and other elements prove nothing.
                if let Clause::Missing(_) = named {
                    return Ok(anything());
                }
                Clause::Or(vec![named, counted]).approximate()
            }
        })
    }

    fn leaf(&mut self, operator: &str, argument: &Json, path: &Path) -> Clause {
        let value = argument.value();
        let between = |low, high| Clause::Between(path.clone(), low, high);
        let unbounded = || Bound::Unbounded;
        match (operator, scalar(value)) {
            ("$eq", _) => self.equal(value, path),
            ("$ne", _) => Clause::Except(path.clone(), Box::new(self.equal(value, path))),
            ("$lt", Some(value)) => between(unbounded(), Bound::Excluded(value)),
            ("$lte", Some(value)) => between(unbounded(), Bound::Included(value)),
            ("$gt", Some(value)) => between(Bound::Excluded(value), unbounded()),
            ("$gte", Some(value)) => between(Bound::Included(value), unbounded()),
            ("$in" | "$nin", _) if value.elements().nth(MAX_MEMBERS).is_some() => {
                Clause::Exists(path.clone()).approximate()
            }
            ("$in", _) => Clause::Or(value.elements().map(|member| self.member_of(member, path)).collect()),
            ("$nin", _) => {
                let members = value.elements().map(|member| self.member_of(member, path)).collect();
                Clause::Except(path.clone(), Box::new(Clause::Or(members)))
            }
            ("$exists", _) if value.as_bool() == Some(false) => Clause::Missing(path.clone()),
            ("$exists", _) => Clause::Exists(path.clone()),
            ("$mod", _) => Clause::HasNumber(path.clone()),
            ("$regex", _) => Clause::HasString(path.clone()),
            ("$beginsWith", Some(Scalar::String(prefix))) => Clause::Begins(path.clone(), prefix),
            ("$size", _) => Clause::Length(path.elements(), String::from_utf8_lossy(value.raw()).into_owned()),
            ("$all", _) => self.all(value, path).approximate(),
            // The value has no order in an index, or the condition tests a type.
            _ => Clause::Exists(path.clone()).approximate(),
        }
    }

    fn equal(&mut self, value: Value<'_>, path: &Path) -> Clause {
        if !self.admits(path) {
            return anything();
        }
        if let Some(value) = scalar(value) {
            return Clause::Is(path.clone(), value);
        }
        let elements = path.elements();
        let parts: Vec<Clause> = match value.kind() {
            Kind::Array => {
                let length = Clause::Length(elements.clone(), value.elements().count().to_string());
                std::iter::once(length).chain(value.elements().map(|element| self.equal(element, &elements))).collect()
            }
            Kind::Object => {
                let translate_path = |name: Value<'_>| path.member(&name.as_str().unwrap_or_default());
                value.members().map(|(name, value)| self.equal(value, &translate_path(name))).collect()
            }
            _ => return Clause::IsNull(path.clone()),
        };
        match parts.len() {
            0 => Clause::Exists(path.clone()).approximate(),
            _ => Clause::And(parts).approximate(),
        }
    }

    fn member_of(&mut self, member: Value<'_>, path: &Path) -> Clause {
        let elements = path.elements();
        match member.kind() {
            // For an object, CouchDB requires any part.
            Kind::Object => Clause::Or(vec![self.equal(member, path), self.equal(member, &elements)]),
            Kind::Array => self.equal(member, &elements),
            _ => Clause::Or(vec![self.equal(member, path), self.equal(member, &elements)]),
        }
    }

    fn all(&mut self, value: Value<'_>, path: &Path) -> Clause {
        let elements = path.elements();
        let members: Vec<Value<'_>> = value.elements().collect();
        match members[..] {
            [] => Clause::Or(Vec::new()),
            [only] if only.is_array() => Clause::Or(vec![self.equal(only, path), self.equal(only, &elements)]),
            _ => Clause::And(members.into_iter().map(|member| self.equal(member, &elements)).collect()),
        }
    }
}

fn anything() -> Clause {
    Clause::Exists(Path::default()).approximate()
}

fn scalar(value: Value<'_>) -> Option<Scalar> {
    match value.kind() {
        Kind::Number => Some(Scalar::Number(value.as_f64()?, String::from_utf8_lossy(value.raw()).into_owned())),
        Kind::Bool => value.as_bool().map(Scalar::Boolean),
        Kind::String => value.as_str().map(|text| Scalar::String(text.into_owned())),
        Kind::Null | Kind::Array | Kind::Object => None,
    }
}
