//! Methods of arrays.

use bumpalo::collections::Vec as ArenaVec;

use super::convert::{self, strict_equal, truthy};
use super::run::{Run, count};
use super::tree::{Expression, Method, Visit, Visitor};
use super::value::{Array, Val};
use crate::reason::{Reason, Stop};

impl<'a> Run<'a, '_> {
    pub(super) fn array_method(
        &mut self,
        array: &'a Array<'a>,
        method: Method,
        arguments: &'a [Expression],
    ) -> Result<Val<'a>, Stop> {
        let arguments = self.arguments(arguments)?;
        let first = arguments.first().copied().unwrap_or(Val::Undefined);
        let second = arguments.get(1).copied().unwrap_or(Val::Undefined);
        self.steps.charge(1 + array.len(self.arena) / 8)?;
        match method {
            Method::Push => {
                let own = array.own().ok_or(Stop::BailOut(Reason::Array))?;
                self.steps.charge_bytes(2 * arguments.len() * size_of::<Val<'_>>())?;
                own.borrow_mut().extend_from_slice_copy(&arguments);
                Ok(count(own.borrow().len()))
            }
            Method::Pop | Method::Shift | Method::Reverse | Method::Sort => {
                self.change_array(array, method, &arguments)
            }
            Method::Join => {
                let separator = match first {
                    Val::Undefined => b",",
                    separator => self.convert().text(separator)?,
                };
                let mut out = Vec::new();
                self.convert().join(array, separator, &mut out, 0)?;
                Ok(Val::Text(self.convert().keep(&out)?))
            }
            Method::ToString => {
                let text = self.convert().text(Val::Array(array))?;
                Ok(Val::Text(text))
            }
            Method::Slice => self.array_slice(array, first, second),
            Method::Concat => self.array_concat(array, &arguments),
            Method::IndexOf | Method::LastIndexOf | Method::Includes => {
                if !matches!(second, Val::Undefined) || arguments.len() > 1 {
                    return Err(Stop::BailOut(Reason::Array));
                }
                Ok(self.find_element(array, method, first))
            }
            Method::HasOwnProperty => match super::run::element_index(first) {
                Some(index) => Ok(Val::Bool(index < array.len(self.arena))),
                None => Err(Stop::BailOut(Reason::Array)),
            },
            _ => Err(Stop::BailOut(Reason::Array)),
        }
    }

    fn change_array(&mut self, array: &'a Array<'a>, method: Method, arguments: &[Val<'a>]) -> Result<Val<'a>, Stop> {
        let own = array.own().ok_or(Stop::BailOut(Reason::Array))?;
        match method {
            Method::Pop => Ok(own.borrow_mut().pop().unwrap_or(Val::Undefined)),
            Method::Shift => {
                let mut items = own.borrow_mut();
                Ok(if items.is_empty() { Val::Undefined } else { items.remove(0) })
            }
            Method::Reverse => {
                own.borrow_mut().reverse();
                Ok(Val::Array(array))
            }
            _ => {
                if !arguments.is_empty() {
                    return Err(Stop::BailOut(Reason::Array));
                }
                let sorted = self.sorted_as_text(&array.items(self.arena))?;
                own.borrow_mut().copy_from_slice(&sorted);
                Ok(Val::Array(array))
            }
        }
    }

    fn sorted_as_text(&mut self, items: &[Val<'a>]) -> Result<Vec<Val<'a>>, Stop> {
        let mut keyed = Vec::with_capacity(items.len());
        for item in items {
            if matches!(item, Val::Undefined) {
                return Err(Stop::BailOut(Reason::Array));
            }
            keyed.push((self.convert().text(*item)?, *item));
        }
        self.steps.charge(keyed.len() * 8)?;
        let mut failed = Ok(());
        keyed.sort_by(|left, right| {
            convert::compare_text(left.0, right.0).unwrap_or_else(|stop| {
                failed = Err(stop);
                std::cmp::Ordering::Equal
            })
        });
        failed.map(|()| keyed.into_iter().map(|(_, item)| item).collect())
    }

    fn array_slice(&mut self, array: &'a Array<'a>, first: Val<'a>, second: Val<'a>) -> Result<Val<'a>, Stop> {
        let items = array.items(self.arena);
        let length = items.len();
        let first = self.convert().integer(first)?;
        let second = match second {
            Val::Undefined => f64::INFINITY,
            second => self.convert().integer(second)?,
        };
        let (start, end) = (position(first, length), position(second, length));
        let mut part = ArenaVec::new_in(self.arena);
        if start < end {
            part.extend_from_slice_copy(&items[start..end]);
        }
        self.keep_parts(part)
    }

    fn array_concat(&mut self, array: &'a Array<'a>, arguments: &[Val<'a>]) -> Result<Val<'a>, Stop> {
        let mut items = array.items(self.arena);
        for argument in arguments {
            match argument {
                Val::Array(more) => items.extend_from_slice_copy(&more.items(self.arena)),
                value => items.push(*value),
            }
            self.steps.charge_bytes(items.len() * size_of::<Val<'_>>())?;
        }
        self.keep_parts(items)
    }

    fn find_element(&mut self, array: &'a Array<'a>, method: Method, searched: Val<'a>) -> Val<'a> {
        let items = array.items(self.arena);
        let same = |item: &Val<'a>| strict_equal(*item, searched);
        let index = match method {
            Method::LastIndexOf => items.iter().rposition(same),
            Method::IndexOf => items.iter().position(same),
            _ => {
                let nan = |value: &Val<'a>| matches!(value, Val::Number(number) if number.is_nan());
                let found = items.iter().any(|item| same(item) || (nan(item) && nan(&searched)));
                return Val::Bool(found);
            }
        };
        index.map_or(Val::Number(-1.0), count)
    }

    pub(super) fn visit(&mut self, visit: &'a Visit) -> Result<Val<'a>, Stop> {
        let object = self.eval(&visit.object)?;
        if let (Visitor::Replace, Some(searched), Val::Text(text)) = (visit.visitor, &visit.initial, object) {
            let searched = self.eval(searched)?;
            self.called(visit.callee)?;
            return self.replace_by_call(text, searched, visit.callee);
        }
        let (Val::Array(array), false) = (object, visit.visitor == Visitor::Replace) else {
            return Err(Stop::BailOut(Reason::Array));
        };
        if visit.is_sorting() {
            return self.sort_numbers(array, visit.visitor);
        }
        self.called(visit.callee)?;
        let mut kept = ArenaVec::new_in(self.arena);
        let mut total = match &visit.initial {
            Some(initial) => Some(self.eval(initial)?),
            None => None,
        };
        for index in 0..array.len(self.arena) {
            self.steps.charge(2)?;
            self.steps.charge_bytes(size_of::<Val<'_>>())?;
            let item = array.get(self.arena, index).ok_or(Stop::BailOut(Reason::Array))?;
            if visit.visitor == Visitor::Reduce {
                total = Some(match total {
                    None => item,
                    Some(total) => self.call(visit.callee, &[total, item, count(index), Val::Array(array)])?,
                });
                continue;
            }
            let answer = self.call(visit.callee, &[item, count(index), Val::Array(array)])?;
            match visit.visitor {
                Visitor::Map => kept.push(answer),
                Visitor::Filter if truthy(answer) => kept.push(item),
                Visitor::Some if truthy(answer) => return Ok(Val::Bool(true)),
                Visitor::Every if !truthy(answer) => return Ok(Val::Bool(false)),
                Visitor::Find if truthy(answer) => return Ok(item),
                Visitor::FindIndex if truthy(answer) => return Ok(count(index)),
                _ => {}
            }
        }
        Ok(match visit.visitor {
            Visitor::Map | Visitor::Filter => Val::Array(Array::new(self.arena, kept)),
            Visitor::Some => Val::Bool(false),
            Visitor::Every => Val::Bool(true),
            Visitor::FindIndex => Val::Number(-1.0),
            Visitor::Reduce => total.ok_or(Stop::BailOut(Reason::Array))?,
            _ => Val::Undefined,
        })
    }

    fn sort_numbers(&mut self, array: &'a Array<'a>, visitor: Visitor) -> Result<Val<'a>, Stop> {
        let mut items = array.own().ok_or(Stop::BailOut(Reason::Array))?.borrow_mut();
        if items.iter().any(|item| !matches!(item, Val::Number(number) if number.is_finite())) {
            return Err(Stop::BailOut(Reason::Array));
        }
        self.steps.charge(items.len() * 8)?;
        items.sort_by(|left, right| {
            let (Val::Number(left), Val::Number(right)) = (left, right) else {
                return std::cmp::Ordering::Equal;
            };
            let order = left.partial_cmp(right).unwrap_or(std::cmp::Ordering::Equal);
            if visitor == Visitor::SortAscending { order } else { order.reverse() }
        });
        Ok(Val::Array(array))
    }
}

fn position(position: f64, length: usize) -> usize {
    #[expect(clippy::cast_precision_loss, reason = "shorter than 2^53")]
    let length = length as f64;
    let position = if position < 0.0 { (length + position).max(0.0) } else { position.min(length) };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a length")]
    let position = position as usize;
    position
}
