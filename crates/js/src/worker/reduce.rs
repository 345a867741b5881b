//! Reducing: one function on many groups of rows. Keys are sent and parsed only for functions that may use them
//! ([`uses_keys`]).

use settee_design::Limits;

use super::emit::{WriteError, write_json};
use super::engine::{Engine, Function};
use super::map::{Halt, classify};
use super::qjs::{Context, Ref, Thrown, Value};
use crate::protocol::Writer;
use settee_native::text;

/// Maximum per request; further lines are dropped.
const LOG_BYTES: usize = 256 << 10;

pub(super) struct ReduceProgram {
    function: Function,
    scratch: Vec<u8>,
    log: Vec<String>,
    log_bytes: usize,
    // The last field: all objects of the engine must be dropped before it.
    engine: Engine,
}

impl ReduceProgram {
    /// The error is CouchDB's text.
    pub(super) fn compile(source: &str, limits: Limits) -> Result<Self, String> {
        let mut engine = Engine::new(limits).ok_or("InternalError: out of memory")?;
        let function = engine.function(source, 0, None)?;
        engine.pin_pages();
        Ok(Self { function, scratch: Vec::new(), log: Vec::new(), log_bytes: 0, engine })
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(super) fn take_log(&mut self) -> Vec<String> {
        self.log_bytes = 0;
        std::mem::take(&mut self.log)
    }

    fn keep_log(&mut self) {
        for line in self.engine.host().emitter.take_log() {
            self.log_bytes += line.len();
            if self.log_bytes <= LOG_BYTES {
                self.log.push(line);
            }
        }
    }

    /// Appends the length and the text of the reduction, which is empty if it is too long. `keys` is the JSON text of
    /// the keys, or `null` for a rereduce; `values` is that of an array.
    pub(super) fn reduce(&mut self, keys: &[u8], values: &[u8], rereduce: bool, out: &mut Vec<u8>) -> Result<(), Halt> {
        let host = self.engine.host();
        let context = self.function.context;
        host.clock.start();
        self.engine.heap().take_exhausted();
        let mark = host.emitter.begin_function(0, 0, host.limits);
        let start = out.len();
        Writer(out).u64(0);
        let body = out.len();
        let written = self.call(keys, values, rereduce).map_err(WriteError::from).and_then(|result| {
            let host = self.engine.host();
            write_json(host, context, result.borrow(), out, host.limits.reduction_bytes)
        });
        let host = self.engine.host();
        host.emitter.drop_rows(mark);
        self.keep_log();
        match written {
            Ok(()) => {}
            // The server inserts the replacement for an empty text.
            Err(WriteError::TooLong) => out.truncate(body),
            Err(WriteError::Thrown) => {
                classify(&self.engine, context, &context.take_exception())?;
                out.truncate(body);
                out.extend_from_slice(b"null");
            }
        }
        let len = (out.len() - body) as u64;
        out[start..body].copy_from_slice(&len.to_le_bytes());
        Ok(())
    }

    fn call(&mut self, keys: &[u8], values: &[u8], rereduce: bool) -> Result<Value, Thrown> {
        let context = self.function.context;
        let keys = self.value(context, keys)?;
        let values = self.array(context, values)?;
        let arguments = [keys.borrow(), values.borrow(), Ref::boolean(rereduce)];
        context.call(self.function.value.borrow(), Ref::UNDEFINED, &arguments)
    }

    fn array(&mut self, context: Context, json: &[u8]) -> Result<Value, Thrown> {
        let mut elements = Vec::new();
        let mut at = 1;
        while !matches!(json.get(at), Some(b']') | None) {
            if json[at] == b',' {
                at += 1;
            }
            let end = text::skip_value(json, at).max(at + 1);
            elements.push(self.value(context, json.get(at..end).unwrap_or_default())?);
            at = end;
        }
        context.array(elements)
    }

    fn value(&mut self, context: Context, json: &[u8]) -> Result<Value, Thrown> {
        match json.first() {
            Some(b'-' | b'0'..=b'9') => Ok(context.number(text::number(json))),
            Some(b'"') if !json.contains(&b'\\') => context.string(json.get(1..json.len() - 1).unwrap_or_default()),
            _ => {
                self.scratch.clear();
                self.scratch.extend_from_slice(json);
                context.parse_json(&mut self.scratch)
            }
        }
    }
}

/// Returns false only if the source names neither its first parameter nor `arguments` again, nor contains an escape.
pub(super) fn uses_keys(source: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80;
    let mut words = source.split(|character: char| !u8::try_from(character).map_or(true, is_part));
    let Some(head) = source.trim_start().strip_prefix("function") else {
        return true;
    };
    let Some((before, parameters)) = head.split_once('(') else {
        return true;
    };
    let Some((parameters, _)) = parameters.split_once(')') else {
        return true;
    };
    let simple = |name: &str| name.bytes().all(is_part);
    if source.contains("\\u") || !simple(before.trim()) || words.any(|word| word == "arguments") {
        return true;
    }
    let mut names = parameters.split(',').map(str::trim);
    if !names.clone().all(simple) {
        return true;
    }
    match names.next() {
        None | Some("") => false,
        Some(first) => {
            let all = source.split(|character: char| !u8::try_from(character).map_or(true, is_part));
            all.filter(|word| *word == first).count() > 1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unused_only_where_that_is_certain() {
        let unused = [
            "function(keys, values) { return sum(values); }",
            "function (k, v, r) { return v.length }",
            "function() { return 1 }",
            "function named(k$, v) { return v[0]; }",
        ];
        let used = [
            "function(keys, values) { return keys.length; }",
            "function(keys, values) { /* keys */ return 1; }",
            "function(k, v) { return arguments[0]; }",
            "function(k, v) { return \\u006b; }",
            "function({length}, v) { return length; }",
            "function(k = 1, v) { return 1; }",
            "(k, v) => v.length",
            "var a; function(k, v) { return 1; }",
            "function(k /* first */, v) { return 1; }",
        ];
        for source in unused {
            assert!(!uses_keys(source), "{source}");
        }
        for source in used {
            assert!(uses_keys(source), "{source}");
        }
    }
}
