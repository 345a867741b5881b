//! Mapping: every function of a program on every document of a request. After an exception a document emits nothing;
//! some exceptions end the request ([`Halt`]).
#![expect(unsafe_code, reason = "hands documents in shared memory to the engine")]

use std::rc::Rc;

use settee_design::Limits;

use super::engine::{self, Engine, Function, Host};
use super::lazy::Source;
use super::qjs::{Context, Ref, Thrown, Value};
use crate::protocol::{Progress, RecordKind, Stop};

pub(super) struct MapProgram {
    functions: Vec<Function>,
    source: Rc<Source>,
    // The last field: all objects of the engine must be dropped before it.
    engine: Engine,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Halt {
    pub(super) stop: Stop,
    pub(super) name: String,
    pub(super) reason: String,
}

impl MapProgram {
    /// `search` is the number of the type of search index. The error is CouchDB's text.
    pub(super) fn compile(
        functions: &[&str],
        search: u32,
        library: Option<&str>,
        limits: Limits,
    ) -> Result<Self, String> {
        let mut engine = Engine::new(limits).ok_or("InternalError: out of memory")?;
        let functions =
            functions.iter().map(|source| engine.function(source, search, library)).collect::<Result<Vec<_>, _>>()?;
        engine.pin_pages();
        let source = engine.host().documents.source();
        Ok(Self { functions, source, engine })
    }

    pub(super) fn functions(&self) -> u16 {
        u16::try_from(self.functions.len()).unwrap_or(u16::MAX)
    }

    pub(super) fn map(
        &mut self,
        document: u32,
        index: u16,
        text: &[u8],
        progress: impl Fn(Progress),
    ) -> Result<(), Halt> {
        let host = self.engine.host();
        let function = &self.functions[usize::from(index)];
        progress(Progress { document, function: index });
        let mark = host.emitter.begin_function(document, index, host.limits);
        host.clock.start();
        self.engine.heap().take_exhausted();
        let called = call(host, function, &self.source, text);
        host.documents.release(&mut self.source);
        let excess = host.emitter.excess();
        if called.is_ok() && excess.is_none() {
            host.emitter.write_log();
        } else {
            host.emitter.drop_rows(mark);
            let exception = called.is_err().then(|| function.context.take_exception());
            let message = match (excess, exception) {
                // A function that caught the exception and continued until the time limit is ended for exceeding the
                // time.
                (_, Some(exception)) if excess.is_none() || host.clock.has_expired() => {
                    classify(&self.engine, function.context, &exception)?
                }
                (Some(excess), _) if excess.ends_build() => {
                    return Err(Halt { stop: Stop::Limit, name: String::new(), reason: excess.reason() });
                }
                (excess, _) => excess.map_or_else(String::new, |excess| excess.to_string()),
            };
            host.emitter.write_log();
            host.emitter.write_text(RecordKind::Failure, &message);
        }
        if host.documents.kept_bytes() > host.limits.memory_bytes {
            let reason = "out of memory: functions keep too many documents".to_owned();
            return Err(Halt { stop: Stop::Engine, name: String::new(), reason });
        }
        Ok(())
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }
}

fn call(host: &Host, function: &Function, source: &Rc<Source>, text: &[u8]) -> Result<(), Thrown> {
    let context = function.context;
    // SAFETY: the caller releases the document while `text` is still borrowed.
    let document = unsafe { host.documents.document(context, source, text)? };
    let result = context.call(function.value.borrow(), Ref::UNDEFINED, &[document.borrow()])?;
    drop(result);
    host.emitter.write_rows(host, context)
}

pub(super) fn classify(engine: &Engine, context: Context, exception: &Value) -> Result<String, Halt> {
    let host = engine.host();
    let halt = |stop, name: &str, reason: String| Err(Halt { stop, name: name.to_owned(), reason });
    if host.clock.has_expired() {
        return halt(Stop::Timeout, "", String::new());
    }
    if engine.heap().take_exhausted() {
        return halt(Stop::Engine, "", "out of memory".to_owned());
    }
    let thrown = exception.borrow();
    if thrown.is_string() {
        let text = engine::describe(context, exception);
        if text == "fatal_error" {
            return halt(Stop::Requested, "map_runtime_error", "function raised 'fatal_error'".to_owned());
        }
        return Ok(text);
    }
    let part = |index| {
        let value = context.get_index(thrown, index).map_err(|Thrown| drop(context.take_exception())).ok()?;
        Some(engine::describe(context, &value))
    };
    if thrown.is_array() && part(0).as_deref() == Some("fatal") {
        return halt(Stop::Requested, &part(1).unwrap_or_default(), part(2).unwrap_or_default());
    }
    let text = engine::describe(context, exception);
    if thrown.is_error() {
        // CouchDB's engines report InternalError, which ends the query server.
        if let Some(reason) = text.strip_prefix("InternalError: ") {
            return halt(Stop::Engine, "", reason.to_owned());
        }
        if text == "RangeError: Maximum call stack size exceeded" {
            return halt(Stop::Engine, "", "too much recursion".to_owned());
        }
    }
    if host.clock.has_expired() {
        return halt(Stop::Timeout, "", String::new());
    }
    Ok(text)
}
