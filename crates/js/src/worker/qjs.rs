//! The engine's C interface with ownership and exceptions expressed in types: a [`Value`] owns a reference and drops
//! it; a [`Ref`] borrows one; an [`Err`] of [`Thrown`] means that an exception is pending in the context.
#![expect(unsafe_code, reason = "calls the JavaScript engine")]

use std::ffi::{CStr, c_char, c_int};
use std::marker::PhantomData;
use std::ptr;

use rquickjs::qjs as c;

pub(super) type Native = unsafe extern "C" fn(*mut c::JSContext, c::JSValue, c_int, *mut c::JSValue) -> c::JSValue;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Thrown;

#[derive(Clone, Copy)]
pub(super) struct Context(*mut c::JSContext);

#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Ref<'a>(c::JSValue, PhantomData<&'a ()>);

pub(super) struct Value {
    raw: c::JSValue,
    context: Context,
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: the value owns one reference; see `Context::new` for the context.
        unsafe { c::JS_FreeValue(self.context.0, self.raw) }
    }
}

impl Value {
    pub(super) fn borrow(&self) -> Ref<'_> {
        Ref(self.raw, PhantomData)
    }

    pub(super) fn into_raw(self) -> c::JSValue {
        let raw = self.raw;
        std::mem::forget(self);
        raw
    }
}

impl Ref<'_> {
    pub(super) const UNDEFINED: Ref<'static> = Ref(c::JS_UNDEFINED, PhantomData);

    /// A boolean needs no reference.
    pub(super) fn boolean(value: bool) -> Ref<'static> {
        Ref(if value { c::JS_TRUE } else { c::JS_FALSE }, PhantomData)
    }

    /// # Safety
    ///
    /// The value must stay alive for the lifetime chosen by the caller.
    pub(super) unsafe fn from_raw(raw: c::JSValue) -> Self {
        Self(raw, PhantomData)
    }

    pub(super) fn raw(self) -> c::JSValue {
        self.0
    }

    /// Numbers other than small integers have the tag `JS_TAG_FLOAT64`.
    #[inline]
    pub(super) fn tag(self) -> i32 {
        // SAFETY: reads a field of a plain structure.
        unsafe { c::JS_VALUE_GET_NORM_TAG(self.0) }
    }

    /// The value must be an integer or a boolean.
    #[inline]
    pub(super) fn int(self) -> i32 {
        // SAFETY: reads a field of a plain structure.
        unsafe { c::JS_VALUE_GET_INT(self.0) }
    }

    /// The value must have the tag `JS_TAG_FLOAT64`.
    #[inline]
    pub(super) fn float(self) -> f64 {
        // SAFETY: reads a field of a plain structure.
        unsafe { c::JS_VALUE_GET_FLOAT64(self.0) }
    }

    pub(super) fn is_object(self) -> bool {
        self.tag() == c::JS_TAG_OBJECT
    }

    pub(super) fn is_string(self) -> bool {
        matches!(self.tag(), c::JS_TAG_STRING | c::JS_TAG_STRING_ROPE)
    }

    pub(super) fn is_true(self) -> bool {
        self.tag() == c::JS_TAG_BOOL && self.int() != 0
    }

    pub(super) fn is_undefined(self) -> bool {
        self.tag() == c::JS_TAG_UNDEFINED
    }

    pub(super) fn identity(self) -> usize {
        // SAFETY: reads a field of a plain structure.
        unsafe { c::JS_VALUE_GET_PTR(self.0) as usize }
    }

    pub(super) fn is_array(self) -> bool {
        // SAFETY: reads the class of a live value.
        unsafe { c::JS_IsArray(self.0) }
    }

    pub(super) fn is_error(self) -> bool {
        // SAFETY: reads the class of a live value.
        unsafe { c::JS_IsError(self.0) }
    }

    pub(super) fn class(self) -> c::JSClassID {
        // SAFETY: reads the class of a live value.
        unsafe { c::JS_GetClassID(self.0) }
    }
}

/// UTF-8, except for lone surrogates.
pub(super) struct Text {
    start: *const c_char,
    len: usize,
    context: Context,
}

impl Text {
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the engine keeps these bytes until they are freed on drop.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.len) }
    }

    pub(super) fn to_text(&self) -> String {
        match std::str::from_utf8(self.bytes()) {
            Ok(text) => text.to_owned(),
            Err(_) => settee_native::text::without_surrogates(self.bytes()),
        }
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        // SAFETY: came from JS_ToCStringLen2 and is freed once.
        unsafe { c::JS_FreeCString(self.context.0, self.start) }
    }
}

pub(super) struct Names {
    table: *mut c::JSPropertyEnum,
    len: u32,
    context: Context,
}

impl Names {
    pub(super) fn atoms(&self) -> impl Iterator<Item = c::JSAtom> + '_ {
        // SAFETY: the engine filled `len` entries, which stay until they are freed on drop.
        (0..self.len as usize).map(|at| unsafe { (*self.table.add(at)).atom })
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        // SAFETY: came from JS_GetOwnPropertyNames and is freed once.
        unsafe { c::JS_FreePropertyEnum(self.context.0, self.table, self.len) }
    }
}

