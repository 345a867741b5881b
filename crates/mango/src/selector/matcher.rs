//! [`Matcher`]: a compiled selector.

use settee_model::collate::Collation;
use settee_model::json::{Kind, Value};

use super::normal::Node;
use crate::error::Refusal;
use crate::field::{FieldPath, Found};
use crate::operator::Test;

pub(super) enum Matcher {
    Always,
    All(Vec<Matcher>),
    Any(Vec<Matcher>),
    Not(Box<Matcher>),
    Field {
        path: FieldPath,
        condition: Box<Matcher>,
        /// Result for an absent field: true only for `{"$exists": false}` directly on the field.
        absent: bool,
    },
    SomeElement(Box<Matcher>),
    EachElement(Box<Matcher>),
    SomeName(Box<Matcher>),
    Value(Box<dyn Test>),
}

impl Matcher {
    /// Stores the first field name that is not a path in `wrong_name`, because errors of operators have priority.
    pub(super) fn compile(node: &Node, wrong_name: &mut Option<Refusal>) -> Result<Self, Refusal> {
        compile(node, Collation::Unicode, wrong_name)
    }

    pub(super) fn never() -> Self {
        Self::Not(Box::new(Self::Always))
    }

    pub(super) fn matches(&self, value: Value<'_>) -> bool {
        match self {
            Self::Always => true,
            Self::All(matchers) => matchers.iter().all(|matcher| matcher.matches(value)),
            Self::Any(matchers) => matchers.is_empty() || matchers.iter().any(|matcher| matcher.matches(value)),
            Self::Not(matcher) => !matcher.matches(value),
            Self::Field { path, condition, absent } => match path.find(value) {
                Found::Value(value) => condition.matches(value),
                Found::Missing => *absent,
                Found::NoPath => false,
            },
            Self::SomeElement(matcher) => value.elements().any(|element| matcher.matches(element)),
            Self::EachElement(matcher) => {
                value.elements().next().is_some() && value.elements().all(|element| matcher.matches(element))
            }
            Self::SomeName(matcher) => {
                value.kind() == Kind::Object && value.members().any(|(name, _)| matcher.matches(name))
            }
            Self::Value(test) => test.matches(value),
        }
    }
}

fn compile(node: &Node, collation: Collation, wrong_name: &mut Option<Refusal>) -> Result<Matcher, Refusal> {
    let mut each =
        |nodes: &[Node]| nodes.iter().map(|node| compile(node, collation, wrong_name)).collect::<Result<Vec<_>, _>>();
    Ok(match node {
        // Only a text index can decide; its hits are trusted. Without one, the planner rejects the query.
        Node::Everything | Node::Text(_) => Matcher::Always,
        Node::And(nodes) => Matcher::All(each(nodes)?),
        Node::Or(nodes) => Matcher::Any(each(nodes)?),
        Node::Nor(nodes) => {
            let none = each(nodes)?.into_iter().map(|matcher| Matcher::Not(Box::new(matcher)));
            Matcher::All(none.collect())
        }
        // The search has already excluded these documents.
        Node::Not(node) if matches!(**node, Node::Text(_)) => Matcher::Always,
        Node::Not(node) => Matcher::Not(Box::new(compile(node, collation, wrong_name)?)),
        Node::Field(name, node) => {
            let collation = if name == "_id" { Collation::Raw } else { collation };
            let absent = matches!(&**node, Node::Leaf(operator, argument)
                if operator.name == "$exists" && argument.value().as_bool() == Some(false));
            let path = FieldPath::parse(name).unwrap_or_else(|wrong| {
                wrong_name.get_or_insert(wrong);
                FieldPath::default()
            });
            let condition = Box::new(compile(node, collation, wrong_name)?);
            Matcher::Field { path, condition, absent }
        }
        Node::ElemMatch(node) => Matcher::SomeElement(Box::new(compile(node, collation, wrong_name)?)),
        Node::AllMatch(node) => Matcher::EachElement(Box::new(compile(node, collation, wrong_name)?)),
        Node::KeyMapMatch(node) => Matcher::SomeName(Box::new(compile(node, collation, wrong_name)?)),
        Node::Leaf(operator, argument) => Matcher::Value(operator.test(argument.value(), collation)?),
    })
}
