//! Calls: of functions of the environment, of methods, and of functions of the source.

use oxc_ast::ast::{self, Expression as Node};

use super::{Compiler, Refused, Result, is_function, refuse};
use crate::Environment;
use crate::tree::{Builtin, Callee, Expression, Math, Method, Target, Visit, Visitor};
use crate::uri::Scope;

fn function(name: &str, environment: Environment) -> Option<Builtin> {
    Some(match name {
        "emit" if environment == Environment::View => Builtin::Emit,
        "index" if environment == Environment::Nouveau => Builtin::IndexTyped,
        "index" if environment == Environment::Clouseau => Builtin::IndexNamed,
        "log" => Builtin::Log,
        "sum" => Builtin::Sum,
        "toJSON" => Builtin::Stringify,
        "isArray" => Builtin::IsArray,
        "parseInt" => Builtin::ParseInt,
        "parseFloat" => Builtin::ParseFloat,
        "isNaN" => Builtin::IsNaN,
        "isFinite" => Builtin::IsFinite,
        "String" => Builtin::ToString,
        "Number" => Builtin::ToNumber,
        "Boolean" => Builtin::ToBoolean,
        "Date" => Builtin::DateText,
        "encodeURI" => Builtin::EncodeUri(Scope::Whole),
        "encodeURIComponent" => Builtin::EncodeUri(Scope::Component),
        "decodeURI" => Builtin::DecodeUri(Scope::Whole),
        "decodeURIComponent" => Builtin::DecodeUri(Scope::Component),
        _ => return None,
    })
}

fn member(object: &str, name: &str) -> Option<Builtin> {
    Some(match (object, name) {
        ("Array", "isArray") => Builtin::IsArray,
        ("Object", "keys") => Builtin::Keys,
        ("Object", "values") => Builtin::Values,
        ("Object", "entries") => Builtin::Entries,
        ("JSON", "stringify") => Builtin::Stringify,
        ("Date", "now") => Builtin::DateNow,
        ("Date", "parse") => Builtin::DateParse,
        ("Date", "UTC") => Builtin::DateUtc,
        ("String", "fromCharCode") => Builtin::FromCharCode,
        ("String", "fromCodePoint") => Builtin::FromCodePoint,
        ("Number", "isNaN") => Builtin::NumberIsNaN,
        ("Number", "isFinite") => Builtin::NumberIsFinite,
        ("Number", "isInteger") => Builtin::NumberIsInteger,
        ("Number", "parseFloat") => Builtin::ParseFloat,
        ("Number", "parseInt") => Builtin::ParseInt,
        ("Math", name) => Builtin::Math(match name {
            "abs" => Math::Abs,
            "ceil" => Math::Ceil,
            "floor" => Math::Floor,
            "max" => Math::Max,
            "min" => Math::Min,
            "pow" => Math::Pow,
            "round" => Math::Round,
            "sign" => Math::Sign,
            "sqrt" => Math::Sqrt,
            "trunc" => Math::Trunc,
            "sin" => Math::Sin,
            "cos" => Math::Cos,
            "atan2" => Math::Atan2,
            "log" => Math::Log,
            "random" => Math::Random,
            _ => return None,
        }),
        _ => return None,
    })
}

fn visitor(name: &str) -> Option<Visitor> {
    Some(match name {
        "forEach" => Visitor::ForEach,
        "map" => Visitor::Map,
        "filter" => Visitor::Filter,
        "some" => Visitor::Some,
        "every" => Visitor::Every,
        "find" => Visitor::Find,
        "findIndex" => Visitor::FindIndex,
        "reduce" => Visitor::Reduce,
        _ => return None,
    })
}

