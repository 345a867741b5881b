//! Functions of the conformance suite of languages. The crate `settee-design` contains the suite and describes the functions.

use settee_guest::{Value, emit, fail, log, map_function, reduce_function};

fn member<'a>(document: Value<'a>, name: &str) -> &'a str {
    document.get(name).map_or("", Value::text)
}

fn pair(document: Value<'_>) {
    emit(member(document, "k"), member(document, "v"));
}

fn each(document: Value<'_>) {
    let Some(list) = document.get("list") else { return };
    for (position, element) in list.elements().enumerate() {
        emit(element.text(), &position.to_string());
    }
}

fn fails(document: Value<'_>) {
    emit("1", "");
    if document.get("bad").is_some() {
        fail("bad");
    }
}

/// Loops until the server stops the function. `black_box` prevents the compiler from removing the loop.
fn hang() {
    loop {
        std::hint::black_box(());
    }
}

fn hangs(document: Value<'_>) {
    emit("1", "");
    if document.get("bad").is_some() {
        hang();
    }
}

fn logs(_: Value<'_>) {
    log("hello");
}

fn count(keys: Option<Value<'_>>, values: Value<'_>) -> String {
    match keys {
        Some(_) => values.elements().count().to_string(),
        None => values.elements().filter_map(Value::as_f64).sum::<f64>().to_string(),
    }
}

fn gather(keys: Option<Value<'_>>, values: Value<'_>) -> String {
    format!("[{},{},{}]", keys.map_or("null", Value::text), values.text(), keys.is_none())
}

fn is_bad(values: Value<'_>) -> bool {
    values.elements().next().and_then(Value::as_plain_str) == Some("bad")
}

fn count_fails(keys: Option<Value<'_>>, values: Value<'_>) -> String {
    if is_bad(values) {
        fail("bad");
    }
    count(keys, values)
}

fn count_hangs(keys: Option<Value<'_>>, values: Value<'_>) -> String {
    if is_bad(values) {
        hang();
    }
    count(keys, values)
}

map_function!(map_pair = pair);
map_function!(map_each = each);
map_function!(map_fails = fails);
map_function!(map_hangs = hangs);
map_function!(map_logs = logs);
reduce_function!(reduce_count = count);
reduce_function!(reduce_gather = gather);
reduce_function!(reduce_fails = count_fails);
reduce_function!(reduce_hangs = count_hangs);
