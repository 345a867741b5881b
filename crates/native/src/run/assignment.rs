//! Assignment targets: variables, members of objects and elements of arrays.

use super::expressions::decided;
use super::{Run, element_index};
use crate::inherited;
use crate::reason::{Reason, Stop};
use crate::tree::{AssignmentTarget, Binary, Expression, Logical};
use crate::value::Val;

#[derive(Clone, Copy)]
enum Reference<'a> {
    Slot(usize),
    Member(Val<'a>, Val<'a>),
}

impl<'a> Run<'a, '_> {
    pub(crate) fn assign_expression(
        &mut self,
        target: &'a AssignmentTarget,
        value: &'a Expression,
    ) -> Result<Val<'a>, Stop> {
        match target {
            AssignmentTarget::Variable(variable) => {
                let value = self.eval_packed(value)?;
                let at = self.slot_index(*variable);
                self.stack[at] = value;
                Ok(value.open())
            }
            _ => {
                let reference = self.reference(target)?;
                let value = self.eval(value)?;
                self.set(reference, value)?;
                Ok(value)
            }
        }
    }

    pub(crate) fn assign(&mut self, target: &'a AssignmentTarget, value: Val<'a>) -> Result<(), Stop> {
        let reference = self.reference(target)?;
        self.set(reference, value)
    }

    fn reference(&mut self, target: &'a AssignmentTarget) -> Result<Reference<'a>, Stop> {
        Ok(match target {
            AssignmentTarget::Variable(variable) => Reference::Slot(self.slot_index(*variable)),
            AssignmentTarget::Member(object, name) => Reference::Member(self.eval(object)?, Val::Text(name)),
            AssignmentTarget::Index(sides) => {
                let object = self.eval(&sides.0)?;
                Reference::Member(object, self.eval(&sides.1)?)
            }
        })
    }

    fn get(&mut self, reference: Reference<'a>) -> Result<Val<'a>, Stop> {
        match reference {
            Reference::Slot(at) => match self.stack[at].open() {
                Val::Unset | Val::Function(_) => Err(Stop::BailOut(Reason::Assignment)),
                value => Ok(value),
            },
            Reference::Member(object, key) => {
                if let (Some(index), Val::Array(array)) = (element_index(key), object) {
                    return Ok(array.get(self.arena, index).unwrap_or(Val::Undefined));
                }
                if matches!(object, Val::Undefined | Val::Null) {
                    return Err(Stop::BailOut(Reason::Assignment));
                }
                let name = self.convert().text(key)?;
                self.member(object, name)
            }
        }
    }

    fn set(&mut self, reference: Reference<'a>, value: Val<'a>) -> Result<(), Stop> {
        match reference {
            Reference::Slot(at) => {
                self.stack[at] = value.pack(self.arena);
                Ok(())
            }
            Reference::Member(Val::Object(object), key) => {
                let name = self.convert().text(key)?;
                if name == b"__proto__" {
                    return Err(Stop::BailOut(Reason::Assignment));
                }
                object.set(name, value, &mut self.steps)
            }
            Reference::Member(Val::Array(array), key) => {
                let (Some(own), Some(index)) = (array.own(), element_index(key)) else {
                    return Err(Stop::BailOut(Reason::Assignment));
                };
                let mut items = own.borrow_mut();
                if let Some(item) = items.get_mut(index) {
                    *item = value;
                } else if index == items.len() {
                    self.steps.charge_bytes(2 * size_of::<Val<'_>>())?;
                    items.push(value);
                } else {
                    return Err(Stop::BailOut(Reason::Assignment));
                }
                Ok(())
            }
            // Objects of documents are frozen: the assignment has no effect.
            Reference::Member(Val::Lazy(_), key) => {
                let name = self.convert().text(key)?;
                if inherited::by_objects(name) { Err(Stop::BailOut(Reason::Inherited)) } else { Ok(()) }
            }
            Reference::Member(..) => Err(Stop::BailOut(Reason::Assignment)),
        }
    }

    pub(crate) fn compound(
        &mut self,
        target: &'a AssignmentTarget,
        operator: Binary,
        value: &'a Expression,
    ) -> Result<Val<'a>, Stop> {
        let reference = self.reference(target)?;
        let old = self.get(reference)?;
        let value = self.eval(value)?;
        let new = self.binary(operator, old, value)?;
        self.set(reference, new)?;
        Ok(new)
    }

    pub(crate) fn compound_logical(
        &mut self,
        target: &'a AssignmentTarget,
        operator: Logical,
        value: &'a Expression,
    ) -> Result<Val<'a>, Stop> {
        let reference = self.reference(target)?;
        let old = self.get(reference)?;
        if decided(operator, old) {
            return Ok(old);
        }
        let value = self.eval(value)?;
        self.set(reference, value)?;
        Ok(value)
    }

    pub(crate) fn update(&mut self, target: &'a AssignmentTarget, amount: f64, prefix: bool) -> Result<Val<'a>, Stop> {
        let reference = self.reference(target)?;
        let old = self.get(reference)?;
        let old = self.convert().number(old)?;
        let new = Val::Number(old + amount);
        self.set(reference, new)?;
        Ok(if prefix { new } else { Val::Number(old) })
    }
}
