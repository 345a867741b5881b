//! Map and reduce functions for Settee, compiled to WebAssembly.
//!
//! [`map_function!`] and [`reduce_function!`] export a Rust function under a name that design documents can call;
//! [`emit`], [`log`] and [`fail`] call the server; [`Value`] reads JSON text in place, without building a tree.
//! `docs/webassembly.md` of the server specifies the interface that this crate implements.

mod value;

use std::cell::RefCell;

pub use value::Value;

#[link(wasm_import_module = "settee")]
unsafe extern "C" {
    #[link_name = "emit"]
    fn host_emit(key: *const u8, key_len: usize, value: *const u8, value_len: usize);
    #[link_name = "result"]
    fn host_result(text: *const u8, len: usize);
    #[link_name = "log"]
    fn host_log(text: *const u8, len: usize);
    #[link_name = "fail"]
    fn host_fail(text: *const u8, len: usize);
}

thread_local! {
    /// Buffer into which the server writes the input of a function.
    static INPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Emits a row. `key` and `value` must be JSON text; an empty value is null.
pub fn emit(key: &str, value: &str) {
    // SAFETY: the host reads these bytes during the call and keeps no pointer.
    unsafe { host_emit(key.as_ptr(), key.len(), value.as_ptr(), value.len()) }
}

/// Writes a line into the server's log.
pub fn log(line: &str) {
    // SAFETY: as for `emit`.
    unsafe { host_log(line.as_ptr(), line.len()) }
}

/// Aborts the function like an exception: the rows of the document are discarded, and the server logs the reason.
pub fn fail(reason: &str) {
    // SAFETY: as for `emit`.
    unsafe { host_fail(reason.as_ptr(), reason.len()) }
}

#[doc(hidden)]
pub fn answer(text: &str) {
    // SAFETY: as for `emit`.
    unsafe { host_result(text.as_ptr(), text.len()) }
}

/// Allocates the buffer for the input. The pointer is valid until the next call.
#[unsafe(no_mangle)]
pub extern "C" fn settee_alloc(size: usize) -> *mut u8 {
    INPUT.with_borrow_mut(|input| {
        *input = Vec::with_capacity(size);
        input.as_mut_ptr()
    })
}

/// # Safety
/// `at` and `len` must be the arguments of a call by the server.
#[doc(hidden)]
pub unsafe fn input<'a>(at: *const u8, len: usize) -> Value<'a> {
    // SAFETY: the server has written `len` bytes of valid JSON at `at`, which are valid until the function returns.
    Value::new(unsafe { std::str::from_utf8_unchecked(std::slice::from_raw_parts(at, len)) })
}

/// Exports `fn(document: Value<'_>)` under a name.
///
/// ```ignore
/// fn by_name(document: Value<'_>) {
///     if let Some(name) = document.get("name") {
///         emit(name.text(), "");
///     }
/// }
/// settee_guest::map_function!(map = by_name);
/// ```
#[macro_export]
macro_rules! map_function {
    ($name:ident = $function:path) => {
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(at: *const u8, len: usize) -> u32 {
            // SAFETY: the server calls this with its input.
            $function(unsafe { $crate::input(at, len) });
            0
        }
    };
}

/// Exports `fn(keys: Option<Value<'_>>, values: Value<'_>) -> String` under a name. `keys` is an array of pairs of key and
/// document id, and `None` in a rereduce. The function must return JSON text.
#[macro_export]
macro_rules! reduce_function {
    ($name:ident = $function:path) => {
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(at: *const u8, len: usize) -> u32 {
            // SAFETY: the server calls this with its input.
            let input = unsafe { $crate::input(at, len) };
            let keys = input.get("keys").filter(|keys| !keys.is_null());
            let values = input.get("values").expect("the server sends values");
            $crate::answer(&$function(keys, values));
            0
        }
    };
}