impl Compiler {
    pub(super) fn call(&mut self, call: &ast::CallExpression<'_>) -> Result<Expression> {
        if call.optional {
            return refuse("optional calls");
        }
        match &call.callee {
            Node::Identifier(name) => {
                if let Some(callee) = self.callee(&name.name)? {
                    return Ok(Expression::Call(callee, self.arguments(&call.arguments)?));
                }
                let builtin = function(&name.name, self.environment).ok_or(Refused("an unknown function"))?;
                Ok(Expression::Builtin(builtin, self.arguments(&call.arguments)?))
            }
            Node::StaticMemberExpression(member) => self.method(member, &call.arguments),
            callee => match self.function_here(callee)? {
                Some(callee) => Ok(Expression::Call(callee, self.arguments(&call.arguments)?)),
                None => refuse("a call of something unknown"),
            },
        }
    }

    fn arguments(&mut self, arguments: &[ast::Argument<'_>]) -> Result<Vec<Expression>> {
        let arguments = arguments.iter().map(|argument| {
            let argument = argument.as_expression().ok_or(Refused("spread arguments"))?;
            self.expression(argument)
        });
        arguments.collect()
    }

    fn is_callable(&self, node: &Node<'_>) -> bool {
        match node.without_parentheses() {
            Node::Identifier(name) => matches!(self.callee(&name.name), Ok(Some(_))),
            node => is_function(node),
        }
    }

    fn function_here(&mut self, node: &Node<'_>) -> Result<Option<Callee>> {
        let function = match node.without_parentheses() {
            Node::FunctionExpression(function) => self.function_expression(function)?,
            Node::ArrowFunctionExpression(function) => self.arrow(function)?,
            Node::Identifier(name) => return self.callee(&name.name),
            _ => return Ok(None),
        };
        Ok(Some(Callee { target: Target::Function(function), levels: 0 }))
    }

    fn method(
        &mut self,
        callee: &ast::StaticMemberExpression<'_>,
        arguments: &[ast::Argument<'_>],
    ) -> Result<Expression> {
        let name = callee.property.name.as_str();
        if let Node::Identifier(object) = &callee.object
            && self.look_up(&object.name).is_none()
        {
            let builtin = member(&object.name, name).ok_or(Refused("an unknown function"))?;
            if let (Builtin::Math(function), [ast::Argument::SpreadElement(spread)]) = (builtin, arguments) {
                let array = self.expression(&spread.argument)?;
                return Ok(Expression::Builtin(Builtin::MathApply(function), vec![array]));
            }
            return Ok(Expression::Builtin(builtin, self.arguments(arguments)?));
        }
        if name == "apply"
            && let Some(function) = self.math_function(&callee.object)
        {
            return self.applied(function, arguments);
        }
        let object = self.before(&callee.object, callee.optional)?;
        if let Some(visitor) = visitor(name) {
            return self.visit(object, visitor, arguments);
        }
        if name == "sort"
            && let [order] = arguments
        {
            let visitor = order.as_expression().and_then(numeric_order).ok_or(Refused("sorting by a function"))?;
            // The comparison is built in, so the function is never called.
            let callee = Callee { target: Target::Function(0), levels: 0 };
            return Ok(Expression::Visit(Box::new(Visit { object, visitor, callee, initial: None })));
        }
        if name == "replace"
            && let [searched, by] = arguments
            && let (Some(searched), Some(by)) = (searched.as_expression(), by.as_expression())
            && self.is_callable(by)
        {
            let searched = self.expression(searched)?;
            let callee = self.function_here(by)?.ok_or(Refused("functions as values"))?;
            let (visitor, initial) = (Visitor::Replace, Some(searched));
            return Ok(Expression::Visit(Box::new(Visit { object, visitor, callee, initial })));
        }
        let method = Method::named(name).ok_or(Refused("an unknown method"))?;
        Ok(Expression::Method(Box::new(object), method, self.arguments(arguments)?))
    }

    fn math_function(&self, node: &Node<'_>) -> Option<Math> {
        let Node::StaticMemberExpression(function) = node else {
            return None;
        };
        let Node::Identifier(object) = &function.object else {
            return None;
        };
        match member(&object.name, &function.property.name) {
            Some(Builtin::Math(function)) if self.look_up(&object.name).is_none() => Some(function),
            _ => None,
        }
    }

    /// Compiles `Math.max.apply(…)` and the like. These functions ignore `this`.
    fn applied(&mut self, function: Math, arguments: &[ast::Argument<'_>]) -> Result<Expression> {
        let [this, array] = arguments else {
            return refuse("a function that is applied");
        };
        let known = match this.as_expression() {
            Some(Node::NullLiteral(_)) => true,
            Some(Node::Identifier(name)) => {
                matches!(name.name.as_str(), "Math" | "undefined") && self.look_up(&name.name).is_none()
            }
            _ => false,
        };
        match array.as_expression() {
            Some(array) if known => {
                Ok(Expression::Builtin(Builtin::MathApply(function), vec![self.expression(array)?]))
            }
            _ => refuse("a function that is applied"),
        }
    }

    fn visit(&mut self, object: Expression, visitor: Visitor, arguments: &[ast::Argument<'_>]) -> Result<Expression> {
        let (function, rest) = arguments.split_first().ok_or(Refused("a call without a function"))?;
        let function = function.as_expression().ok_or(Refused("spread arguments"))?;
        let callee = self.function_here(function)?.ok_or(Refused("functions as values"))?;
        let initial = match rest {
            [] => None,
            [initial] if visitor == Visitor::Reduce => {
                let initial = initial.as_expression().ok_or(Refused("spread arguments"))?;
                Some(self.expression(initial)?)
            }
            _ => return refuse("more arguments than expected"),
        };
        Ok(Expression::Visit(Box::new(Visit { object, visitor, callee, initial })))
    }

    pub(super) fn new_object(&mut self, call: &ast::NewExpression<'_>) -> Result<Expression> {
        let Node::Identifier(class) = &call.callee else {
            return refuse("new objects of unknown classes");
        };
        if self.look_up(&class.name).is_some() {
            return refuse("new objects of unknown classes");
        }
        let arguments = self.arguments(&call.arguments)?;
        match (class.name.as_str(), arguments.len()) {
            ("Date", _) => Ok(Expression::Builtin(Builtin::NewDate, arguments)),
            ("Array", 0) => Ok(Expression::Array(Vec::new())),
            ("Object", 0) => Ok(Expression::Object(Vec::new())),
            _ => refuse("new objects of unknown classes"),
        }
    }
}

/// Recognizes `function (a, b) { return a - b; }` and its reverse.
fn numeric_order(node: &Node<'_>) -> Option<Visitor> {
    let (parameters, body) = match node.without_parentheses() {
        Node::FunctionExpression(function) => (&function.params, function.body.as_ref()?),
        Node::ArrowFunctionExpression(function) => (&function.params, &function.body),
        _ => return None,
    };
    let [first, second] = &parameters.items[..] else {
        return None;
    };
    let name = |parameter: &ast::FormalParameter<'_>| match &parameter.pattern {
        ast::BindingPattern::BindingIdentifier(id) if parameter.initializer.is_none() => Some(id.name.to_string()),
        _ => None,
    };
    let (first, second) = (name(first)?, name(second)?);
    if parameters.rest.is_some() || !body.directives.is_empty() || first == second {
        return None;
    }
    let difference = match &body.statements[..] {
        [ast::Statement::ReturnStatement(statement)] => statement.argument.as_ref()?,
        [ast::Statement::ExpressionStatement(statement)] if matches!(node.without_parentheses(), Node::ArrowFunctionExpression(arrow) if arrow.expression) => {
            &statement.expression
        }
        _ => return None,
    };
    let Node::BinaryExpression(binary) = difference.without_parentheses() else {
        return None;
    };
    let (Node::Identifier(left), Node::Identifier(right)) = (&binary.left, &binary.right) else {
        return None;
    };
    if binary.operator != ast::BinaryOperator::Subtraction {
        return None;
    }
    if left.name == first.as_str() && right.name == second.as_str() {
        Some(Visitor::SortAscending)
    } else if left.name == second.as_str() && right.name == first.as_str() {
        Some(Visitor::SortDescending)
    } else {
        None
    }
}
