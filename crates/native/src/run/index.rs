//! `index`, equivalent to the `index.js` of the workers. Invalid arguments are left to the worker.

use bumpalo::collections::Vec as ArenaVec;

use super::{Run, Stop};
use crate::reason::Reason;
use crate::tree::Expression;
use crate::value::{Array, Val};

impl<'a> Run<'a, '_> {
    pub(crate) fn index_typed(&mut self, arguments: &'a [Expression]) -> Result<(), Stop> {
        let [kind, name, value, options] = self.first_arguments(arguments)?;
        let (Val::Text(of), true) = (kind, is_name(name)) else {
            return Err(Stop::BailOut(Reason::Call));
        };
        let is_fitting = match value {
            Val::Text(_) => matches!(of, b"text" | b"string" | b"stored"),
            Val::Number(_) => matches!(of, b"double" | b"stored"),
            Val::Array(_) => of == b"vector",
            _ => false,
        };
        if is_fitting { self.index_field(&[kind, name], options, value) } else { Err(Stop::BailOut(Reason::Call)) }
    }

    pub(crate) fn index_named(&mut self, arguments: &'a [Expression]) -> Result<(), Stop> {
        let [name, value, options] = self.first_arguments(arguments)?;
        let is_fitting = matches!(value, Val::Text(_) | Val::Number(_) | Val::Bool(_));
        if is_name(name) && is_fitting {
            self.index_field(&[name], options, value)
        } else {
            Err(Stop::BailOut(Reason::Call))
        }
    }

    fn index_field(&mut self, names: &[Val<'a>], options: Val<'a>, value: Val<'a>) -> Result<(), Stop> {
        self.steps.charge(1)?;
        let options = match options {
            Val::Undefined => None,
            Val::Object(_) => Some(options),
            _ => return Err(Stop::BailOut(Reason::Call)),
        };
        if options.is_none() && self.may_write_row(value) {
            return self.write_array_row(names, value);
        }
        let mut key = ArenaVec::new_in(self.arena);
        key.extend_from_slice_copy(names);
        key.extend(options);
        self.emit(Val::Array(Array::new(self.arena, key)), value)
    }
}

fn is_name(value: Val<'_>) -> bool {
    matches!(value, Val::Text(text) if text.first() != Some(&b'_'))
}
