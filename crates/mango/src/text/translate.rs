//! [`clause`]: what to ask a text index for, given a selector.
//!
//! It follows CouchDB, so that the same documents are found: a comparison finds values of the type of its argument only,
//! where a JSON index knows all types. Where CouchDB asks for less than matches (negations of what is tested later) or fails
//! (`$keyMapMatch`, lists and objects within lists), more is asked for.

use std::ops::Bound;

use settee_model::json::{Json, Kind, Value};

use super::clause::{Clause, Scalar};
use super::path::Path;
use crate::error::Refusal;
use crate::selector::Node;

/// The most members of a list that are looked for. With more, every value is tested.
const MAX_MEMBERS: usize = 1_024;

/// Translates a selector.
pub(crate) fn clause(node: &Node) -> Result<Clause, Refusal> {
    translate(node, &Path::default())
}

fn translate(node: &Node, path: &Path) -> Result<Clause, Refusal> {
    let each = |nodes: &[Node]| nodes.iter().map(|node| translate(node, path)).collect::<Result<Vec<_>, _>>();
    Ok(match node {
        Node::Everything => Clause::Exists(path.clone()),
        Node::And(nodes) => Clause::And(each(nodes)?),
        // An empty list is no condition.
        Node::Or(nodes) if nodes.is_empty() => Clause::And(Vec::new()),
        Node::Or(nodes) => Clause::Or(each(nodes)?),
        // Left only within arrays, whose other elements may match.
        Node::Nor(_) => Clause::Exists(path.clone()).loose(),
        Node::Not(node) => Clause::Except(path.clone(), Box::new(translate(node, path)?)),
        Node::Field(name, node) => below(node, &path.join(&Path::parse(name)?))?,
        Node::ElemMatch(node) | Node::AllMatch(node) => translate(node, &path.elements())?.loose(),
        Node::KeyMapMatch(_) => Clause::Exists(path.clone()).loose(),
        Node::Text(argument) => match argument.value().as_str() {
            Some(text) => Clause::Words(text.into_owned()),
            None => return Err(Refusal::InvalidTextOperator("$text")),
        },
        Node::Leaf(operator, argument) => leaf(operator.name, argument, path),
    })
}

/// A condition on a field. A position in an array may as well be the name of a member.
fn below(node: &Node, path: &Path) -> Result<Clause, Refusal> {
    Ok(match path.of_elements() {
        None => translate(node, path)?,
        Some(elements) => {
            let (named, counted) = (translate(node, path)?, translate(node, &elements)?);
            // Where an array is too short there is no value, and another element is no proof of one.
            if let Clause::Missing(_) = named {
                return Ok(Clause::Exists(Path::default()).loose());
            }
            Clause::Or(vec![named, counted]).loose()
        }
    })
}

fn leaf(operator: &str, argument: &Json, path: &Path) -> Clause {
    let value = argument.value();
    let between = |low, high| Clause::Between(path.clone(), low, high);
    let unbounded = || Bound::Unbounded;
    match (operator, scalar(value)) {
        ("$eq", _) => equal(value, path),
        ("$ne", _) => Clause::Except(path.clone(), Box::new(equal(value, path))),
        ("$lt", Some(value)) => between(unbounded(), Bound::Excluded(value)),
        ("$lte", Some(value)) => between(unbounded(), Bound::Included(value)),
        ("$gt", Some(value)) => between(Bound::Excluded(value), unbounded()),
        ("$gte", Some(value)) => between(Bound::Included(value), unbounded()),
        ("$in" | "$nin", _) if value.elements().nth(MAX_MEMBERS).is_some() => Clause::Exists(path.clone()).loose(),
        ("$in", _) => Clause::Or(value.elements().map(|member| member_of(member, path)).collect()),
        ("$nin", _) => {
            let members = value.elements().map(|member| member_of(member, path)).collect();
            Clause::Except(path.clone(), Box::new(Clause::Or(members)))
        }
        ("$exists", _) if value.as_bool() == Some(false) => Clause::Missing(path.clone()),
        ("$exists", _) => Clause::Exists(path.clone()),
        ("$mod", _) => Clause::HasNumber(path.clone()),
        ("$regex", _) => Clause::HasString(path.clone()),
        ("$beginsWith", Some(Scalar::String(prefix))) => Clause::Begins(path.clone(), prefix),
        ("$size", _) => Clause::Length(path.elements(), String::from_utf8_lossy(value.raw()).into_owned()),
        ("$all", _) => all(value, path).loose(),
        // A comparison with what has no order in an index, a type.
        _ => Clause::Exists(path.clone()).loose(),
    }
}

fn scalar(value: Value<'_>) -> Option<Scalar> {
    match value.kind() {
        Kind::Number => Some(Scalar::Number(value.as_f64()?, String::from_utf8_lossy(value.raw()).into_owned())),
        Kind::Bool => value.as_bool().map(Scalar::Boolean),
        Kind::String => value.as_str().map(|text| Scalar::String(text.into_owned())),
        Kind::Null | Kind::Array | Kind::Object => None,
    }
}

/// The value itself, by its parts if it has any.
fn equal(value: Value<'_>, path: &Path) -> Clause {
    if let Some(value) = scalar(value) {
        return Clause::Is(path.clone(), value);
    }
    let elements = path.elements();
    let parts: Vec<Clause> = match value.kind() {
        Kind::Array => {
            let length = Clause::Length(elements.clone(), value.elements().count().to_string());
            std::iter::once(length).chain(value.elements().map(|element| equal(element, &elements))).collect()
        }
        Kind::Object => {
            let member =
                |(name, value): (Value<'_>, Value<'_>)| equal(value, &path.member(&name.as_str().unwrap_or_default()));
            value.members().map(member).collect()
        }
        _ => return Clause::IsNull(path.clone()),
    };
    match parts.len() {
        0 => Clause::Exists(path.clone()).loose(),
        _ => Clause::And(parts).loose(),
    }
}

/// The value itself, or an array with it.
fn member_of(member: Value<'_>, path: &Path) -> Clause {
    let elements = path.elements();
    match member.kind() {
        // Of an object, CouchDB asks for any part.
        Kind::Object => Clause::Or(vec![equal(member, path), equal(member, &elements)]),
        Kind::Array => equal(member, &elements),
        _ => Clause::Or(vec![equal(member, path), equal(member, &elements)]),
    }
}

fn all(value: Value<'_>, path: &Path) -> Clause {
    let elements = path.elements();
    let members: Vec<Value<'_>> = value.elements().collect();
    match members[..] {
        [] => Clause::Or(Vec::new()),
        [only] if only.is_array() => Clause::Or(vec![equal(only, path), equal(only, &elements)]),
        _ => Clause::And(members.into_iter().map(|member| equal(member, &elements)).collect()),
    }
}
