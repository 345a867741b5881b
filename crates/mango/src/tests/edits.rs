//! Indexes as design documents.

use settee_model::json::Json;

use super::{Place, json};
use crate::MangoError;
use crate::index::edit::{self, Created, NewIndex, Page};

fn create(place: &Place, body: &str) -> Result<Created, MangoError> {
    edit::create(&place.database, &NewIndex::parse(json(body).value())?)
}

fn list(place: &Place) -> String {
    let mut out = Vec::new();
    edit::write_list(&place.database, Page { skip: 0, limit: None }, &mut out).unwrap();
    Json::parse(&out).unwrap();
    String::from_utf8(out).unwrap()
}

fn body(place: &Place, id: &str) -> String {
    let view = place.database.read().unwrap();
    let head = view.head(id).unwrap().unwrap();
    let mut out = format!("{} ", head.rev).into_bytes();
    view.read_body(head.stored, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

const PRIMARY: &str = r#"{"ddoc":null,"name":"_all_docs","type":"special","def":{"fields":[{"_id":"asc"}]}}"#;

#[test]
fn design_documents_are_couchdbs() {
    let place = Place::new();
    let created = create(
        &place,
        r#"{"index":{"fields":["n",{"s":"asc"}],"partial_filter_selector":{"t":true}},"name":"i","ddoc":"d"}"#,
    );
    assert_eq!(created.unwrap(), Created { id: "_design/d".to_owned(), name: "i".to_owned(), existed: false });
    // Recorded, with the revision.
    let map = r#"{"fields":{"n":"asc","s":"asc"},"partial_filter_selector":{"t":{"$eq":true}}}"#;
    let options = r#"{"def":{"fields":["n",{"s":"asc"}],"partial_filter_selector":{"t":true}}}"#;
    assert_eq!(
        body(&place, "_design/d"),
        format!(
            r#"1-99b8f559f6d2396e91c6e7a32455801b {{"language":"query","views":{{"i":{{"map":{map},"reduce":"_count","options":{options}}}}}}}"#
        )
    );
    create(&place, r#"{"index":{"fields":["n"]},"name":"i","ddoc":"di","type":"json"}"#).unwrap();
    assert!(body(&place, "_design/di").starts_with("1-9f2189915862b82c36c70dbd9c8e6f43 "));
    let defined = r#"{"fields":[{"n":"asc"},{"s":"asc"}],"partial_filter_selector":{"t":{"$eq":true}}}"#;
    let rows = format!(
        r#"{{"ddoc":"_design/d","name":"i","type":"json","partitioned":false,"def":{defined}}},{{"ddoc":"_design/di","name":"i","type":"json","partitioned":false,"def":{{"fields":[{{"n":"asc"}}]}}}}"#
    );
    assert_eq!(list(&place), format!(r#"{{"total_rows":3,"indexes":[{PRIMARY},{rows}]}}"#));
}

#[test]
fn indexes_come_and_go() {
    let place = Place::new();
    let one = r#"{"index":{"fields":["a"]},"name":"one","ddoc":"_design/d"}"#;
    assert!(!create(&place, one).unwrap().existed);
    assert!(create(&place, one).unwrap().existed);
    assert!(!create(&place, r#"{"index":{"fields":["b"]},"name":"two","ddoc":"d"}"#).unwrap().existed);
    assert!(!create(&place, r#"{"index":{"fields":["c"]},"name":"one","ddoc":"d"}"#).unwrap().existed, "redefined");
    assert!(matches!(edit::delete(&place.database, "d", "json", "none"), Err(MangoError::NoSuchIndex)));
    assert!(matches!(edit::delete(&place.database, "d", "text", "one"), Err(MangoError::NoSuchIndex)));
    edit::delete(&place.database, "d", "json", "one").unwrap();
    assert!(list(&place).contains(r#""name":"two""#) && !list(&place).contains(r#""name":"one""#));
    edit::delete(&place.database, "_design/d", "json", "two").unwrap();
    assert_eq!(list(&place), format!(r#"{{"total_rows":1,"indexes":[{PRIMARY}]}}"#));
    assert!(place.database.read().unwrap().head("_design/d").unwrap().unwrap().stored.deleted);
    assert!(!create(&place, one).unwrap().existed, "in place of the deleted design document");
    edit::delete_all_of(&place.database, "_design/d").unwrap();
    assert!(matches!(edit::delete_all_of(&place.database, "_design/d"), Err(MangoError::NoSuchIndex)));
}

#[test]
fn names_are_made_of_the_definition() {
    let place = Place::new();
    let first = create(&place, r#"{"index":{"fields":["a"]}}"#).unwrap();
    assert_eq!((first.id, first.name.len()), (format!("_design/{}", first.name), 40));
    assert!(create(&place, r#"{"index":{"fields":["a"]}}"#).unwrap().existed);
    let named = create(&place, r#"{"index":{"fields":["a"]},"name":"given"}"#).unwrap();
    assert_eq!((named.existed, named.name.as_str(), named.id.len()), (false, "given", 48));
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let place = Place::new();
    place.write(r#"{"_id":"_design/js","language":"javascript","views":{}}"#);
    let check = |body: &str, name: &str, reason: &str| match create(&place, body) {
        Err(MangoError::Refused(refusal)) => {
            assert_eq!((refusal.name(), refusal.to_string().as_str()), (name, reason), "{body}");
        }
        other => panic!("{body}: {other:?}"),
    };
    check("{}", "missing_required_key", "Missing required key: index");
    check(r#"{"index":{}}"#, "missing_required_key", "Missing required key: fields");
    check(r#"{"index":1}"#, "invalid_index", "JSON indexes must be an object, not: 1");
    check(r#"{"index":{"fields":[1]}}"#, "invalid_sort_field", "Invalid sort field: 1");
    check(r#"{"index":{"fields":["a"],"x":1}}"#, "invalid_key", "Invalid key x for this request.");
    check(r#"{"index":{"fields":["a"]},"x":1}"#, "invalid_key", "Invalid key x for this request.");
    check(r#"{"index":{"fields":["a"]},"type":"nosuch"}"#, "invalid_index", "Invalid type for index: nosuch");
    check(r#"{"index":{"fields":["a"]},"name":5}"#, "invalid_string", "Invalid string: 5");
    check(r#"{"index":{"fields":["a"]},"w":0}"#, "invalid_pos_integer", "0 is not an integer greater than zero");
    check(
        r#"{"index":{"fields":["a"],"partial_filter_selector":1}}"#,
        "invalid_selector_json",
        "Selector must be a JSON object, not: 1",
    );
    check(
        r#"{"index":{"fields":["a"]},"ddoc":"js"}"#,
        "invalid_ddoc_lang",
        "Existing design doc has an invalid language: \"javascript\"",
    );
    let text = create(&place, r#"{"index":{"fields":[{"name":"s","type":"string"}]},"type":"text"}"#);
    assert!(matches!(text, Err(MangoError::ServiceUnavailable(kind)) if kind == "text"));
}

#[test]
fn bulk_deletions_name_design_documents() {
    let parse = |text: &str| edit::parse_bulk_delete(json(text).value()).map_err(|error| error.to_string());
    assert_eq!(
        parse(r#"{"docids":["_design/a","b"],"w":3}"#),
        Ok(vec!["_design/a".to_owned(), "_design/b".to_owned()])
    );
    assert_eq!(parse("{}"), Err("Missing required key: docids".to_owned()));
    assert_eq!(parse(r#"{"docids":1}"#), Err("Bulk Delete requires an array of non-null docids. Docids: 1".to_owned()));
    assert_eq!(parse(r#"{"docids":[1]}"#), Err("Invalid index name: 1".to_owned()));
}
