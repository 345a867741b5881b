//! Output of values as JSON text, byte for byte equal to that of the workers.

use bumpalo::Bump;
use settee_model::json::{self, MAX_DEPTH};

use super::date;
use super::value::Val;
use crate::reason::{Reason, Steps, Stop};
use crate::text;

/// Appends `null` for values without JSON text.
pub(super) fn write<'a>(arena: &'a Bump, value: Val<'a>, out: &mut Vec<u8>, steps: &mut Steps) -> Result<(), Stop> {
    let mut writer = Writer { arena, out, steps };
    if !writer.value(value, 0)? {
        writer.out.extend_from_slice(b"null");
    }
    Ok(())
}

/// As [`write()`], inside an array.
pub(super) fn write_inner<'a>(
    arena: &'a Bump,
    value: Val<'a>,
    out: &mut Vec<u8>,
    steps: &mut Steps,
) -> Result<(), Stop> {
    let mut writer = Writer { arena, out, steps };
    if !writer.value(value, 1)? {
        writer.out.extend_from_slice(b"null");
    }
    Ok(())
}

/// As `JSON.stringify`; returns false for values without JSON text.
pub(super) fn stringify<'a>(
    arena: &'a Bump,
    value: Val<'a>,
    out: &mut Vec<u8>,
    steps: &mut Steps,
) -> Result<bool, Stop> {
    Writer { arena, out, steps }.value(value, 0)
}

struct Writer<'a, 'o> {
    arena: &'a Bump,
    out: &'o mut Vec<u8>,
    steps: &'o mut Steps,
}

impl<'a> Writer<'a, '_> {
    fn value(&mut self, value: Val<'a>, depth: usize) -> Result<bool, Stop> {
        match value {
            Val::Number(number) => text::write_number(self.out, number),
            Val::Text(text) => self.text(text)?,
            Val::Null => self.out.extend_from_slice(b"null"),
            Val::Bool(true) => self.out.extend_from_slice(b"true"),
            Val::Bool(false) => self.out.extend_from_slice(b"false"),
            Val::Undefined => return Ok(false),
            Val::Lazy(lazy) => self.copy(lazy.text(), depth)?,
            Val::Array(array) => match array.text() {
                Some(text) => self.copy(text, depth)?,
                None => self.array(array, depth)?,
            },
            Val::Object(object) => self.object(object, depth)?,
            Val::Date(time) => match date::iso(time.get())? {
                Some(text) => self.text(text.as_bytes())?,
                None => self.out.extend_from_slice(b"null"),
            },
            Val::Unset | Val::Pattern(_) | Val::Function(_) => return Err(Stop::BailOut(Reason::Json)),
        }
        Ok(true)
    }

    fn text(&mut self, text: &[u8]) -> Result<(), Stop> {
        self.steps.charge_bytes(text.len())?;
        json::write_string_bytes(self.out, text);
        Ok(())
    }

    fn copy(&mut self, text: &[u8], depth: usize) -> Result<(), Stop> {
        let before = self.out.len();
        text::copy_value(text, 0, self.out, depth).map_err(|_| Stop::BailOut(Reason::Json))?;
        self.steps.charge_bytes(self.out.len() - before)
    }

    fn array(&mut self, array: &'a super::value::Array<'a>, depth: usize) -> Result<(), Stop> {
        if depth >= MAX_NESTING {
            return Err(Stop::BailOut(Reason::Json));
        }
        self.out.push(b'[');
        for index in 0..array.len(self.arena) {
            if index > 0 {
                self.out.push(b',');
            }
            self.steps.charge(1)?;
            self.steps.charge_bytes(8)?;
            let element = array.get(self.arena, index).unwrap_or(Val::Undefined);
            if !self.value(element, depth + 1)? {
                self.out.extend_from_slice(b"null");
            }
        }
        self.out.push(b']');
        Ok(())
    }

    fn object(&mut self, object: &'a super::value::Object<'a>, depth: usize) -> Result<(), Stop> {
        if depth >= MAX_NESTING {
            return Err(Stop::BailOut(Reason::Json));
        }
        self.out.push(b'{');
        let first = self.out.len();
        for name in object.names(self.arena) {
            let value = object.get(name, self.steps)?.unwrap_or(Val::Undefined);
            let before = self.out.len();
            if before > first {
                self.out.push(b',');
            }
            self.text(name)?;
            self.out.push(b':');
            if !self.value(value, depth + 1)? {
                self.out.truncate(before);
            }
        }
        self.out.push(b'}');
        Ok(())
    }
}

/// Deeper values and cyclic ones are left to the engine.
const MAX_NESTING: usize = if MAX_DEPTH < 64 { MAX_DEPTH } else { 64 };
