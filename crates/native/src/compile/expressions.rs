//! Expressions, without calls.

use oxc_ast::ast::{self, AssignmentOperator, BinaryOperator, Expression as Node, LogicalOperator, UnaryOperator};

use super::{Compiler, Meaning, Refused, Result, refuse};
use crate::tree::{AssignmentTarget, Binary, Class, Element, Expression, Logical, Name, Property, Unary, Variable};

impl Compiler {
    pub(super) fn expression(&mut self, node: &Node<'_>) -> Result<Expression> {
        self.nested(|compiler| compiler.plain_expression(node))
    }

    fn plain_expression(&mut self, node: &Node<'_>) -> Result<Expression> {
        Ok(match node {
            Node::BooleanLiteral(literal) => Expression::Bool(literal.value),
            Node::NullLiteral(_) => Expression::Null,
            Node::NumericLiteral(literal) => number(literal)?,
            Node::StringLiteral(literal) => Expression::Text(string(literal)?),
            Node::TemplateLiteral(template) => self.template(template)?,
            Node::Identifier(name) => self.name(&name.name)?,
            Node::ParenthesizedExpression(inner) => self.expression(&inner.expression)?,
            Node::ArrayExpression(array) => self.array(array)?,
            Node::ObjectExpression(object) => self.object(object)?,
            Node::StaticMemberExpression(member) => self.static_member(member)?,
            Node::ComputedMemberExpression(member) => self.computed_member(member)?,
            Node::ChainExpression(chain) => self.chain(chain)?,
            Node::CallExpression(call) => self.call(call)?,
            Node::NewExpression(call) => self.new_object(call)?,
            Node::AssignmentExpression(assignment) => self.assignment(assignment)?,
            Node::UpdateExpression(update) => {
                let place = self.simple_place(&update.argument)?;
                let amount = if update.operator == ast::UpdateOperator::Increment { 1.0 } else { -1.0 };
                Expression::Update(place, amount, update.prefix)
            }
            Node::UnaryExpression(unary) => self.unary(unary)?,
            Node::BinaryExpression(binary) => self.binary(binary)?,
            Node::LogicalExpression(logical) => {
                let sides = Box::new((self.expression(&logical.left)?, self.expression(&logical.right)?));
                Expression::Logical(logical_operator(logical.operator), sides)
            }
            Node::ConditionalExpression(parts) => Expression::Conditional(Box::new((
                self.expression(&parts.test)?,
                self.expression(&parts.consequent)?,
                self.expression(&parts.alternate)?,
            ))),
            Node::SequenceExpression(sequence) => {
                let parts = sequence.expressions.iter().map(|part| self.expression(part));
                Expression::Sequence(parts.collect::<Result<Vec<_>>>()?)
            }
            Node::RegExpLiteral(literal) => {
                let pattern = crate::pattern::compile(&literal.regex.pattern.text, literal.regex.flags.bits());
                Expression::Pattern(Box::new(pattern.ok_or(Refused("an unsupported regular expression"))?))
            }
            Node::FunctionExpression(_) | Node::ArrowFunctionExpression(_) => return refuse("functions as values"),
            _ => return refuse("an unsupported expression"),
        })
    }

    fn name(&self, name: &str) -> Result<Expression> {
        match self.look_up(name) {
            Some((Meaning::Variable(slot) | Meaning::Lexical { slot, readable: true, .. }, levels)) => {
                Ok(Expression::Variable(Variable { levels, slot }))
            }
            Some(_) => refuse("functions as values, or names before their declarations"),
            None => match name {
                "undefined" => Ok(Expression::Undefined),
                "NaN" => Ok(Expression::Number(f64::NAN)),
                "Infinity" => Ok(Expression::Number(f64::INFINITY)),
                _ => refuse("an unknown name"),
            },
        }
    }

    fn template(&mut self, template: &ast::TemplateLiteral<'_>) -> Result<Expression> {
        let mut parts = Vec::new();
        for (index, quasi) in template.quasis.iter().enumerate() {
            let text = quasi.value.cooked.as_ref().ok_or(Refused("a template with an invalid escape"))?;
            if quasi.lone_surrogates {
                return refuse("a lone surrogate");
            }
            parts.push(Expression::Text(text.as_bytes().into()));
            if let Some(expression) = template.expressions.get(index) {
                parts.push(self.expression(expression)?);
            }
        }
        Ok(Expression::Template(parts))
    }

    fn array(&mut self, array: &ast::ArrayExpression<'_>) -> Result<Expression> {
        let elements = array.elements.iter().map(|element| match element {
            ast::ArrayExpressionElement::SpreadElement(spread) => {
                Ok(Element::Spread(self.expression(&spread.argument)?))
            }
            element => {
                let value = element.as_expression().ok_or(Refused("holes in arrays"))?;
                Ok(Element::One(self.expression(value)?))
            }
        });
        Ok(Expression::Array(elements.collect::<Result<Vec<_>>>()?))
    }

