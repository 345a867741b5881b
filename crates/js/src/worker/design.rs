//! [`DesignFunctions`]: the functions of one design document in a separate engine, with one global environment and one
//! module cache. Each is compiled at its first call. Thrown values are sent as JSON. `design.js` creates the results.
#![expect(unsafe_code, reason = "gives native functions to scripts")]

use std::ffi::c_int;
use std::io;
use std::rc::Rc;

use rquickjs::qjs as c;
use settee_design::Limits;

use super::connection::{ServerConnection, protocol_error};
use super::emit::{WriteError, write_json};
use super::engine::{Engine, Host, arguments};
use super::map::Halt;
use super::qjs::{Context, Ref, Thrown, Value};
use super::session::OutputTooLarge;
use crate::protocol::{Frame, Kind, Progress, Reader, Stop, Writer};

const SCRIPT: &str = include_str!("design.js");

const THROWN_BYTES: u64 = 64 << 10;

pub(super) struct DesignFunctions {
    context: Context,
    // Functions of `design.js`. The last one converts a thrown value to an error of CouchDB's query server.
    call: Value,
    filter: Value,
    list: Value,
    explain: Value,
    connection: Rc<ServerConnection>,
    // The last field: all objects of the engine must be dropped before it.
    engine: Engine,
}

type Served = io::Result<Result<(), Halt>>;

impl DesignFunctions {
    pub(super) fn new(
        id: &str,
        document: &str,
        limits: Limits,
        connection: Rc<ServerConnection>,
    ) -> Result<Self, String> {
        let failed = || format!("{id} cannot be loaded: out of memory");
        let mut engine = Engine::new(limits).ok_or_else(failed)?;
        let (context, helpers) = engine.user_context(Some(document)).ok_or_else(failed)?;
        let made = initialise(engine.host(), context, helpers.borrow()).map_err(|Thrown| {
            drop(context.take_exception());
            failed()
        })?;
        let member = |name| context.get_named(made.borrow(), name).map_err(|Thrown| failed());
        let (call, filter, list) = (member(c"call")?, member(c"filter")?, member(c"list")?);
        let explain = member(c"explain")?;
        drop((made, helpers));
        engine.pin_pages();
        Ok(Self { context, call, filter, list, explain, connection, engine })
    }

    pub(super) fn serve(&mut self, frame: Frame) -> Served {
        let request = self.connection.input(frame)?.to_vec();
        self.engine.enter();
        self.engine.heap().take_exhausted();
        let host = self.engine.host();
        host.clock.start();
        host.emitter.begin_function(0, 0, host.limits);
        let mut input = Reader(&request);
        match frame.kind {
            Kind::Filter => self.run_filter(&mut input),
            Kind::List => self.run_list(&mut input),
            _ => self.run_call(&mut input),
        }
    }

    fn run_call(&self, input: &mut Reader<'_>) -> Served {
        let path = read_path(input).ok_or_else(garbled)?;
        let count = input.u32().ok_or_else(garbled)?;
        let texts = (0..count).map(|_| input.bytes()).collect::<Option<Vec<_>>>().ok_or_else(garbled)?;
        let called = self.path(&path).and_then(|path| {
            let mut values = vec![path];
            for text in texts {
                values.push(self.parse(text)?);
            }
            let values: Vec<Ref<'_>> = values.iter().map(Value::borrow).collect();
            self.context.call(self.call.borrow(), Ref::UNDEFINED, &values)
        });
        let mut out = Vec::new();
        let written = called.map_err(WriteError::from).and_then(|result| {
            let host = self.engine.host();
            write_json(host, self.context, result.borrow(), &mut out, host.limits.bytes_per_document)
        });
        match written {
            Ok(()) => self.answer(Kind::Done, &out),
            Err(WriteError::Thrown) => self.threw(),
            Err(WriteError::TooLong) => {
                let reason = "returned more bytes than allowed".to_owned();
                Ok(Err(Halt { stop: Stop::Limit, name: String::new(), reason }))
            }
        }
    }

