//! An engine with limits: [`Engine`] compiles functions and creates a global environment for each. Sources are compiled
//! to bytecode in a context that user code cannot access, and run in contexts without `eval` and `Function`. Each
//! function has a separate context, because each has a separate index: a change of `Array.prototype` by one function
//! must not affect the rows of another. Changes of an environment last until the program ends.
#![expect(unsafe_code, reason = "sets up the JavaScript engine")]

use std::ffi::{CStr, CString, c_int, c_void};
use std::time::Duration;

use rquickjs::qjs as c;
use settee_design::Limits;

use super::clock::Clock;
use super::emit::Emitter;
use super::heap::Heap;
use super::lazy::Documents;
use super::qjs::{Context, Ref, Thrown, Value};
use super::session::Session;

/// Stack for scripts. The process has 8 MiB by default; native callbacks need a part of it.
const STACK_BYTES: usize = 2 << 20;

const MESSAGE_BYTES: usize = 4096;

const PRELUDE: &str = include_str!("prelude.js");
const INDEX: &str = include_str!("index.js");

pub(super) struct Host {
    pub(super) limits: Limits,
    pub(super) documents: Documents,
    pub(super) plain_class: c::JSClassID,
    pub(super) emitter: Emitter,
    pub(super) session: Session,
    pub(super) clock: Clock,
    compiler: Context,
}

impl Host {
    /// # Safety
    ///
    /// The context must belong to an [`Engine`].
    pub(super) unsafe fn of<'a>(context: *mut c::JSContext) -> &'a Host {
        // SAFETY: the engine's runtime carries the address of its boxed host, which it outlives.
        unsafe { Host::of_runtime(c::JS_GetRuntime(context)).expect("an engine sets its host first") }
    }

    /// Returns `None` while the runtime is being freed.
    ///
    /// # Safety
    ///
    /// The runtime must belong to an [`Engine`].
    pub(super) unsafe fn of_runtime<'a>(runtime: *mut c::JSRuntime) -> Option<&'a Host> {
        // SAFETY: as for `of`.
        unsafe { c::JS_GetRuntimeOpaque(runtime).cast::<Host>().as_ref() }
    }

    pub(super) fn compile(&self, source: &str, name: &CStr) -> Result<Vec<u8>, Thrown> {
        self.compiler.compile(source, name)
    }

    /// The error is CouchDB's text.
    pub(super) fn function(&self, context: Context, source: &str) -> Result<Value, String> {
        let refuse = |context: Context| Err(format!("{} ({source})", describe(context, &context.take_exception())));
        let script = match compile_function(self.compiler, source) {
            Ok(script) => script,
            Err(Thrown) => return refuse(self.compiler),
        };
        let value = match context.run(&script) {
            Ok(value) => value,
            Err(Thrown) => {
                let exception = context.take_exception();
                match self.run_as_statements(context, source) {
                    Some(value) => value,
                    None => return Err(format!("{} ({source})", describe(context, &exception))),
                }
            }
        };
        if context.is_function(value.borrow()) {
            Ok(value)
        } else {
            Err(format!("Expression does not eval to a function. ({source})"))
        }
    }

    /// Returns the value of a source that declares a function and then names it: `function map(doc) { … }; map`. As an
    /// expression after a comma, the name would be undefined.
    fn run_as_statements(&self, context: Context, source: &str) -> Option<Value> {
        let Ok(script) = self.compiler.compile(source, c"function") else {
            drop(self.compiler.take_exception());
            return None;
        };
        let value = context.run(&script);
        if value.is_err() {
            drop(context.take_exception());
        }
        value.ok()
    }
}

pub(super) struct Engine {
    runtime: *mut c::JSRuntime,
    host: Option<Box<Host>>,
    contexts: Vec<Context>,
    prelude: Vec<u8>,
    pinned_blocks: Vec<*mut c_void>,
    // Boxed, because the runtime stores its address; dropped after the runtime.
    heap: Box<Heap>,
}

pub(super) struct Function {
    pub(super) context: Context,
    pub(super) value: Value,
}

