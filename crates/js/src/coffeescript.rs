//! CoffeeScript as a view language: [`CoffeeScript`] compiles functions to JavaScript and delegates their execution.
//! The compiler runs in the sandbox of user code, as a module of an internal design document, because its sources are
//! untrusted. As in CouchDB, modules (`views.lib`, `require`) are JavaScript.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use settee_design::{
    CallError, CompileError, DesignProgram, DesignSource, Language, Limits, MapSource, Program, Reducer, SearchKind,
};
use settee_model::json::{self, Kind, Value};

use crate::language::JavaScript;

const COMPILER: &str = include_str!("coffeescript/compiler.js");

const COMPILE: &str = "function (doc, req) {
  try {
    return [{javascript: require('compiler').CoffeeScript.compile(req.source, {bare: true})}, ''];
  } catch (e) {
    if (Array.isArray(e)) {
      throw e;
    }
    var line = e.location ? ' on line ' + (e.location.first_line + 1) : '';
    throw ['error', 'compilation_error', e.name + ': ' + e.message + line + ' (' + req.source + ')'];
  }
}";

const COMPILE_TIMEOUT_MS: u64 = 20_000;

/// Maximum size of compiled functions with their sources.
const CACHE_BYTES: usize = 8 << 20;

/// CouchDB's `"language": "coffeescript"`. Clones share the cache.
#[derive(Clone)]
pub struct CoffeeScript {
    javascript: JavaScript,
    compiler: Arc<DesignSource>,
    cache: Arc<Mutex<Cache>>,
}

#[derive(Default)]
struct Cache {
    compiled: HashMap<Arc<str>, Arc<str>>,
    bytes: usize,
}

impl CoffeeScript {
    #[must_use]
    pub fn new(javascript: JavaScript) -> Self {
        let mut text = b"{\"compiler\":".to_vec();
        json::write_string(&mut text, &format!("(function () {{ {COMPILER} }}).call(exports);"));
        text.extend_from_slice(b",\"updates\":{\"compile\":");
        json::write_string(&mut text, COMPILE);
        text.extend_from_slice(b"}}");
        let (id, rev) = ("coffeescript".into(), "compiler".into());
        let compiler = Arc::new(DesignSource { database: u64::MAX, id, rev, json: text.into() });
        Self { javascript, compiler, cache: Arc::default() }
    }

    fn compile(&self, source: &Arc<str>) -> Result<Arc<str>, CompileError> {
        if let Some(compiled) = self.cache.lock().compiled.get(source) {
            return Ok(Arc::clone(compiled));
        }
        let mut request = b"{\"source\":".to_vec();
        json::write_string(&mut request, source);
        request.push(b'}');
        let limits = Limits { timeout_ms: COMPILE_TIMEOUT_MS, ..Limits::default() };
        let mut compiler = self.javascript.design_program(&self.compiler, limits)?;
        let answer = compiler.call(&["updates", "compile"], &[b"null", &request]).map_err(|error| match error {
            CallError::Failed { name, reason } if name == "compilation_error" => CompileError::Source(reason),
            error => CompileError::Unavailable(format!("the CoffeeScript compiler: {error}")),
        })?;
        let document = Value::trusted(&answer).elements().nth(1);
        let javascript = document.and_then(|document| document.get("javascript")).and_then(Value::as_str);
        let strange =
            || CompileError::Unavailable("the CoffeeScript compiler returned an unexpected result".to_owned());
        let compiled: Arc<str> = javascript.ok_or_else(strange)?.into();
        self.cache.lock().insert(source, &compiled);
        Ok(compiled)
    }

    /// CouchDB compiles a function at its first call, so an invalid function fails only then.
    fn compile_or_fail(&self, source: &str) -> Result<Arc<str>, CompileError> {
        match self.compile(&source.into()) {
            Err(CompileError::Source(reason)) => {
                let mut text = b"function () { throw ['error', 'compilation_error', ".to_vec();
                json::write_string(&mut text, &reason);
                text.extend_from_slice(b"]; }");
                Ok(String::from_utf8_lossy(&text).into())
            }
            compiled => compiled,
        }
    }

    fn translate(&self, document: Value<'_>) -> Result<Vec<u8>, CompileError> {
        let mut out = Vec::new();
        write_members(&mut out, document, |out, name, value| match name {
            "validate_doc_update" | "rewrites" => self.write_function(out, value),
            "shows" | "lists" | "updates" | "filters" => {
                write_members(out, value, |out, _, value| self.write_function(out, value))
            }
            "views" => write_members(out, value, |out, name, view| match name {
                "lib" => write(out, view),
                _ => write_members(out, view, |out, name, value| match name {
                    "map" => self.write_function(out, value),
                    _ => write(out, value),
                }),
            }),
            _ => write(out, value),
        })?;
        Ok(out)
    }

    fn write_function(&self, out: &mut Vec<u8>, value: Value<'_>) -> Result<(), CompileError> {
        let Some(source) = value.as_str() else {
            return write(out, value);
        };
        json::write_string(out, &self.compile_or_fail(&source)?);
        Ok(())
    }
}

impl Language for CoffeeScript {
    fn name(&self) -> &str {
        "coffeescript"
    }

    fn program(&self, source: &MapSource, limits: Limits) -> Result<Box<dyn Program>, CompileError> {
        let functions = source.functions.iter().map(|function| self.compile(function)).collect::<Result<_, _>>()?;
        self.javascript.program(&MapSource { functions, library: source.library.clone() }, limits)
    }

    fn index_program(
        &self,
        kind: SearchKind,
        source: &MapSource,
        limits: Limits,
    ) -> Result<Box<dyn Program>, CompileError> {
        let functions = source.functions.iter().map(|function| self.compile(function)).collect::<Result<_, _>>()?;
        self.javascript.index_program(kind, &MapSource { functions, library: source.library.clone() }, limits)
    }

    fn reducer(&self, source: &str, limits: Limits) -> Result<Box<dyn Reducer>, CompileError> {
        let source = self.compile(&source.into())?;
        self.javascript.reducer(&source, limits)
    }

    fn design_program(&self, source: &DesignSource, limits: Limits) -> Result<Box<dyn DesignProgram>, CompileError> {
        let json = self.translate(Value::trusted(&source.json))?.into();
        self.javascript.design_program(&DesignSource { json, ..source.clone() }, limits)
    }
}

impl Cache {
    fn insert(&mut self, source: &Arc<str>, compiled: &Arc<str>) {
        let bytes = source.len() + compiled.len();
        if self.bytes + bytes > CACHE_BYTES {
            *self = Self::default();
        }
        if bytes <= CACHE_BYTES && self.compiled.insert(Arc::clone(source), Arc::clone(compiled)).is_none() {
            self.bytes += bytes;
        }
    }
}

fn write_members(
    out: &mut Vec<u8>,
    object: Value<'_>,
    mut write_value: impl FnMut(&mut Vec<u8>, &str, Value<'_>) -> Result<(), CompileError>,
) -> Result<(), CompileError> {
    if object.kind() != Kind::Object {
        return write(out, object);
    }
    out.push(b'{');
    for (number, (name, value)) in object.members().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        out.extend_from_slice(name.raw());
        out.push(b':');
        write_value(out, &name.as_str().unwrap_or_default(), value)?;
    }
    out.push(b'}');
    Ok(())
}

fn write(out: &mut Vec<u8>, value: Value<'_>) -> Result<(), CompileError> {
    out.extend_from_slice(value.raw());
    Ok(())
}