    fn object(&mut self, object: &ast::ObjectExpression<'_>) -> Result<Expression> {
        let mut properties = Vec::new();
        for property in &object.properties {
            properties.push(match property {
                ast::ObjectPropertyKind::SpreadProperty(spread) => Property::Spread(self.expression(&spread.argument)?),
                ast::ObjectPropertyKind::ObjectProperty(property) => {
                    if property.kind != ast::PropertyKind::Init || property.method {
                        return refuse("methods of objects");
                    }
                    self.property(property)?
                }
            });
        }
        Ok(Expression::Object(properties))
    }

    fn property(&mut self, property: &ast::ObjectProperty<'_>) -> Result<Property> {
        if property.computed {
            let name = property.key.as_expression().ok_or(Refused("an unsupported property name"))?;
            let name = self.expression(name)?;
            return Ok(Property::Computed(name, self.expression(&property.value)?));
        }
        let name: Box<[u8]> = match &property.key {
            ast::PropertyKey::StaticIdentifier(name) => name.name.as_bytes().into(),
            ast::PropertyKey::StringLiteral(literal) => string(literal)?,
            ast::PropertyKey::NumericLiteral(literal) => {
                let mut text = Vec::new();
                let Expression::Number(number) = number(literal)? else {
                    return refuse("an unsupported property name");
                };
                crate::text::write_number(&mut text, number);
                text.into()
            }
            _ => return refuse("an unsupported property name"),
        };
        if *name == *b"__proto__" {
            return refuse("prototypes");
        }
        Ok(Property::Named(name, self.expression(&property.value)?))
    }

    fn static_member(&mut self, member: &ast::StaticMemberExpression<'_>) -> Result<Expression> {
        if let Node::Identifier(object) = &member.object
            && self.look_up(&object.name).is_none()
        {
            return constant(&object.name, &member.property.name);
        }
        let object = self.before(&member.object, member.optional)?;
        Ok(Expression::Member(Box::new(object), Name::new(member.property.name.as_bytes())))
    }

    fn computed_member(&mut self, member: &ast::ComputedMemberExpression<'_>) -> Result<Expression> {
        let object = self.before(&member.object, member.optional)?;
        if let Node::StringLiteral(name) = &member.expression {
            return Ok(Expression::Member(Box::new(object), Name::new(&string(name)?)));
        }
        let key = self.expression(&member.expression)?;
        Ok(Expression::Index(Box::new((object, key))))
    }

    pub(super) fn before(&mut self, node: &Node<'_>, optional: bool) -> Result<Expression> {
        let object = self.expression(node)?;
        Ok(if optional { Expression::Guard(Box::new(object)) } else { object })
    }

    fn chain(&mut self, chain: &ast::ChainExpression<'_>) -> Result<Expression> {
        let inner = match &chain.expression {
            ast::ChainElement::CallExpression(call) => self.call(call)?,
            ast::ChainElement::StaticMemberExpression(member) => self.static_member(member)?,
            ast::ChainElement::ComputedMemberExpression(member) => self.computed_member(member)?,
            _ => return refuse("an unsupported optional chain"),
        };
        Ok(Expression::Chain(Box::new(inner)))
    }

    fn assignment(&mut self, assignment: &ast::AssignmentExpression<'_>) -> Result<Expression> {
        let target = assignment.left.as_simple_assignment_target().ok_or(Refused("destructuring"))?;
        let place = self.simple_place(target)?;
        let value = Box::new(self.expression(&assignment.right)?);
        let operator = assignment.operator;
        if operator == AssignmentOperator::Assign {
            return Ok(Expression::Assign(place, value));
        }
        if let Some(logical) = operator.to_logical_operator() {
            return Ok(Expression::CompoundLogical(place, logical_operator(logical), value));
        }
        let binary =
            operator.to_binary_operator().and_then(binary_operator).ok_or(Refused("an unsupported operator"))?;
        Ok(Expression::Compound(place, binary, value))
    }

    fn simple_place(&mut self, target: &ast::SimpleAssignmentTarget<'_>) -> Result<AssignmentTarget> {
        match target {
            ast::SimpleAssignmentTarget::AssignmentTargetIdentifier(name) => self.variable_place(&name.name),
            ast::SimpleAssignmentTarget::StaticMemberExpression(member) if !member.optional => {
                let object = self.expression(&member.object)?;
                Ok(AssignmentTarget::Member(Box::new(object), member.property.name.as_bytes().into()))
            }
            ast::SimpleAssignmentTarget::ComputedMemberExpression(member) if !member.optional => {
                let object = self.expression(&member.object)?;
                Ok(AssignmentTarget::Index(Box::new((object, self.expression(&member.expression)?))))
            }
            _ => refuse("an unsupported assignment"),
        }
    }

