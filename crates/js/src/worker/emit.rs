//! `emit`: converts values of scripts to JSON text, equal to that of `JSON.stringify`. As in CouchDB's query server,
//! rows are written when the function has returned: one that changes an object after emitting it emits the changed
//! object. Documents are copied without being parsed. Objects of uncommon classes are left to the engine.

use std::cell::{Cell, RefCell};

use rquickjs::qjs as c;
use settee_design::{Allowance, Excess, Limits};
use settee_model::json::MAX_DEPTH;

use super::engine::Host;
use super::qjs::{Context, Ref, Thrown, Value};
use crate::protocol::{Record, RecordKind};
use settee_native::text;

/// Further rows are written at once, which bounds the memory.
const BUFFERED_ROWS_MAX: usize = 4096;

/// Maximum per call of a function; further lines are dropped.
const LOG_BYTES: usize = 64 << 10;

#[derive(Default)]
pub(super) struct Emitter {
    waiting: RefCell<Vec<(Value, Value)>>,
    writing: Cell<bool>,
    out: RefCell<Vec<u8>>,
    log: RefCell<Vec<String>>,
    log_bytes: Cell<usize>,
    rows: Cell<u64>,
    allowance: Cell<Option<Allowance>>,
    document: Cell<u32>,
    function: Cell<u16>,
    /// Exception handlers of the function cannot clear it.
    excess: Cell<Option<Excess>>,
}

pub(super) enum WriteError {
    Thrown,
    TooLong,
}

impl From<Thrown> for WriteError {
    fn from(_: Thrown) -> Self {
        WriteError::Thrown
    }
}

impl Emitter {
    /// Returns the mark for [`Emitter::drop_rows`].
    pub(super) fn begin_function(&self, document: u32, function: u16, limits: Limits) -> usize {
        self.document.set(document);
        self.function.set(function);
        self.rows.set(0);
        self.allowance.set(Some(Allowance::new(limits)));
        self.excess.set(None);
        self.log_bytes.set(0);
        self.out.borrow().len()
    }

    pub(super) fn excess(&self) -> Option<Excess> {
        self.excess.take()
    }

    pub(super) fn take_output(&self) -> Vec<u8> {
        self.out.take()
    }

    pub(super) fn reuse_output(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        self.out.replace(buffer);
    }

    pub(super) fn output_len(&self) -> usize {
        self.out.borrow().len()
    }

    pub(super) fn drop_rows(&self, mark: usize) {
        self.waiting.take();
        self.out.borrow_mut().truncate(mark);
    }

    pub(super) fn write_text(&self, kind: RecordKind, line: &str) {
        let record = Record {
            kind,
            function: self.function.get(),
            document: self.document.get(),
            first: u32::try_from(line.len()).expect("texts are cut to kilobytes"),
            second: 0,
        };
        let mut out = self.out.borrow_mut();
        out.extend_from_slice(&record.to_bytes());
        out.extend_from_slice(line.as_bytes());
    }

    pub(super) fn write_log(&self) {
        if self.log.borrow().is_empty() {
            return;
        }
        for line in self.log.take() {
            self.write_text(RecordKind::Log, &line);
        }
    }

    pub(super) fn take_log(&self) -> Vec<String> {
        self.log.take()
    }

    /// Conversions to JSON may run scripts, which may emit again.
    pub(super) fn write_rows(&self, host: &Host, context: Context) -> Result<(), Thrown> {
        let mut out = self.out.take();
        self.writing.set(true);
        let mut done = Ok(());
        while done.is_ok() && !self.waiting.borrow().is_empty() {
            let mut rows = self.waiting.take();
            done = rows.iter().try_for_each(|(key, value)| self.write_row(host, context, key, value, &mut out));
            rows.clear();
            if self.waiting.borrow().is_empty() {
                self.waiting.replace(rows);
            }
        }
        self.writing.set(false);
        self.out.replace(out);
        done
    }

