//! Accepted text is a fixed point, can be traversed and hashed, and survives parsing and writing of a document.

use settee_model::json::{Json, Value, compact};
use settee_model::{Document, revision_hash};

pub(crate) fn check(data: &[u8]) {
    let mut once = Vec::new();
    if compact(data, &mut once).is_err() {
        return;
    }
    let mut twice = Vec::new();
    compact(&once, &mut twice).expect("what was accepted is accepted again");
    assert_eq!(once, twice);
    let json = Json::trusted(once);
    walk(json.value(), 0);
    let Ok(document) = Document::parse(json.value()) else { return };
    let hash = revision_hash(document.deleted, document.rev.as_ref(), document.body.value(), &[]);
    let rev = settee_model::Rev::new(1, hash);
    let mut written = Vec::new();
    Document::write_json(&mut written, "id", &rev, document.deleted, |_| {}, document.body.as_bytes());
    let again = Json::parse(&written).expect("a written document is JSON");
    let again = Document::parse(again.value()).expect("a written document is a document");
    assert_eq!(again.body, document.body);
    assert_eq!(again.rev, Some(rev));
}

fn walk(value: Value<'_>, depth: usize) {
    let _ = (value.as_str(), value.as_f64(), value.as_i64(), value.as_u64(), value.as_bool());
    if depth > 64 {
        return;
    }
    for (name, member) in value.members() {
        let found = name.as_str().and_then(|name| value.get(&name));
        assert_eq!(found.map(Value::raw), Some(member.raw()), "every member is found by its name");
        walk(member, depth + 1);
    }
    for element in value.elements() {
        walk(element, depth + 1);
    }
}