impl Engine {
    pub(super) fn new(limits: Limits) -> Option<Self> {
        // SAFETY: a fresh runtime, configured before anything runs in it; the host is boxed, so its address is stable,
        // and dropped after the runtime.
        unsafe {
            let heap = Box::new(Heap::new(limits.memory_bytes));
            let allocate = Heap::functions();
            let runtime = c::JS_NewRuntime2(&raw const allocate, (&raw const *heap).cast_mut().cast());
            if runtime.is_null() {
                return None;
            }
            c::JS_SetMaxStackSize(runtime, STACK_BYTES as _);
            let mut engine = Self {
                runtime,
                host: None,
                contexts: Vec::new(),
                prelude: Vec::new(),
                pinned_blocks: Vec::new(),
                heap,
            };
            let documents = Documents::new(runtime)?;
            let compiler = engine.bare_context()?;
            c::JS_AddIntrinsicEval(compiler.raw());
            let plain_class = compiler.object().ok()?.borrow().class();
            let (emitter, session, clock) = Default::default();
            let host = Box::new(Host { limits, documents, plain_class, emitter, session, clock, compiler });
            c::JS_SetRuntimeOpaque(runtime, (&raw const *host).cast_mut().cast());
            c::JS_SetInterruptHandler(runtime, Some(interrupt), (&raw const *host).cast_mut().cast());
            engine.prelude = compiler.compile(PRELUDE, c"prelude").ok()?;
            engine.host = Some(host);
            Some(engine)
        }
    }

    pub(super) fn host(&self) -> &Host {
        self.host.as_ref().expect("set when the engine was made")
    }

    pub(super) fn heap(&self) -> &Heap {
        &self.heap
    }

    pub(super) fn enter(&self) {
        // SAFETY: the runtime is alive.
        unsafe { c::JS_UpdateStackTop(self.runtime) }
    }

    pub(super) fn run_jobs(&self) {
        // SAFETY: the runtime is alive; jobs run in contexts of this engine, and their exceptions are ignored.
        unsafe {
            while c::JS_IsJobPending(self.runtime) {
                let mut context = std::ptr::null_mut();
                self.host().clock.start();
                if c::JS_ExecutePendingJob(self.runtime, &raw mut context) < 0 && !context.is_null() {
                    drop(Context::new(context).take_exception());
                }
            }
        }
    }

    /// Must be called once everything is compiled.
    /// The engine frees a page of small blocks with its last block. If the objects of a program exactly fill its pages,
    /// every call would allocate and free a page, so one block of each size is kept in an otherwise empty page.
    pub(super) fn pin_pages(&mut self) {
        const PAGE_BYTES: usize = 4096;
        for size in (16..=512).step_by(8) {
            // SAFETY: blocks from the runtime's heap; all but the last are given back at once, the last on drop.
            unsafe {
                let blocks: Vec<_> =
                    (0..=PAGE_BYTES / size).map(|_| c::js_malloc_rt(self.runtime, (size - 8) as _)).collect();
                for (number, block) in blocks.iter().enumerate().filter(|(_, block)| !block.is_null()) {
                    if number + 1 == blocks.len() {
                        self.pinned_blocks.push(*block);
                    } else {
                        c::js_free_rt(self.runtime, *block);
                    }
                }
            }
        }
    }

    /// Compiles a map function, or an index function for the type with the number `search`.
    pub(super) fn function(&mut self, source: &str, search: u32, library: Option<&str>) -> Result<Function, String> {
        let root = library.map(|library| format!("{{\"views\":{{\"lib\":{library}}}}}"));
        let (context, _) = self.user_context(root.as_deref()).ok_or("InternalError: out of memory")?;
        if search > 0 {
            self.give_index(context, search).map_err(|Thrown| "InternalError: out of memory")?;
        }
        self.host().clock.start();
        let value = self.host().function(context, source)?;
        Ok(Function { context, value })
    }

    fn give_index(&self, context: Context, search: u32) -> Result<(), Thrown> {
        let global = context.global();
        let global = global.borrow();
        let script = self.host().compile(INDEX, c"index")?;
        let make = context.run(&script)?;
        let emit = context.get_named(global, c"emit")?;
        let style = context.number(search.into());
        let index = context.call(make.borrow(), Ref::UNDEFINED, &[emit.borrow(), style.borrow()])?;
        context.set_named(global, c"index", index)?;
        context.set_named(global, c"emit", context.undefined())
    }

