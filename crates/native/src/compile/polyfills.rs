//! Polyfills: statements such as `Object.keys = Object.keys || function …`. The environment of the workers has these
//! members, and no function of the subset changes it, so the statements have no effect.

use oxc_ast::ast::{
    AssignmentExpression, AssignmentOperator, AssignmentTarget, BinaryOperator, Expression as Node, LogicalOperator,
    UnaryOperator,
};

use super::Compiler;
use super::environment::type_of;

impl Compiler {
    /// True if the expression would only define an existing member of the environment.
    pub(super) fn is_polyfill(&self, node: &Node<'_>) -> bool {
        match node.without_parentheses() {
            Node::AssignmentExpression(assignment) => self.assigns_itself(assignment),
            Node::LogicalExpression(logical) => match (logical.operator, self.truth(&logical.left)) {
                (LogicalOperator::Or, Some(true)) | (LogicalOperator::And, Some(false)) => true,
                (_, Some(_)) => self.is_polyfill(&logical.right),
                _ => false,
            },
            _ => false,
        }
    }

    fn assigns_itself(&self, assignment: &AssignmentExpression<'_>) -> bool {
        let target = match &assignment.left {
            AssignmentTarget::StaticMemberExpression(member) => {
                let Some(object) = self.path(&member.object) else { return false };
                format!("{object}.{}", member.property.name)
            }
            AssignmentTarget::AssignmentTargetIdentifier(name) if self.look_up(&name.name).is_none() => {
                name.name.to_string()
            }
            _ => return false,
        };
        if type_of(&target, self.environment).is_none() {
            return false;
        }
        match assignment.operator {
            AssignmentOperator::Assign => self.result(&assignment.right).is_some_and(|path| path == target),
            AssignmentOperator::LogicalOr | AssignmentOperator::LogicalNullish => true,
            _ => false,
        }
    }

    fn result(&self, node: &Node<'_>) -> Option<String> {
        match node.without_parentheses() {
            Node::LogicalExpression(logical) => match (logical.operator, self.truth(&logical.left)?) {
                (LogicalOperator::Or | LogicalOperator::Coalesce, true) | (LogicalOperator::And, false) => {
                    self.result(&logical.left)
                }
                (LogicalOperator::Coalesce, false) => None,
                _ => self.result(&logical.right),
            },
            Node::ConditionalExpression(parts) => {
                self.result(if self.truth(&parts.test)? { &parts.consequent } else { &parts.alternate })
            }
            node => self.path(node),
        }
    }

    fn path(&self, node: &Node<'_>) -> Option<String> {
        let path = match node.without_parentheses() {
            Node::Identifier(name) if self.look_up(&name.name).is_none() => name.name.to_string(),
            Node::StaticMemberExpression(member) if !member.optional => {
                format!("{}.{}", self.path(&member.object)?, member.property.name)
            }
            _ => return None,
        };
        type_of(&path, self.environment).map(|_| path)
    }

    /// Returns the result of a test for the existence of a member of the environment; `None` for all other expressions.
    pub(super) fn truth(&self, node: &Node<'_>) -> Option<bool> {
        match node.without_parentheses() {
            Node::UnaryExpression(unary) if unary.operator == UnaryOperator::LogicalNot => {
                self.truth(&unary.argument).map(|truth| !truth)
            }
            Node::LogicalExpression(logical) => match (logical.operator, self.truth(&logical.left)?) {
                (LogicalOperator::Or, true) => Some(true),
                (LogicalOperator::And, false) => Some(false),
                (LogicalOperator::Coalesce, _) => None,
                _ => self.truth(&logical.right),
            },
            Node::BinaryExpression(binary) => {
                let equal =
                    self.equal(&binary.left, &binary.right).or_else(|| self.equal(&binary.right, &binary.left))?;
                match binary.operator {
                    BinaryOperator::Equality | BinaryOperator::StrictEquality => Some(equal),
                    BinaryOperator::Inequality | BinaryOperator::StrictInequality => Some(!equal),
                    _ => None,
                }
            }
            node => self.path(node).map(|_| true),
        }
    }

    fn equal(&self, member: &Node<'_>, constant: &Node<'_>) -> Option<bool> {
        match (member.without_parentheses(), constant.without_parentheses()) {
            (Node::UnaryExpression(unary), Node::StringLiteral(text)) if unary.operator == UnaryOperator::Typeof => {
                let path = self.path(&unary.argument)?;
                Some(type_of(&path, self.environment)? == text.value.as_str())
            }
            (member, Node::NullLiteral(_)) => self.path(member).map(|_| false),
            (member, Node::Identifier(name)) if name.name == "undefined" && self.look_up("undefined").is_none() => {
                self.path(member).map(|_| false)
            }
            _ => None,
        }
    }
}