    fn run_filter(&self, input: &mut Reader<'_>) -> Served {
        let path = read_path(input).ok_or_else(garbled)?;
        let request = input.bytes().ok_or_else(garbled)?;
        let count = input.u32().ok_or_else(garbled)?;
        let prepared = self.path(&path).and_then(|path| {
            let pass = self.context.call(self.filter.borrow(), Ref::UNDEFINED, &[path.borrow()])?;
            Ok((pass, self.parse(request)?))
        });
        let Ok((pass, request)) = prepared else {
            return self.threw();
        };
        let mut verdicts = Vec::with_capacity(count as usize);
        for document in 0..count {
            let text = input.bytes().ok_or_else(garbled)?;
            self.connection.report(Progress { document, function: 0 });
            self.engine.host().clock.start();
            let passed = self.parse(text).and_then(|document| {
                let given = [document.borrow(), request.borrow()];
                self.context.call(pass.borrow(), Ref::UNDEFINED, &given)
            });
            match passed {
                Ok(passed) => verdicts.push(u8::from(passed.borrow().is_true())),
                Err(Thrown) => return self.threw(),
            }
        }
        self.answer(Kind::Done, &verdicts)
    }

    fn run_list(&self, input: &mut Reader<'_>) -> Served {
        let path = read_path(input).ok_or_else(garbled)?;
        let head = input.bytes().ok_or_else(garbled)?;
        let request = input.bytes().ok_or_else(garbled)?;
        let session = &self.engine.host().session;
        session.begin(Rc::clone(&self.connection));
        let called = self.path(&path).and_then(|path| {
            let (head, request) = (self.parse(head)?, self.parse(request)?);
            let given = [path.borrow(), head.borrow(), request.borrow()];
            self.context.call(self.list.borrow(), Ref::UNDEFINED, &given)
        });
        if let Err(Thrown) = called {
            session.abandon();
            return self.threw();
        }
        session.end();
        self.answer(Kind::Done, b"")
    }

    fn path(&self, path: &[&str]) -> Result<Value, Thrown> {
        let names = path.iter().map(|name| self.context.string(name.as_bytes())).collect::<Result<Vec<_>, _>>()?;
        self.context.array(names)
    }

    fn parse(&self, json: &[u8]) -> Result<Value, Thrown> {
        self.context.parse_json(&mut json.to_vec())
    }

    fn threw(&self) -> Served {
        let (host, context) = (self.engine.host(), self.context);
        let exception = context.take_exception();
        let halt = |stop, reason: &str| Ok(Err(Halt { stop, name: String::new(), reason: reason.to_owned() }));
        if host.clock.has_expired() {
            return halt(Stop::Timeout, "");
        }
        if self.engine.heap().take_exhausted() {
            return halt(Stop::Engine, "out of memory");
        }
        let mut out = Vec::new();
        let explained = context.call(self.explain.borrow(), Ref::UNDEFINED, &[exception.borrow()]);
        let written = explained
            .map_err(WriteError::from)
            .and_then(|explained| write_json(host, context, explained.borrow(), &mut out, THROWN_BYTES));
        if let Err(error) = written {
            if let WriteError::Thrown = error {
                drop(context.take_exception());
            }
            if host.clock.has_expired() {
                return halt(Stop::Timeout, "");
            }
            out = br#"["error","unnamed_error","an exception without a text"]"#.to_vec();
        }
        self.answer(Kind::Threw, &out)
    }

    fn answer(&self, kind: Kind, bytes: &[u8]) -> Served {
        self.engine.run_jobs();
        let lines = self.engine.host().emitter.take_log();
        if !lines.is_empty() {
            let mut text = Vec::new();
            lines.iter().for_each(|line| Writer(&mut text).bytes(line.as_bytes()));
            self.connection.send_part(Kind::Log, &text)?;
        }
        self.connection.answer(kind, bytes).map(Ok)
    }
}

fn garbled() -> io::Error {
    protocol_error("a garbled call")
}

fn read_path<'a>(input: &mut Reader<'a>) -> Option<Vec<&'a str>> {
    let count = input.u32()?;
    (0..count).map(|_| input.text()).collect()
}