    fn write_row(
        &self,
        host: &Host,
        context: Context,
        key: &Value,
        value: &Value,
        out: &mut Vec<u8>,
    ) -> Result<(), Thrown> {
        let head = out.len();
        out.extend_from_slice(&[0; Record::BYTES]);
        let start = head + Record::BYTES;
        let mut allowance = self.allowance.get().unwrap_or_else(|| Allowance::new(host.limits));
        let mut middle = None;
        let written = write_json(host, context, key.borrow(), out, allowance.key_room()).and_then(|()| {
            middle = Some(out.len());
            let room = allowance.value_room(out.len() - start);
            write_json(host, context, value.borrow(), out, room)
        });
        if let Err(WriteError::Thrown) = written {
            out.truncate(head);
            return Err(Thrown);
        }
        // A text that is too long was written slightly beyond the permitted length.
        let middle = middle.unwrap_or(out.len());
        let taken = allowance.take(middle - start, out.len() - middle);
        if let Err(excess) = taken {
            self.excess.set(Some(excess));
            out.truncate(head);
            return Err(context.throw_range_error("emitted too much"));
        }
        self.allowance.set(Some(allowance));
        let record = Record {
            kind: RecordKind::Row,
            function: self.function.get(),
            document: self.document.get(),
            first: u32::try_from(middle - start).expect("below the limit on bytes"),
            second: u32::try_from(out.len() - middle).expect("below the limit on bytes"),
        };
        out[head..start].copy_from_slice(&record.to_bytes());
        Ok(())
    }

    pub(super) fn emit(&self, host: &Host, context: Context, key: Ref<'_>, value: Ref<'_>) -> Result<(), Thrown> {
        self.rows.set(self.rows.get() + 1);
        if self.rows.get() > u64::from(host.limits.rows_per_document) {
            self.excess.set(Some(Excess::Rows(host.limits.rows_per_document)));
            return Err(context.throw_range_error("emitted too many rows"));
        }
        let full = {
            let mut waiting = self.waiting.borrow_mut();
            waiting.push((context.duplicate(key), context.duplicate(value)));
            waiting.len() >= BUFFERED_ROWS_MAX
        };
        if full && !self.writing.get() { self.write_rows(host, context) } else { Ok(()) }
    }

    pub(super) fn log(&self, context: Context, message: Ref<'_>) -> Result<(), Thrown> {
        let line = if message.is_string() {
            context.text(message)?.to_text()
        } else {
            let json = context.stringify(message)?;
            context.text(json.borrow())?.to_text()
        };
        let bytes = self.log_bytes.get() + line.len();
        if bytes <= LOG_BYTES {
            self.log_bytes.set(bytes);
            self.log.borrow_mut().push(line);
        }
        Ok(())
    }
}