impl Context {
    /// # Safety
    ///
    /// The context must outlive the wrapper, its copies and all values made through them.
    pub(super) unsafe fn new(raw: *mut c::JSContext) -> Self {
        Self(raw)
    }

    pub(super) fn raw(self) -> *mut c::JSContext {
        self.0
    }

    /// # Safety
    ///
    /// `raw` must carry a reference without another owner.
    pub(super) unsafe fn own(self, raw: c::JSValue) -> Result<Value, Thrown> {
        // SAFETY: reads the tag.
        if unsafe { c::JS_IsException(raw) } { Err(Thrown) } else { Ok(Value { raw, context: self }) }
    }

    pub(super) fn duplicate(self, value: Ref<'_>) -> Value {
        // SAFETY: the value is alive; the new reference is owned.
        Value { raw: unsafe { c::JS_DupValue(self.0, value.0) }, context: self }
    }

    pub(super) fn undefined(self) -> Value {
        Value { raw: c::JS_UNDEFINED, context: self }
    }

    pub(super) fn number(self, number: f64) -> Value {
        Value { raw: c::JS_NewFloat64(number), context: self }
    }

    pub(super) fn string(self, text: &[u8]) -> Result<Value, Thrown> {
        // SAFETY: pointer and length describe a live slice, which the engine copies.
        unsafe { self.own(c::JS_NewStringLen(self.0, text.as_ptr().cast(), text.len() as _)) }
    }

    pub(super) fn object(self) -> Result<Value, Thrown> {
        // SAFETY: the context is alive.
        unsafe { self.own(c::JS_NewObject(self.0)) }
    }

    pub(super) fn array(self, values: Vec<Value>) -> Result<Value, Thrown> {
        let raw: Vec<c::JSValue> = values.into_iter().map(Value::into_raw).collect();
        let Ok(count) = c_int::try_from(raw.len()) else {
            return Err(self.throw_range_error("array too long"));
        };
        // SAFETY: the engine takes over the references in the live slice, also when it fails.
        unsafe { self.own(c::JS_NewArrayFrom(self.0, count, raw.as_ptr())) }
    }

    pub(super) fn function(self, native: Native, name: &CStr, parameters: c_int) -> Result<Value, Thrown> {
        let generic = c::JSCFunctionEnum_JS_CFUNC_generic;
        // SAFETY: the name is terminated and copied; the callback has the signature that `generic` calls.
        unsafe { self.own(c::JS_NewCFunction2(self.0, Some(native), name.as_ptr(), parameters, generic, 0)) }
    }

    pub(super) fn global(self) -> Value {
        // SAFETY: the context is alive; the reference is owned.
        Value { raw: unsafe { c::JS_GetGlobalObject(self.0) }, context: self }
    }

    pub(super) fn get(self, object: Ref<'_>, name: c::JSAtom) -> Result<Value, Thrown> {
        // SAFETY: object and atom are alive.
        unsafe { self.own(c::JS_GetProperty(self.0, object.0, name)) }
    }

    pub(super) fn get_named(self, object: Ref<'_>, name: &CStr) -> Result<Value, Thrown> {
        // SAFETY: the object is alive and the name terminated.
        unsafe { self.own(c::JS_GetPropertyStr(self.0, object.0, name.as_ptr())) }
    }

    pub(super) fn get_index(self, object: Ref<'_>, index: u32) -> Result<Value, Thrown> {
        // SAFETY: the object is alive.
        unsafe { self.own(c::JS_GetPropertyUint32(self.0, object.0, index)) }
    }

    pub(super) fn set_named(self, object: Ref<'_>, name: &CStr, value: Value) -> Result<(), Thrown> {
        // SAFETY: the object is alive and the name terminated; the engine takes over the value.
        let done = unsafe { c::JS_SetPropertyStr(self.0, object.0, name.as_ptr(), value.into_raw()) };
        if done < 0 { Err(Thrown) } else { Ok(()) }
    }

    pub(super) fn length(self, object: Ref<'_>) -> Result<i64, Thrown> {
        let mut length = 0;
        // SAFETY: the object is alive and the result is valid for writes.
        let failed = unsafe { c::JS_GetLength(self.0, object.0, &raw mut length) };
        if failed == 0 { Ok(length) } else { Err(Thrown) }
    }

    pub(super) fn own_names(self, object: Ref<'_>) -> Result<Names, Thrown> {
        let (mut table, mut len) = (ptr::null_mut(), 0);
        let flags = (c::JS_GPN_STRING_MASK | c::JS_GPN_ENUM_ONLY).cast_signed();
        // SAFETY: the object is alive and the results are valid for writes.
        let failed = unsafe { c::JS_GetOwnPropertyNames(self.0, &raw mut table, &raw mut len, object.0, flags) };
        if failed == 0 { Ok(Names { table, len, context: self }) } else { Err(Thrown) }
    }

    pub(super) fn is_function(self, value: Ref<'_>) -> bool {
        // SAFETY: reads a live value.
        unsafe { c::JS_IsFunction(self.0, value.0) }
    }

