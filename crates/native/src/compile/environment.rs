//! The global environment of the engine: its names ([`is_global`]) and the members of its objects ([`type_of`]). A test
//! compares both with the engine.

use crate::Environment;
use crate::inherited;

/// An assignment to such a name without a declaration changes the environment.
pub(super) fn is_global(name: &str) -> bool {
    GLOBALS.binary_search(&name).is_ok() || inherited::by_objects(name.as_bytes())
}

/// Returns the result of `typeof` for a member, given by its path, such as `Array.prototype.map`. `None` if unlisted.
pub(super) fn type_of(path: &str, environment: Environment) -> Option<&'static str> {
    let Some((object, member)) = path.rsplit_once('.') else {
        return match path {
            "JSON" | "Math" => Some("object"),
            "emit" => (environment == Environment::View).then_some("function"),
            "index" => (environment != Environment::View).then_some("function"),
            _ => FUNCTIONS.contains(&path).then_some("function"),
        };
    };
    if member == "prototype" {
        return PROTOTYPES.contains(&object).then_some("object");
    }
    let (_, members) = MEMBERS.iter().find(|(name, _)| *name == object)?;
    members.split(' ').any(|name| name == member).then_some("function")
}

pub(crate) fn members() -> impl Iterator<Item = (String, &'static str)> {
    let members =
        MEMBERS.iter().flat_map(|(object, names)| names.split(' ').map(move |name| format!("{object}.{name}")));
    let globals = FUNCTIONS.iter().chain(&["JSON", "Math", "emit"]).map(|name| (*name).to_owned());
    let prototypes = PROTOTYPES.iter().map(|class| format!("{class}.prototype"));
    globals.chain(prototypes).chain(members).filter_map(|path| {
        let kind = type_of(&path, Environment::View)?;
        Some((path, kind))
    })
}

const PROTOTYPES: [&str; 7] = ["Array", "Boolean", "Date", "Number", "Object", "RegExp", "String"];

const FUNCTIONS: [&str; 22] = [
    "Array",
    "Boolean",
    "Date",
    "Error",
    "Function",
    "Map",
    "Number",
    "Object",
    "Promise",
    "RangeError",
    "RegExp",
    "Set",
    "String",
    "TypeError",
    "isArray",
    "isFinite",
    "isNaN",
    "log",
    "parseFloat",
    "parseInt",
    "sum",
    "toJSON",
];

const MEMBERS: [(&str, &str); 12] = [
    ("Array", "from isArray of"),
    (
        "Array.prototype",
        "at concat entries every fill filter find findIndex findLast findLastIndex flat flatMap forEach includes \
         indexOf join keys lastIndexOf map pop push reduce reduceRight reverse shift slice some sort splice toString \
         unshift values",
    ),
    ("Date", "UTC now parse"),
    (
        "Date.prototype",
        "getDate getDay getFullYear getHours getMilliseconds getMinutes getMonth getSeconds getTime getTimezoneOffset \
         getUTCDate getUTCDay getUTCFullYear getUTCHours getUTCMilliseconds getUTCMinutes getUTCMonth getUTCSeconds \
         getYear setDate setFullYear setHours setMilliseconds setMinutes setMonth setSeconds setTime setUTCDate \
         setUTCFullYear setUTCHours setUTCMilliseconds setUTCMinutes setUTCMonth setUTCSeconds setYear toDateString \
         toGMTString toISOString toJSON toString toUTCString valueOf",
    ),
    ("Function.prototype", "apply bind call"),
    ("JSON", "parse stringify"),
    (
        "Math",
        "abs acos asin atan atan2 cbrt ceil cos exp floor hypot log log10 log2 max min pow random round sign sin sqrt \
         tan trunc",
    ),
    ("Number", "isFinite isInteger isNaN isSafeInteger parseFloat parseInt"),
    ("Number.prototype", "toFixed toPrecision toString valueOf"),
    (
        "Object",
        "assign create defineProperties defineProperty entries freeze fromEntries getOwnPropertyDescriptor \
         getOwnPropertyNames getPrototypeOf is isFrozen keys setPrototypeOf values",
    ),
    ("Object.prototype", "hasOwnProperty isPrototypeOf propertyIsEnumerable toString valueOf"),
    (
        "String.prototype",
        "at charAt charCodeAt codePointAt concat endsWith includes indexOf lastIndexOf localeCompare match matchAll \
         normalize padEnd padStart repeat replace replaceAll search slice split startsWith substr substring \
         toLowerCase toString toUpperCase trim trimEnd trimLeft trimRight trimStart valueOf",
    ),
];

/// Names of the global object, sorted. `index` exists for functions of search indexes only.
#[rustfmt::skip]
const GLOBALS: [&str; 78] = [
    "AggregateError", "Array", "ArrayBuffer", "AsyncDisposableStack", "Atomics", "BigInt", "BigInt64Array",
    "BigUint64Array", "Boolean", "DOMException", "DataView", "Date", "DisposableStack", "Error", "EvalError",
    "FinalizationRegistry", "Float16Array", "Float32Array", "Float64Array", "Function", "Infinity", "Int16Array",
    "Int32Array", "Int8Array", "InternalError", "Intl", "Iterator", "JSON", "Map", "Math", "NaN", "Number", "Object",
    "Promise", "Proxy", "RangeError", "ReferenceError", "Reflect", "RegExp", "Set", "SharedArrayBuffer", "String",
    "SuppressedError", "Symbol", "SyntaxError", "Temporal", "TypeError", "URIError", "Uint16Array", "Uint32Array",
    "Uint8Array", "Uint8ClampedArray", "WeakMap", "WeakRef", "WeakSet", "console", "decodeURI", "decodeURIComponent",
    "emit", "encodeURI", "encodeURIComponent", "escape", "eval", "globalThis", "index", "isArray", "isFinite",
    "isNaN", "log", "parseFloat", "parseInt", "performance", "queueMicrotask", "require", "sum", "toJSON",
    "undefined", "unescape",
];