/// Appends `null` for values without a JSON text; stops beyond `room` bytes.
pub(super) fn write_json(
    host: &Host,
    context: Context,
    value: Ref<'_>,
    out: &mut Vec<u8>,
    room: u64,
) -> Result<(), WriteError> {
    match value.tag() {
        c::JS_TAG_INT => text::write_integer(out, i64::from(value.int())),
        c::JS_TAG_NULL | c::JS_TAG_UNDEFINED => out.extend_from_slice(b"null"),
        _ => {
            let room = usize::try_from(room).unwrap_or(usize::MAX);
            let end = out.len().saturating_add(room);
            let mut serializer = Serializer { host, context, out, end, path: Vec::new() };
            if !serializer.value(value, Key::Top)? {
                out.extend_from_slice(b"null");
            }
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Key {
    Top,
    Index(u32),
    Name(c::JSAtom),
}

struct Serializer<'a> {
    host: &'a Host,
    context: Context,
    out: &'a mut Vec<u8>,
    end: usize,
    /// The objects around the current value, for detecting cycles.
    path: Vec<usize>,
}

impl Serializer<'_> {
    fn value(&mut self, value: Ref<'_>, key: Key) -> Result<bool, WriteError> {
        match value.tag() {
            c::JS_TAG_INT => text::write_integer(self.out, i64::from(value.int())),
            c::JS_TAG_FLOAT64 => text::write_number(self.out, value.float()),
            c::JS_TAG_BOOL => self.out.extend_from_slice(if value.int() == 0 { b"false" } else { b"true" }),
            c::JS_TAG_NULL => self.out.extend_from_slice(b"null"),
            c::JS_TAG_STRING | c::JS_TAG_STRING_ROPE => {
                let text = self.context.text(value)?;
                text::write_string(self.out, text.bytes());
                self.check_length()?;
            }
            c::JS_TAG_OBJECT => return self.object(value, key),
            c::JS_TAG_UNDEFINED | c::JS_TAG_SYMBOL => return Ok(false),
            _ => {
                return Err(self.context.throw_type_error(c"BigInt are forbidden in JSON.stringify").into());
            }
        }
        Ok(true)
    }

    fn check_length(&self) -> Result<(), WriteError> {
        if self.out.len() > self.end { Err(WriteError::TooLong) } else { Ok(()) }
    }

    fn object(&mut self, value: Ref<'_>, key: Key) -> Result<bool, WriteError> {
        let convert = self.context.get(value, c::JS_ATOM_toJSON)?;
        if convert.borrow().is_object() && self.context.is_function(convert.borrow()) {
            let name = match key {
                Key::Top => self.context.string(b"")?,
                Key::Index(index) => self.context.string(index.to_string().as_bytes())?,
                Key::Name(atom) => self.context.atom_to_value(atom)?,
            };
            let converted = self.context.call(convert.borrow(), value, &[name.borrow()])?;
            let converted = converted.borrow();
            return if converted.is_object() { self.plain_object(converted) } else { self.value(converted, key) };
        }
        self.plain_object(value)
    }

    fn plain_object(&mut self, value: Ref<'_>) -> Result<bool, WriteError> {
        let depth = self.path.len();
        if let Some(text) = self.host.documents.text_of(value) {
            let copied = text::copy_value(text, 0, self.out, depth);
            return match copied {
                Ok(_) => self.check_length().map(|()| true),
                Err(text::TooDeep) => Err(self.too_deep()),
            };
        }
        if self.context.is_function(value) {
            return Ok(false);
        }
        let identity = value.identity();
        if self.path.contains(&identity) {
            return Err(self.context.throw_type_error(c"circular reference").into());
        }
        if depth >= MAX_DEPTH {
            return Err(self.too_deep());
        }
        self.path.push(identity);
        let written = if value.is_array() {
            self.array(value).map(|()| true)
        } else if value.class() == self.host.plain_class {
            self.members(value).map(|()| true)
        } else if value.is_error() {
            self.error(value).map(|()| true)
        } else {
            self.uncommon(value, depth)
        };
        self.path.pop();
        written
    }

    fn too_deep(&self) -> WriteError {
        self.context.throw_range_error("JSON nested too deeply").into()
    }

    fn array(&mut self, value: Ref<'_>) -> Result<(), WriteError> {
        self.out.push(b'[');
        let length = self.context.length(value)?;
        for index in 0..u32::try_from(length).unwrap_or(u32::MAX) {
            if index > 0 {
                self.out.push(b',');
            }
            let element = self.context.get_index(value, index)?;
            if !self.value(element.borrow(), Key::Index(index))? {
                self.out.extend_from_slice(b"null");
            }
            self.check_length()?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn members(&mut self, value: Ref<'_>) -> Result<(), WriteError> {
        self.out.push(b'{');
        let names = self.context.own_names(value)?;
        let first = self.out.len();
        for atom in names.atoms() {
            let member = self.context.get(value, atom)?;
            let before = self.out.len();
            if before > first {
                self.out.push(b',');
            }
            let name = self.context.atom_text(atom)?;
            text::write_string(self.out, name.bytes());
            self.out.push(b':');
            if !self.value(member.borrow(), Key::Name(atom))? {
                self.out.truncate(before);
            }
            self.check_length()?;
        }
        self.out.push(b'}');
        Ok(())
    }

    /// CouchDB's query server converts errors to `{"error":name,"message":message}`.
    fn error(&mut self, value: Ref<'_>) -> Result<(), WriteError> {
        for (head, name) in [("{\"error\":", c"name"), (",\"message\":", c"message")] {
            let part = self.context.get_named(value, name)?;
            let part = self.context.text(part.borrow())?;
            self.out.extend_from_slice(head.as_bytes());
            text::write_string(self.out, part.bytes());
        }
        self.out.push(b'}');
        Ok(())
    }

    /// Boxed primitives, dates without their `toJSON`, proxies, maps and so on.
    fn uncommon(&mut self, value: Ref<'_>, depth: usize) -> Result<bool, WriteError> {
        let json = self.context.stringify(value)?;
        if json.borrow().is_undefined() {
            return Ok(false);
        }
        let text = self.context.text(json.borrow())?;
        match text::copy_value(text::without_surrogates(text.bytes()).as_bytes(), 0, self.out, depth) {
            Ok(_) => self.check_length().map(|()| true),
            Err(text::TooDeep) => Err(self.too_deep()),
        }
    }
}