fn initialise(host: &Host, context: Context, prelude: Ref<'_>) -> Result<Value, Thrown> {
    let native = context.object()?;
    let add = |name, function, parameters| {
        context.set_named(native.borrow(), name, context.function(function, name, parameters)?)
    };
    add(c"compileFunction", compile_function, 1)?;
    add(c"respond", respond, 1)?;
    add(c"send", send, 1)?;
    add(c"nextRow", next_row, 0)?;
    let script = context.run(&host.compile(SCRIPT, c"design")?)?;
    let root = context.get_named(prelude, c"root")?;
    let document = context.call(root.borrow(), Ref::UNDEFINED, &[])?;
    let global = context.global();
    let log = context.get_named(global.borrow(), c"log")?;
    let given = [native.borrow(), document.borrow(), log.borrow()];
    let made = context.call(script.borrow(), Ref::UNDEFINED, &given)?;
    let globals = context.get_named(made.borrow(), c"globals")?;
    for name in [c"provides", c"registerType", c"start", c"send", c"getRow", c"emit"] {
        context.set_named(global.borrow(), name, context.get_named(globals.borrow(), name)?)?;
    }
    Ok(made)
}

unsafe extern "C" fn compile_function(
    raw: *mut c::JSContext,
    _this: c::JSValue,
    count: c_int,
    values: *mut c::JSValue,
) -> c::JSValue {
    // SAFETY: the engine calls with a live context of ours and `count` live values.
    let (context, host, [source]) = unsafe { (Context::new(raw), Host::of(raw), arguments(count, values)) };
    let compile = || {
        let source = context.text(source)?.to_text();
        host.function(context, &source).or_else(|message| {
            let parts = ["error", "compilation_error", &message].map(|part| context.string(part.as_bytes()));
            let parts = parts.into_iter().collect::<Result<Vec<_>, _>>()?;
            Err(context.throw(context.array(parts)?))
        })
    };
    compile().map_or(c::JS_EXCEPTION, Value::into_raw)
}

unsafe extern "C" fn respond(
    raw: *mut c::JSContext,
    _this: c::JSValue,
    count: c_int,
    values: *mut c::JSValue,
) -> c::JSValue {
    // SAFETY: the engine calls with a live context of ours and `count` live values.
    let (context, host, [response]) = unsafe { (Context::new(raw), Host::of(raw), arguments(count, values)) };
    let mut text = Vec::new();
    let responded = match write_json(host, context, response, &mut text, host.limits.bytes_per_document) {
        Ok(()) => host.session.respond(context, text),
        Err(WriteError::Thrown) => Err(Thrown),
        Err(WriteError::TooLong) => Err(context.throw_range_error("response headers too long")),
    };
    responded.map_or(c::JS_EXCEPTION, |()| c::JS_UNDEFINED)
}

unsafe extern "C" fn send(
    raw: *mut c::JSContext,
    _this: c::JSValue,
    count: c_int,
    values: *mut c::JSValue,
) -> c::JSValue {
    // SAFETY: the engine calls with a live context of ours and `count` live values.
    let (context, host, [chunk]) = unsafe { (Context::new(raw), Host::of(raw), arguments(count, values)) };
    match context.text(chunk) {
        Ok(text) => match host.session.send(&host.clock, host.limits.memory_bytes, text.to_text().as_bytes()) {
            Ok(()) => c::JS_UNDEFINED,
            Err(OutputTooLarge) => {
                let Thrown = context.throw_range_error("too much was sent without reading a row");
                c::JS_EXCEPTION
            }
        },
        Err(Thrown) => c::JS_EXCEPTION,
    }
}

unsafe extern "C" fn next_row(
    raw: *mut c::JSContext,
    _this: c::JSValue,
    _count: c_int,
    _values: *mut c::JSValue,
) -> c::JSValue {
    // SAFETY: the engine calls with a live context of ours.
    let (context, host) = unsafe { (Context::new(raw), Host::of(raw)) };
    host.session.next_row(&host.clock, context).map_or(c::JS_EXCEPTION, Value::into_raw)
}