    fn bare_context(&mut self) -> Option<Context> {
        // SAFETY: a fresh context of the live runtime; it is freed when the engine is dropped.
        unsafe {
            let raw = c::JS_NewContextRaw(self.runtime);
            if raw.is_null() {
                return None;
            }
            let context = Context::new(raw);
            self.contexts.push(context);
            let failed = c::JS_AddIntrinsicBaseObjects(raw) != 0
                || c::JS_AddIntrinsicDate(raw) != 0
                || c::JS_AddIntrinsicRegExp(raw) != 0
                || c::JS_AddIntrinsicJSON(raw) != 0
                || c::JS_AddIntrinsicProxy(raw) != 0
                || c::JS_AddIntrinsicMapSet(raw) != 0
                || c::JS_AddIntrinsicTypedArrays(raw) != 0
                || c::JS_AddIntrinsicPromise(raw) != 0
                || c::JS_AddIntrinsicWeakRef(raw) != 0;
            (!failed).then_some(context)
        }
    }

    /// Creates a global environment for user code; also returns the object of the prelude. `root` is the text of the
    /// object that `require` searches.
    pub(super) fn user_context(&mut self, root: Option<&str>) -> Option<(Context, Value)> {
        let context = self.bare_context()?;
        self.host().documents.prepare(context);
        let helpers = self.initialise(context, root).ok()?;
        Some((context, helpers))
    }

    fn initialise(&self, context: Context, root: Option<&str>) -> Result<Value, Thrown> {
        let global = context.global();
        let global = global.borrow();
        context.set_named(global, c"emit", context.function(emit, c"emit", 2)?)?;
        context.set_named(global, c"log", context.function(log, c"log", 1)?)?;
        let prelude = context.run(&self.prelude)?;
        let compile = context.function(compile_module, c"compileModule", 2)?;
        let sum = context.function(native_sum, c"sum", 1)?;
        let root = root.map_or_else(|| Ok(context.undefined()), |text| context.string(text.as_bytes()))?;
        let arguments = [compile.borrow(), sum.borrow(), root.borrow()];
        let helpers = context.call(prelude.borrow(), Ref::UNDEFINED, &arguments)?;
        for name in [c"require", c"sum", c"isArray", c"toJSON"] {
            context.set_named(global, name, context.get_named(helpers.borrow(), name)?)?;
        }
        Ok(helpers)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // SAFETY: functions and values made by this engine are gone, they borrow its contexts by convention of
        // `Context::new`; the host goes after the runtime, whose finalizers must not find it any more.
        unsafe {
            if let Some(host) = &self.host {
                host.emitter.drop_rows(0);
                host.documents.forget_names(self.runtime);
            }
            for block in self.pinned_blocks.drain(..) {
                c::js_free_rt(self.runtime, block);
            }
            c::JS_SetRuntimeOpaque(self.runtime, std::ptr::null_mut());
            for context in self.contexts.drain(..) {
                c::JS_FreeContext(context.raw());
            }
            c::JS_FreeRuntime(self.runtime);
        }
    }
}

/// Compiles a source so that the value of the script is the function. Sources are function expressions, possibly with
/// trailing semicolons and comments; some have helper functions before an anonymous `function` statement. CouchDB
/// accepts all of these.
fn compile_function(compiler: Context, source: &str) -> Result<Vec<u8>, Thrown> {
    // After a comma the source is an expression, whatever follows the function.
    let first = compiler.compile(&format!("0,{source}"), c"function");
    let Err(Thrown) = first else { return first };
    let expression_error = compiler.take_exception();
    let second = compiler.compile(source, c"function");
    let Err(Thrown) = second else { return second };
    let statement_error = compiler.take_exception();
    if let Some(at) = anonymous_function(compiler, &statement_error, source) {
        let (head, tail) = source.split_at(at);
        let third = compiler.compile(&format!("{head}0,{tail}"), c"function");
        let Err(Thrown) = third else { return third };
        drop(compiler.take_exception());
    }
    Err(compiler.throw(expression_error))
}

/// Returns the position of the nameless function statement to which a syntax error refers.
fn anonymous_function(context: Context, error: &Value, source: &str) -> Option<usize> {
    let member = |name| Some(context.text(context.get_named(error.borrow(), name).ok()?.borrow()).ok()?.to_text());
    if member(c"message")? != "function name expected" {
        return None;
    }
    // The stack starts with `    at function:LINE:COLUMN`.
    let stack = member(c"stack")?;
    let mut place = stack.lines().next()?.trim_end_matches(')').rsplit(':');
    let column: usize = place.next()?.parse().ok()?;
    let line: usize = place.next()?.parse().ok()?;
    let start: usize = source.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum();
    let rest = &source[start..];
    let inside = rest.char_indices().nth(column.checked_sub(1)?).map_or(rest.len(), |(at, _)| at);
    source[..start + inside].rfind("function")
}

