//! Expressions.

use bumpalo::collections::Vec as ArenaVec;

use super::{Run, count, element_index};
use crate::convert::{self, Converter, truthy};
use crate::reason::{Reason, Stop};
use crate::tree::{Binary, Class, Element, Expression, Logical, Name, Property, Unary, Variable};
use crate::value::{Array, Object, Packed, Val};
use crate::{code_units, inherited, numbers};

impl<'a> Run<'a, '_> {
    #[inline(always)]
    pub(crate) fn eval(&mut self, expression: &'a Expression) -> Result<Val<'a>, Stop> {
        match expression {
            Expression::Number(number) => Ok(Val::Number(*number)),
            Expression::Text(text) => Ok(Val::Text(text)),
            _ => self.eval_packed(expression).map(Packed::open),
        }
    }

    pub(crate) fn eval_packed(&mut self, expression: &'a Expression) -> Result<Packed<'a>, Stop> {
        match expression {
            Expression::Variable(variable) => self.variable(*variable),
            Expression::Member(object, name) => {
                let object = match &**object {
                    Expression::Variable(variable) => self.variable(*variable)?,
                    object => self.eval_packed(object)?,
                };
                self.packed_member(object, name)
            }
            Expression::Logical(operator, sides) => {
                let left = self.eval_packed(&sides.0)?;
                if decided(*operator, left.open()) { Ok(left) } else { self.eval_packed(&sides.1) }
            }
            Expression::Conditional(parts) => {
                if truthy(self.eval(&parts.0)?) {
                    self.eval_packed(&parts.1)
                } else {
                    self.eval_packed(&parts.2)
                }
            }
            Expression::Binary(operator @ (Binary::StrictEqual | Binary::StrictNotEqual), sides) => {
                let left = self.eval(&sides.0)?;
                let equal = match (&sides.1, left) {
                    (Expression::Text(right), Val::Text(left)) => left == &**right,
                    _ => convert::strict_equal(left, self.eval(&sides.1)?),
                };
                Ok(if equal == (*operator == Binary::StrictEqual) { Packed::True } else { Packed::False })
            }
            Expression::Binary(operator, sides) => {
                let left = self.eval(&sides.0)?;
                let right = self.eval(&sides.1)?;
                let number = match (left, right) {
                    (Val::Number(left), Val::Number(right)) => numbers::basic(*operator, left, right),
                    _ => None,
                };
                match number {
                    Some(number) => Ok(Packed::Number(number.to_bits())),
                    None => self.binary(*operator, left, right).map(|value| value.pack(self.arena)),
                }
            }
            _ => {
                let value = self.eval_other(expression)?;
                Ok(value.pack(self.arena))
            }
        }
    }

    #[inline(always)]
    fn variable(&self, variable: Variable) -> Result<Packed<'a>, Stop> {
        match self.stack[self.slot_index(variable)] {
            Packed::Unset | Packed::Function(_) => Err(Stop::BailOut(Reason::Operand)),
            value => Ok(value),
        }
    }

    fn packed_member(&mut self, object: Packed<'a>, name: &'a Name) -> Result<Packed<'a>, Stop> {
        if let Packed::Lazy(lazy) = object {
            return match lazy.get_with_hint(self.arena, name, &mut self.steps)? {
                Some(value) => Ok(value),
                None if inherited::by_objects(&name.text) => Err(Stop::BailOut(Reason::Inherited)),
                None => Ok(Packed::Undefined),
            };
        }
        let value = self.member(object.open(), &name.text)?;
        Ok(value.pack(self.arena))
    }

    #[inline(always)]
    fn eval_other(&mut self, expression: &'a Expression) -> Result<Val<'a>, Stop> {
        match expression {
            Expression::Text(text) => Ok(Val::Text(text)),
            Expression::Number(number) => Ok(Val::Number(*number)),
            Expression::Null => Ok(Val::Null),
            Expression::Undefined => Ok(Val::Undefined),
            Expression::Bool(value) => Ok(Val::Bool(*value)),
            Expression::Builtin(builtin, arguments) => self.builtin(*builtin, arguments),
            Expression::Array(elements) => self.array(elements),
            Expression::Index(sides) => self.index(sides),
            Expression::Method(object, method, arguments) => {
                let object = self.eval(object)?;
                self.method(object, *method, arguments)
            }
            Expression::Unary(operator, operand) => self.unary(*operator, operand),
            Expression::Assign(target, value) => self.assign_expression(target, value),
            Expression::Update(target, amount, prefix) => self.update(target, *amount, *prefix),
            _ => self.eval_rare(expression),
        }
    }

    fn eval_rare(&mut self, expression: &'a Expression) -> Result<Val<'a>, Stop> {
        match expression {
            Expression::SetFunction(slot, function) => {
                self.stack[self.base + usize::from(*slot)] = Packed::Function(*function);
                Ok(Val::Undefined)
            }
            Expression::Compound(target, operator, value) => self.compound(target, *operator, value),
            Expression::CompoundLogical(target, operator, value) => self.compound_logical(target, *operator, value),
            Expression::Guard(object) => match self.eval(object)? {
                Val::Undefined | Val::Null => {
                    self.is_short_circuited = true;
                    Err(Stop::BailOut(Reason::Exception))
                }
                value => Ok(value),
            },
            Expression::Chain(chain) => match self.eval(chain) {
                Err(_) if std::mem::take(&mut self.is_short_circuited) => Ok(Val::Undefined),
                result => result,
            },
            Expression::Visit(visit) => self.visit(visit),
            Expression::Call(callee, arguments) => {
                let arguments = self.arguments(arguments)?;
                self.call(*callee, &arguments)
            }
            Expression::InstanceOf(value, class) => {
                let value = self.eval(value)?;
                Ok(Val::Bool(match class {
                    Class::Array => matches!(value, Val::Array(_)),
                    Class::Object => matches!(value, Val::Array(_) | Val::Lazy(_) | Val::Object(_) | Val::Date(_)),
                }))
            }
            Expression::Template(parts) => self.template(parts),
            Expression::Object(properties) => self.object(properties),
            Expression::Sequence(expressions) => {
                let mut last = Val::Undefined;
                for expression in expressions {
                    last = self.eval(expression)?;
                }
                Ok(last)
            }
            Expression::Pattern(pattern) => Ok(Val::Pattern(pattern)),
            _ => Err(Stop::BailOut(Reason::Operand)),
        }
    }

    pub(crate) fn arguments(&mut self, arguments: &'a [Expression]) -> Result<ArenaVec<'a, Val<'a>>, Stop> {
        let mut values = ArenaVec::with_capacity_in(arguments.len(), self.arena);
        for argument in arguments {
            values.push(self.eval(argument)?);
        }
        Ok(values)
    }

    pub(crate) fn first_arguments<const N: usize>(
        &mut self,
        arguments: &'a [Expression],
    ) -> Result<[Val<'a>; N], Stop> {
        let mut values = [Val::Undefined; N];
        let (wanted, others) = arguments.split_at(arguments.len().min(N));
        for (target, argument) in values.iter_mut().zip(wanted) {
            *target = self.eval(argument)?;
        }
        for argument in others {
            self.eval(argument)?;
        }
        Ok(values)
    }

    pub(crate) fn member(&mut self, object: Val<'a>, name: &[u8]) -> Result<Val<'a>, Stop> {
        let found = match object {
            Val::Lazy(lazy) => lazy.get(self.arena, name, &mut self.steps)?.map(Packed::open),
            Val::Object(object) => object.get(name, &mut self.steps)?,
            Val::Array(array) => {
                if name == b"length" {
                    return Ok(count(array.len(self.arena)));
                }
                return match crate::text::array_index(name) {
                    Some(index) => Ok(array.get(self.arena, index as usize).unwrap_or(Val::Undefined)),
                    None => inherited::absent(name),
                };
            }
            Val::Text(text) => {
                if name == b"length" {
                    return Ok(count(code_units::length(text)?));
                }
                return match crate::text::array_index(name) {
                    Some(index) => self.text_element(text, index as usize),
                    None => inherited::absent(name),
                };
            }
            Val::Number(_) | Val::Bool(_) => return inherited::absent(name),
            Val::Undefined => return Err(self.throw_absent(name, "undefined")),
            Val::Null => return Err(self.throw_absent(name, "null")),
            Val::Unset | Val::Date(_) | Val::Pattern(_) | Val::Function(_) => {
                return Err(Stop::BailOut(Reason::Operand));
            }
        };
        match found {
            Some(value) => Ok(value),
            None if inherited::by_objects(name) => Err(Stop::BailOut(Reason::Inherited)),
            None => Ok(Val::Undefined),
        }
    }

    fn text_element(&mut self, text: &'a [u8], index: usize) -> Result<Val<'a>, Stop> {
        self.steps.charge(1 + index / 64)?;
        Ok(match code_units::unit(text, index)? {
            Some(unit) => Val::Text(unit),
            None => Val::Undefined,
        })
    }

    fn index(&mut self, sides: &'a (Expression, Expression)) -> Result<Val<'a>, Stop> {
        let object = self.eval(&sides.0)?;
        let key = self.eval(&sides.1)?;
        if let Some(index) = element_index(key) {
            match object {
                Val::Array(array) => return Ok(array.get(self.arena, index).unwrap_or(Val::Undefined)),
                Val::Text(text) => return self.text_element(text, index),
                _ => {}
            }
        }
        if matches!(object, Val::Undefined | Val::Null) {
            return Err(Stop::BailOut(Reason::Operand));
        }
        let name = self.convert().text(key)?;
        self.member(object, name)
    }

    fn unary(&mut self, operator: Unary, operand: &'a Expression) -> Result<Val<'a>, Stop> {
        let value = self.eval(operand)?;
        Ok(match operator {
            Unary::Not => Val::Bool(!truthy(value)),
            Unary::Minus => Val::Number(-self.convert().number(value)?),
            Unary::Plus => Val::Number(self.convert().number(value)?),
            Unary::BitNot => Val::Number(f64::from(!convert::to_int32(self.convert().number(value)?))),
            Unary::TypeOf => Val::Text(convert::type_of(value)?),
            Unary::Void => Val::Undefined,
        })
    }

    pub(crate) fn binary(&mut self, operator: Binary, left: Val<'a>, right: Val<'a>) -> Result<Val<'a>, Stop> {
        use std::cmp::Ordering;
        let mut make = Converter { arena: self.arena, steps: &mut self.steps };
        Ok(match operator {
            Binary::StrictEqual => Val::Bool(convert::strict_equal(left, right)),
            Binary::StrictNotEqual => Val::Bool(!convert::strict_equal(left, right)),
            Binary::Equal => Val::Bool(make.loose_equal(left, right)?),
            Binary::NotEqual => Val::Bool(!make.loose_equal(left, right)?),
            Binary::Less => Val::Bool(make.compare(left, right)? == Some(Ordering::Less)),
            Binary::Greater => Val::Bool(make.compare(left, right)? == Some(Ordering::Greater)),
            Binary::LessEqual => {
                Val::Bool(matches!(make.compare(left, right)?, Some(Ordering::Less | Ordering::Equal)))
            }
            Binary::GreaterEqual => {
                Val::Bool(matches!(make.compare(left, right)?, Some(Ordering::Greater | Ordering::Equal)))
            }
            Binary::Add => make.add(left, right)?,
            Binary::In => return self.is_in(left, right),
            _ => {
                let (left, right) = (make.number(left)?, make.number(right)?);
                Val::Number(numbers::arithmetic(operator, left, right))
            }
        })
    }

    fn is_in(&mut self, name: Val<'a>, object: Val<'a>) -> Result<Val<'a>, Stop> {
        let name = self.convert().text(name)?;
        let own = match object {
            Val::Lazy(lazy) => lazy.get(self.arena, name, &mut self.steps)?.is_some(),
            Val::Object(object) => object.get(name, &mut self.steps)?.is_some(),
            Val::Array(array) => {
                let index = crate::text::array_index(name);
                name == b"length" || index.is_some_and(|index| (index as usize) < array.len(self.arena))
            }
            _ => return Err(Stop::BailOut(Reason::Operand)),
        };
        if own {
            return Ok(Val::Bool(true));
        }
        inherited::absent(name).map(|_| Val::Bool(false))
    }

    fn template(&mut self, parts: &'a [Expression]) -> Result<Val<'a>, Stop> {
        let mut out = Vec::new();
        for part in parts {
            let value = self.eval(part)?;
            out.extend_from_slice(self.convert().text(value)?);
        }
        Ok(Val::Text(self.convert().keep(&out)?))
    }

    pub(crate) fn array(&mut self, elements: &'a [Element]) -> Result<Val<'a>, Stop> {
        self.steps.charge_bytes(128 + elements.len() * size_of::<Val<'_>>())?;
        let mut items = ArenaVec::with_capacity_in(elements.len(), self.arena);
        for element in elements {
            match element {
                Element::One(value) => items.push(self.eval(value)?),
                Element::Spread(value) => {
                    let Val::Array(array) = self.eval(value)? else {
                        return Err(Stop::BailOut(Reason::Operand));
                    };
                    let more = array.items(self.arena);
                    self.steps.charge_bytes(more.len() * size_of::<Val<'_>>())?;
                    items.extend_from_slice_copy(&more);
                }
            }
        }
        Ok(Val::Array(Array::new(self.arena, items)))
    }

    fn object(&mut self, properties: &'a [Property]) -> Result<Val<'a>, Stop> {
        self.steps.charge_bytes(64)?;
        let object = Object::new(self.arena);
        for property in properties {
            match property {
                Property::Named(name, value) => {
                    let value = self.eval(value)?;
                    object.set(name, value, &mut self.steps)?;
                }
                Property::Computed(name, value) => {
                    let name = self.eval(name)?;
                    let name = self.convert().text(name)?;
                    let value = self.eval(value)?;
                    if name == b"__proto__" {
                        return Err(Stop::BailOut(Reason::Operand));
                    }
                    object.set(name, value, &mut self.steps)?;
                }
                Property::Spread(value) => {
                    let value = self.eval(value)?;
                    for (name, value) in self.members(value)? {
                        object.set(name, value, &mut self.steps)?;
                    }
                }
            }
        }
        Ok(Val::Object(object))
    }

    pub(crate) fn members(&mut self, value: Val<'a>) -> Result<ArenaVec<'a, (&'a [u8], Val<'a>)>, Stop> {
        let mut members = ArenaVec::new_in(self.arena);
        let names = match value {
            Val::Lazy(lazy) => lazy.names(self.arena),
            Val::Object(object) => object.names(self.arena),
            _ => return Err(Stop::BailOut(Reason::Operand)),
        };
        for name in names {
            self.steps.charge(1)?;
            if name == b"__proto__" {
                return Err(Stop::BailOut(Reason::Operand));
            }
            members.push((name, self.member(value, name)?));
        }
        Ok(members)
    }
}

pub(super) fn decided(operator: Logical, left: Val<'_>) -> bool {
    match operator {
        Logical::And => !truthy(left),
        Logical::Or => truthy(left),
        Logical::Nullish => !matches!(left, Val::Undefined | Val::Null),
    }
}