    pub(super) fn variable_place(&mut self, name: &str) -> Result<AssignmentTarget> {
        match self.look_up(name) {
            Some((Meaning::Variable(slot), levels)) => Ok(AssignmentTarget::Variable(Variable { levels, slot })),
            Some((
                Meaning::Lexical { slot, constant: false, declared: true, .. }
                | Meaning::FunctionVariable { slot, constant: false, callable: true },
                levels,
            )) => Ok(AssignmentTarget::Variable(Variable { levels, slot })),
            None => self.global(name).map(AssignmentTarget::Variable),
            _ => refuse("an assignment to something other than a variable"),
        }
    }

    fn unary(&mut self, unary: &ast::UnaryExpression<'_>) -> Result<Expression> {
        let operator = match unary.operator {
            UnaryOperator::LogicalNot => Unary::Not,
            UnaryOperator::UnaryNegation => Unary::Minus,
            UnaryOperator::UnaryPlus => Unary::Plus,
            UnaryOperator::BitwiseNot => Unary::BitNot,
            UnaryOperator::Typeof => Unary::TypeOf,
            UnaryOperator::Void => Unary::Void,
            UnaryOperator::Delete => return refuse("delete"),
        };
        Ok(Expression::Unary(operator, Box::new(self.expression(&unary.argument)?)))
    }

    fn binary(&mut self, binary: &ast::BinaryExpression<'_>) -> Result<Expression> {
        if binary.operator == BinaryOperator::Instanceof {
            let Node::Identifier(class) = binary.right.without_parentheses() else {
                return refuse("instanceof");
            };
            if self.look_up(&class.name).is_some() {
                return refuse("instanceof");
            }
            let class = match class.name.as_str() {
                "Array" => Class::Array,
                "Object" => Class::Object,
                _ => return refuse("instanceof"),
            };
            return Ok(Expression::InstanceOf(Box::new(self.expression(&binary.left)?), class));
        }
        let operator = binary_operator(binary.operator).ok_or(Refused("an unsupported operator"))?;
        let sides = Box::new((self.expression(&binary.left)?, self.expression(&binary.right)?));
        Ok(Expression::Binary(operator, sides))
    }
}

fn number(literal: &ast::NumericLiteral<'_>) -> Result<Expression> {
    let raw = literal.raw.as_ref().map_or("", |raw| raw.as_str());
    let old_octal = raw.len() > 1 && raw.starts_with('0') && raw.as_bytes()[1].is_ascii_digit();
    // With many digits, parsers may round differently.
    if old_octal || raw.len() > 17 {
        return refuse("a number with leading zeros or many digits");
    }
    Ok(Expression::Number(literal.value))
}

fn string(literal: &ast::StringLiteral<'_>) -> Result<Box<[u8]>> {
    let raw = literal.raw.as_ref().map_or("", |raw| raw.as_str());
    let old_octal = raw.as_bytes().windows(2).any(|pair| pair[0] == b'\\' && pair[1].is_ascii_digit());
    if literal.lone_surrogates || old_octal {
        return refuse("a lone surrogate or an octal escape");
    }
    Ok(literal.value.as_bytes().into())
}

fn constant(object: &str, name: &str) -> Result<Expression> {
    Ok(Expression::Number(match (object, name) {
        ("Math", "PI") => std::f64::consts::PI,
        ("Math", "E") => std::f64::consts::E,
        ("Number", "MAX_SAFE_INTEGER") => 9_007_199_254_740_991.0,
        _ => return refuse("an unknown name"),
    }))
}

fn logical_operator(operator: LogicalOperator) -> Logical {
    match operator {
        LogicalOperator::And => Logical::And,
        LogicalOperator::Or => Logical::Or,
        LogicalOperator::Coalesce => Logical::Nullish,
    }
}

fn binary_operator(operator: BinaryOperator) -> Option<Binary> {
    Some(match operator {
        BinaryOperator::Equality => Binary::Equal,
        BinaryOperator::Inequality => Binary::NotEqual,
        BinaryOperator::StrictEquality => Binary::StrictEqual,
        BinaryOperator::StrictInequality => Binary::StrictNotEqual,
        BinaryOperator::LessThan => Binary::Less,
        BinaryOperator::LessEqualThan => Binary::LessEqual,
        BinaryOperator::GreaterThan => Binary::Greater,
        BinaryOperator::GreaterEqualThan => Binary::GreaterEqual,
        BinaryOperator::Addition => Binary::Add,
        BinaryOperator::Subtraction => Binary::Subtract,
        BinaryOperator::Multiplication => Binary::Multiply,
        BinaryOperator::Division => Binary::Divide,
        BinaryOperator::Remainder => Binary::Remainder,
        BinaryOperator::Exponential => Binary::Power,
        BinaryOperator::ShiftLeft => Binary::ShiftLeft,
        BinaryOperator::ShiftRight => Binary::ShiftRight,
        BinaryOperator::ShiftRightZeroFill => Binary::ShiftRightUnsigned,
        BinaryOperator::BitwiseOR => Binary::BitOr,
        BinaryOperator::BitwiseXOR => Binary::BitXor,
        BinaryOperator::BitwiseAnd => Binary::BitAnd,
        BinaryOperator::In => Binary::In,
        BinaryOperator::Instanceof => return None,
    })
}