pub(super) fn describe(context: Context, exception: &Value) -> String {
    let text = match context.text(exception.borrow()) {
        Ok(text) => text.to_text(),
        Err(Thrown) => {
            drop(context.take_exception());
            "an exception without a text".to_owned()
        }
    };
    cut(text)
}

pub(super) fn cut(mut text: String) -> String {
    if text.len() > MESSAGE_BYTES {
        let end = (0..=MESSAGE_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
        text.truncate(end);
        text.push('…');
    }
    text
}

/// The engine polls this callback every ten thousand steps; a non-zero result ends the running call.
unsafe extern "C" fn interrupt(_runtime: *mut c::JSRuntime, opaque: *mut c_void) -> c_int {
    // SAFETY: the host outlives the runtime.
    let host = unsafe { &*opaque.cast::<Host>() };
    host.clock.poll(Duration::from_millis(host.limits.timeout_ms));
    c_int::from(host.clock.has_expired())
}

pub(super) unsafe fn arguments<'a, const N: usize>(count: c_int, values: *mut c::JSValue) -> [Ref<'a>; N] {
    let given = usize::try_from(count).unwrap_or_default();
    std::array::from_fn(|at| {
        if at < given {
            // SAFETY: the engine passes `count` values that live until the callback returns.
            unsafe { Ref::from_raw(*values.add(at)) }
        } else {
            Ref::UNDEFINED
        }
    })
}

fn to_raw(result: Result<(), Thrown>) -> c::JSValue {
    result.map_or(c::JS_EXCEPTION, |()| c::JS_UNDEFINED)
}

unsafe extern "C" fn emit(
    raw: *mut c::JSContext,
    _this: c::JSValue,
    count: c_int,
    values: *mut c::JSValue,
) -> c::JSValue {
    // SAFETY: the engine calls with a live context of ours and `count` live values.
    let (context, host, [key, value]) = unsafe { (Context::new(raw), Host::of(raw), arguments(count, values)) };
    to_raw(host.emitter.emit(host, context, key, value))
}

unsafe extern "C" fn log(
    raw: *mut c::JSContext,
    _this: c::JSValue,
    count: c_int,
    values: *mut c::JSValue,
) -> c::JSValue {
    // SAFETY: the engine calls with a live context of ours and `count` live values.
    let (context, host, [message]) = unsafe { (Context::new(raw), Host::of(raw), arguments(count, values)) };
    to_raw(host.emitter.log(context, message))
}

unsafe extern "C" fn native_sum(
    raw: *mut c::JSContext,
    _this: c::JSValue,
    count: c_int,
    values: *mut c::JSValue,
) -> c::JSValue {
    // SAFETY: the engine calls with a live context of ours and `count` live values.
    let (context, [array]) = unsafe { (Context::new(raw), arguments(count, values)) };
    if !array.is_array() {
        return c::JS_UNDEFINED;
    }
    let sum = context.length(array).and_then(|length| {
        let mut sum = 0.0;
        for index in 0..u32::try_from(length).unwrap_or_default() {
            let element = context.get_index(array, index)?;
            match element.borrow().tag() {
                c::JS_TAG_INT => sum += f64::from(element.borrow().int()),
                c::JS_TAG_FLOAT64 => sum += element.borrow().float(),
                _ => return Ok(context.undefined()),
            }
        }
        Ok(context.number(sum))
    });
    sum.map_or(c::JS_EXCEPTION, Value::into_raw)
}

/// Only the prelude can call this.
unsafe extern "C" fn compile_module(
    raw: *mut c::JSContext,
    _this: c::JSValue,
    count: c_int,
    values: *mut c::JSValue,
) -> c::JSValue {
    // SAFETY: the engine calls with a live context of ours and `count` live values.
    let (context, host, [source, id]) = unsafe { (Context::new(raw), Host::of(raw), arguments(count, values)) };
    let compile = || {
        let (source, id) = (context.text(source)?.to_text(), context.text(id)?.to_text());
        let name = CString::new(id).unwrap_or_default();
        let wrapped = format!("(function (module, exports, require) {{ {source}\n }});");
        match host.compiler.compile(&wrapped, &name) {
            Ok(script) => context.run(&script),
            Err(Thrown) => {
                let exception = host.compiler.take_exception();
                let text = context.string(describe(host.compiler, &exception).as_bytes())?;
                Err(context.throw(text))
            }
        }
    };
    compile().map_or(c::JS_EXCEPTION, Value::into_raw)
}
