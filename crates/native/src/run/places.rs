//! Assignment targets: variables, members of objects and elements of arrays.

use super::expressions::decided;
use super::{Run, element_index};
use crate::inherited;
use crate::reason::{Reason, Stop};
use crate::tree::{Binary, Expression, Logical, Place};
use crate::value::Val;

#[derive(Clone, Copy)]
enum Target<'a> {
    Slot(usize),
    Member(Val<'a>, Val<'a>),
}

impl<'a> Run<'a, '_> {
    pub(crate) fn assign_expression(&mut self, place: &'a Place, value: &'a Expression) -> Result<Val<'a>, Stop> {
        match place {
            Place::Variable(variable) => {
                let value = self.eval_packed(value)?;
                let at = self.place(*variable);
                self.stack[at] = value;
                Ok(value.open())
            }
            _ => {
                let target = self.target(place)?;
                let value = self.eval(value)?;
                self.set(target, value)?;
                Ok(value)
            }
        }
    }

    pub(crate) fn assign(&mut self, place: &'a Place, value: Val<'a>) -> Result<(), Stop> {
        let target = self.target(place)?;
        self.set(target, value)
    }

    fn target(&mut self, place: &'a Place) -> Result<Target<'a>, Stop> {
        Ok(match place {
            Place::Variable(variable) => Target::Slot(self.place(*variable)),
            Place::Member(object, name) => Target::Member(self.eval(object)?, Val::Text(name)),
            Place::Index(sides) => {
                let object = self.eval(&sides.0)?;
                Target::Member(object, self.eval(&sides.1)?)
            }
        })
    }

    fn get(&mut self, target: Target<'a>) -> Result<Val<'a>, Stop> {
        match target {
            Target::Slot(at) => match self.stack[at].open() {
                Val::Unset | Val::Function(_) => Err(Stop::BailOut(Reason::Assignment)),
                value => Ok(value),
            },
            Target::Member(object, key) => {
                if let (Some(index), Val::Array(array)) = (element_index(key), object) {
                    return Ok(array.get(self.arena, index).unwrap_or(Val::Undefined));
                }
                if matches!(object, Val::Undefined | Val::Null) {
                    return Err(Stop::BailOut(Reason::Assignment));
                }
                let name = self.make().text(key)?;
                self.member(object, name)
            }
        }
    }

    fn set(&mut self, target: Target<'a>, value: Val<'a>) -> Result<(), Stop> {
        match target {
            Target::Slot(at) => {
                self.stack[at] = value.pack(self.arena);
                Ok(())
            }
            Target::Member(Val::Object(object), key) => {
                let name = self.make().text(key)?;
                if name == b"__proto__" {
                    return Err(Stop::BailOut(Reason::Assignment));
                }
                object.set(name, value, &mut self.steps)
            }
            Target::Member(Val::Array(array), key) => {
                let (Some(own), Some(index)) = (array.own(), element_index(key)) else {
                    return Err(Stop::BailOut(Reason::Assignment));
                };
                let mut items = own.borrow_mut();
                if let Some(item) = items.get_mut(index) {
                    *item = value;
                } else if index == items.len() {
                    self.steps.take_bytes(2 * size_of::<Val<'_>>())?;
                    items.push(value);
                } else {
                    return Err(Stop::BailOut(Reason::Assignment));
                }
                Ok(())
            }
            // Objects of documents are frozen: the assignment has no effect.
            Target::Member(Val::Lazy(_), key) => {
                let name = self.make().text(key)?;
                if inherited::by_objects(name) { Err(Stop::BailOut(Reason::Inherited)) } else { Ok(()) }
            }
            Target::Member(..) => Err(Stop::BailOut(Reason::Assignment)),
        }
    }

    pub(crate) fn compound(
        &mut self,
        place: &'a Place,
        operator: Binary,
        value: &'a Expression,
    ) -> Result<Val<'a>, Stop> {
        let target = self.target(place)?;
        let old = self.get(target)?;
        let value = self.eval(value)?;
        let new = self.binary(operator, old, value)?;
        self.set(target, new)?;
        Ok(new)
    }

    pub(crate) fn compound_logical(
        &mut self,
        place: &'a Place,
        operator: Logical,
        value: &'a Expression,
    ) -> Result<Val<'a>, Stop> {
        let target = self.target(place)?;
        let old = self.get(target)?;
        if decided(operator, old) {
            return Ok(old);
        }
        let value = self.eval(value)?;
        self.set(target, value)?;
        Ok(value)
    }

    pub(crate) fn update(&mut self, place: &'a Place, amount: f64, prefix: bool) -> Result<Val<'a>, Stop> {
        let target = self.target(place)?;
        let old = self.get(target)?;
        let old = self.make().number(old)?;
        let new = Val::Number(old + amount);
        self.set(target, new)?;
        Ok(if prefix { new } else { Val::Number(old) })
    }
}
