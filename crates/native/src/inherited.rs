//! Names that values inherit from prototypes. A test compares them with the engine.

use super::value::Val;
use crate::reason::{Reason, Stop};

pub(super) fn by_objects(name: &[u8]) -> bool {
    matches!(
        name,
        b"constructor"
            | b"hasOwnProperty"
            | b"isPrototypeOf"
            | b"propertyIsEnumerable"
            | b"toLocaleString"
            | b"toString"
            | b"valueOf"
            | b"__proto__"
            | b"__defineGetter__"
            | b"__defineSetter__"
            | b"__lookupGetter__"
            | b"__lookupSetter__"
    )
}

/// Returns undefined, unless a prototype has `name`, which is left to the engine.
pub(super) fn absent<'a>(name: &[u8]) -> Result<Val<'a>, Stop> {
    let known = by_objects(name) || std::str::from_utf8(name).is_ok_and(|name| NAMES.binary_search(&name).is_ok());
    if known { Err(Stop::BailOut(Reason::Inherited)) } else { Ok(Val::Undefined) }
}

/// Names inherited by strings, arrays, numbers, booleans, dates, patterns and matches, sorted.
#[rustfmt::skip]
const NAMES: [&str; 157] = [
    "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__", "__proto__", "anchor", "at",
    "big", "blink", "bold", "charAt", "charCodeAt", "codePointAt", "compile", "concat", "constructor",
    "copyWithin", "dotAll", "endsWith", "entries", "every", "exec", "fill", "filter", "find", "findIndex",
    "findLast", "findLastIndex", "fixed", "flags", "flat", "flatMap", "fontcolor", "fontsize", "forEach",
    "getDate", "getDay", "getFullYear", "getHours", "getMilliseconds", "getMinutes", "getMonth", "getSeconds",
    "getTime", "getTimezoneOffset", "getUTCDate", "getUTCDay", "getUTCFullYear", "getUTCHours",
    "getUTCMilliseconds", "getUTCMinutes", "getUTCMonth", "getUTCSeconds", "getYear", "global", "groups",
    "hasIndices", "hasOwnProperty", "ignoreCase", "includes", "index", "indexOf", "indices", "input",
    "isPrototypeOf", "isWellFormed", "italics", "join", "keys", "lastIndex", "lastIndexOf", "length", "link",
    "localeCompare", "map", "match", "matchAll", "multiline", "name", "normalize", "padEnd", "padStart", "pop",
    "propertyIsEnumerable", "prototype", "push", "reduce", "reduceRight", "repeat", "replace", "replaceAll",
    "reverse", "search", "setDate", "setFullYear", "setHours", "setMilliseconds", "setMinutes", "setMonth",
    "setSeconds", "setTime", "setUTCDate", "setUTCFullYear", "setUTCHours", "setUTCMilliseconds",
    "setUTCMinutes", "setUTCMonth", "setUTCSeconds", "setYear", "shift", "slice", "small", "some", "sort",
    "source", "splice", "split", "startsWith", "sticky", "strike", "sub", "substr", "substring", "sup", "test",
    "toDateString", "toExponential", "toFixed", "toGMTString", "toISOString", "toJSON", "toLocaleDateString",
    "toLocaleLowerCase", "toLocaleString", "toLocaleTimeString", "toLocaleUpperCase", "toLowerCase",
    "toPrecision", "toReversed", "toSorted", "toSpliced", "toString", "toTimeString", "toUTCString",
    "toUpperCase", "toWellFormed", "trim", "trimEnd", "trimLeft", "trimRight", "trimStart", "unicode",
    "unicodeSets", "unshift", "valueOf", "values", "with",
];