    pub(super) fn call(self, function: Ref<'_>, this: Ref<'_>, arguments: &[Ref<'_>]) -> Result<Value, Thrown> {
        let count = c_int::try_from(arguments.len()).expect("functions get a handful of arguments");
        let first: *const c::JSValue = arguments.as_ptr().cast();
        // SAFETY: everything is alive; `Ref` has the layout of the engine's value, and the engine only reads them.
        unsafe { self.own(c::JS_Call(self.0, function.0, this.0, count, first.cast_mut())) }
    }

    pub(super) fn text(self, value: Ref<'_>) -> Result<Text, Thrown> {
        let mut len = 0;
        // SAFETY: the value is alive and the length is valid for writes; a null result is an exception.
        let start = unsafe { c::JS_ToCStringLen2(self.0, &raw mut len, value.0, false) };
        let len = len as usize;
        if start.is_null() { Err(Thrown) } else { Ok(Text { start, len, context: self }) }
    }

    pub(super) fn atom_to_value(self, atom: c::JSAtom) -> Result<Value, Thrown> {
        // SAFETY: the atom is alive.
        unsafe { self.own(c::JS_AtomToValue(self.0, atom)) }
    }

    pub(super) fn atom_text(self, atom: c::JSAtom) -> Result<Text, Thrown> {
        let mut len = 0;
        // SAFETY: the atom is alive and the length is valid for writes; a null result is an exception.
        let start = unsafe { c::JS_AtomToCStringLen(self.0, &raw mut len, atom) };
        let len = len as usize;
        if start.is_null() { Err(Thrown) } else { Ok(Text { start, len, context: self }) }
    }

    /// Appends the terminator that the engine's parser needs to `text`.
    pub(super) fn parse_json(self, text: &mut Vec<u8>) -> Result<Value, Thrown> {
        text.push(0);
        let len = text.len() - 1;
        // SAFETY: the text is alive and terminated after `len` bytes.
        unsafe { self.own(c::JS_ParseJSON(self.0, text.as_ptr().cast(), len as _, c"json".as_ptr())) }
    }

    pub(super) fn stringify(self, value: Ref<'_>) -> Result<Value, Thrown> {
        // SAFETY: the value is alive.
        unsafe { self.own(c::JS_JSONStringify(self.0, value.0, c::JS_UNDEFINED, c::JS_UNDEFINED)) }
    }

    pub(super) fn take_exception(self) -> Value {
        // SAFETY: the context is alive; the reference is owned.
        Value { raw: unsafe { c::JS_GetException(self.0) }, context: self }
    }

    pub(super) fn throw(self, value: Value) -> Thrown {
        // SAFETY: the engine takes over the value.
        unsafe { c::JS_Throw(self.0, value.into_raw()) };
        Thrown
    }

    pub(super) fn throw_type_error(self, message: &CStr) -> Thrown {
        // SAFETY: both strings are terminated; the format has one string argument.
        unsafe { c::JS_ThrowTypeError(self.0, c"%s".as_ptr(), message.as_ptr()) };
        Thrown
    }

    pub(super) fn throw_range_error(self, message: &str) -> Thrown {
        let message = std::ffi::CString::new(message).unwrap_or_default();
        // SAFETY: both strings are terminated; the format has one string argument.
        unsafe { c::JS_ThrowRangeError(self.0, c"%s".as_ptr(), message.as_ptr()) };
        Thrown
    }

    /// The context must have the compiler.
    pub(super) fn compile(self, source: &str, name: &CStr) -> Result<Vec<u8>, Thrown> {
        let mut terminated = source.as_bytes().to_vec();
        terminated.push(0);
        let flags = (c::JS_EVAL_TYPE_GLOBAL | c::JS_EVAL_FLAG_COMPILE_ONLY).cast_signed();
        // SAFETY: source and name are alive and terminated.
        let script = unsafe {
            self.own(c::JS_Eval(self.0, terminated.as_ptr().cast(), source.len() as _, name.as_ptr(), flags))?
        };
        let mut len = 0;
        // SAFETY: the script is alive and the length is valid for writes; the result is checked, copied and freed once.
        unsafe {
            let bytes = c::JS_WriteObject(self.0, &raw mut len, script.raw, c::JS_WRITE_OBJ_BYTECODE.cast_signed());
            if bytes.is_null() {
                return Err(Thrown);
            }
            let copy = std::slice::from_raw_parts(bytes, len as usize).to_vec();
            c::js_free(self.0, bytes.cast());
            Ok(copy)
        }
    }

    /// Runs a script that [`Context::compile`] compiled in this process, and returns its last expression.
    pub(super) fn run(self, bytecode: &[u8]) -> Result<Value, Thrown> {
        let flags = c::JS_READ_OBJ_BYTECODE.cast_signed();
        // SAFETY: the bytes are alive and were written by this engine in this process, so they are well-formed;
        // JS_EvalFunction takes over the script.
        unsafe {
            let script = self.own(c::JS_ReadObject(self.0, bytecode.as_ptr(), bytecode.len() as _, flags))?;
            self.own(c::JS_EvalFunction(self.0, script.into_raw()))
        }
    }
}
