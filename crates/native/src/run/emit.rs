//! `emit` and `log`.

use bumpalo::collections::Vec as ArenaVec;

use super::Run;
use crate::reason::Stop;
use crate::tree::{Element, Expression};
use crate::value::{Array, Val};
use crate::write;

/// Further rows are written at once, as in the workers.
const BUFFERED_ROWS_MAX: usize = 4096;

/// Keys of at most this many elements are written without creating an array.
const SHORT_KEY: usize = 6;

/// Maximum per call; further lines are dropped, as in the workers.
const LOG_BYTES: usize = 64 << 10;

impl<'a> Run<'a, '_> {
    /// Mutable values are written at the end of the call, as in the engine; all others at once, and a key that is an
    /// array literal without creating the array.
    pub(crate) fn emit_call(&mut self, arguments: &'a [Expression]) -> Result<(), Stop> {
        self.steps.charge(1)?;
        if let [Expression::Array(elements), ..] = arguments
            && elements.len() <= SHORT_KEY
            && self.rows.is_empty()
            && elements.iter().all(|element| matches!(element, Element::One(_)))
        {
            return self.emit_array(elements, &arguments[1..]);
        }
        let [key, value] = self.first_arguments(arguments)?;
        self.emit(key, value)
    }

    fn emit_array(&mut self, elements: &'a [Element], rest: &'a [Expression]) -> Result<(), Stop> {
        let mut key = [Val::Undefined; SHORT_KEY];
        let mut constant = true;
        for (place, element) in key.iter_mut().zip(elements) {
            if let Element::One(element) = element {
                *place = self.eval(element)?;
                constant &= is_constant(*place);
            }
        }
        let key = &key[..elements.len()];
        let [value] = self.first_arguments(rest)?;
        if !constant || !self.may_write_row(value) {
            let mut items = ArenaVec::new_in(self.arena);
            items.extend_from_slice_copy(key);
            return self.emit(Val::Array(Array::new(self.arena, items)), value);
        }
        self.write_array_row(key, value)
    }

    pub(super) fn may_write_row(&self, value: Val<'a>) -> bool {
        is_constant(value) && self.rows.is_empty()
    }

    pub(super) fn write_array_row(&mut self, key: &[Val<'a>], value: Val<'a>) -> Result<(), Stop> {
        self.row_text.clear();
        self.row_text.push(b'[');
        for (index, element) in key.iter().enumerate() {
            if index > 0 {
                self.row_text.push(b',');
            }
            write::write_inner(self.arena, *element, self.row_text, &mut self.steps)?;
        }
        self.row_text.push(b']');
        self.finish_row(value)
    }

    pub(super) fn emit(&mut self, key: Val<'a>, value: Val<'a>) -> Result<(), Stop> {
        if self.rows.is_empty() && is_constant(key) && is_constant(value) {
            self.row_text.clear();
            write::write(self.arena, key, self.row_text, &mut self.steps)?;
            return self.finish_row(value);
        }
        self.steps.charge_bytes(2 * size_of::<Val<'_>>())?;
        self.rows.push((key, value));
        self.count_row()
    }

    fn finish_row(&mut self, value: Val<'a>) -> Result<(), Stop> {
        let middle = self.row_text.len();
        write::write(self.arena, value, self.row_text, &mut self.steps)?;
        let (key, value) = self.row_text.split_at(middle);
        self.sink.row(key, value)?;
        self.count_row()
    }

    fn count_row(&mut self) -> Result<(), Stop> {
        self.waiting += 1;
        if self.waiting >= BUFFERED_ROWS_MAX { self.write_rows() } else { Ok(()) }
    }

    #[inline]
    pub(crate) fn write_rows(&mut self) -> Result<(), Stop> {
        if self.rows.is_empty() {
            self.waiting = 0;
            return Ok(());
        }
        self.write_waiting_rows()
    }

    fn write_waiting_rows(&mut self) -> Result<(), Stop> {
        for index in 0..self.rows.len() {
            let (key, value) = self.rows[index];
            self.row_text.clear();
            write::write(self.arena, key, self.row_text, &mut self.steps)?;
            let middle = self.row_text.len();
            write::write(self.arena, value, self.row_text, &mut self.steps)?;
            let (key, value) = self.row_text.split_at(middle);
            self.sink.row(key, value)?;
        }
        self.rows.clear();
        self.waiting = 0;
        Ok(())
    }

    pub(crate) fn log(&mut self, message: Val<'a>) -> Result<(), Stop> {
        let line = match message {
            Val::Text(text) => text.to_vec(),
            value => {
                let mut line = Vec::new();
                if !write::stringify(self.arena, value, &mut line, &mut self.steps)? {
                    line.extend_from_slice(b"undefined");
                }
                line
            }
        };
        if self.log_bytes + line.len() <= LOG_BYTES {
            self.log_bytes += line.len();
            self.sink.line(&line);
        }
        Ok(())
    }
}

fn is_constant(value: Val<'_>) -> bool {
    match value {
        Val::Array(array) => array.text().is_some(),
        Val::Object(_) | Val::Date(_) => false,
        _ => true,
    }
}
