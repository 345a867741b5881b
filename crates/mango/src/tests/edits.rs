//! Indexes as design documents.

use settee_model::json::Json;

use super::{Place, SEARCH, json};
use crate::index::edit::{self, Created, NewIndex, Page};
use crate::{MangoError, TextSearch};

fn create(place: &Place, body: &str) -> Result<Created, MangoError> {
    edit::create(&place.database, &NewIndex::parse(json(body).value(), SEARCH)?)
}

fn list(place: &Place) -> String {
    let mut out = Vec::new();
    edit::write_list(&place.database, SEARCH, Page { skip: 0, limit: None }, &mut out).unwrap();
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
    assert!(matches!(edit::delete(&place.database, SEARCH, "d", "json", "none"), Err(MangoError::NoSuchIndex)));
    assert!(matches!(edit::delete(&place.database, SEARCH, "d", "text", "one"), Err(MangoError::NoSuchIndex)));
    edit::delete(&place.database, SEARCH, "d", "json", "one").unwrap();
    assert!(list(&place).contains(r#""name":"two""#) && !list(&place).contains(r#""name":"one""#));
    edit::delete(&place.database, SEARCH, "_design/d", "json", "two").unwrap();
    assert_eq!(list(&place), format!(r#"{{"total_rows":1,"indexes":[{PRIMARY}]}}"#));
    assert!(place.database.read().unwrap().head("_design/d").unwrap().unwrap().stored.deleted);
    assert!(!create(&place, one).unwrap().existed, "in place of the deleted design document");
    edit::delete_all_of(&place.database, SEARCH, "_design/d").unwrap();
    assert!(matches!(edit::delete_all_of(&place.database, SEARCH, "_design/d"), Err(MangoError::NoSuchIndex)));
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
}

#[test]
fn types_that_are_not_served_are_not_there() {
    let place = Place::new();
    let body = |kind: &str| json(&format!(r#"{{"index":{{}},"type":"{kind}","name":"i","ddoc":"d{kind}"}}"#));
    let only = |kind: &str| TextSearch { text: kind == "text", nouveau: kind == "nouveau" };
    for (kind, other) in [("text", "nouveau"), ("nouveau", "text")] {
        let refused = NewIndex::parse(body(kind).value(), only(other)).unwrap_err();
        assert!(matches!(refused, MangoError::ServiceUnavailable(shown) if shown == kind));
        edit::create(&place.database, &NewIndex::parse(body(kind).value(), only(kind)).unwrap()).unwrap();
    }
    let listed = |search: TextSearch| {
        let mut out = Vec::new();
        edit::write_list(&place.database, search, Page { skip: 0, limit: None }, &mut out).unwrap();
        let names =
            ["text", "nouveau"].map(|kind| String::from_utf8_lossy(&out).contains(&format!(r#""type":"{kind}""#)));
        (names, Json::parse(&out).unwrap().value().get("total_rows").unwrap().as_u64())
    };
    assert_eq!(listed(SEARCH), ([true, true], Some(3)));
    assert_eq!(listed(only("text")), ([true, false], Some(2)));
    assert_eq!(listed(only("nouveau")), ([false, true], Some(2)));
    let delete = |search, kind: &str| edit::delete(&place.database, search, &format!("d{kind}"), kind, "i");
    assert!(matches!(delete(only("text"), "nouveau"), Err(MangoError::NoSuchIndex)));
    assert!(matches!(edit::delete(&place.database, SEARCH, "dtext", "nouveau", "i"), Err(MangoError::NoSuchIndex)));
    delete(SEARCH, "text").unwrap();
    edit::delete_all_of(&place.database, SEARCH, "_design/dnouveau").unwrap();
    assert_eq!(list(&place), format!(r#"{{"total_rows":1,"indexes":[{PRIMARY}]}}"#));
}

#[test]
fn text_indexes_share_design_documents_with_others() {
    let place = Place::new();
    create(&place, r#"{"index":{"fields":["a"]},"name":"j","ddoc":"d"}"#).unwrap();
    let text = r#"{"index":{"fields":[{"name":"a","type":"string"}]},"type":"text","name":"t","ddoc":"d"}"#;
    assert!(!create(&place, text).unwrap().existed);
    assert!(create(&place, text).unwrap().existed);
    assert!(!create(&place, r#"{"index":{},"type":"nouveau","name":"t","ddoc":"d"}"#).unwrap().existed);
    let names = |place: &Place| list(place).matches(r#""ddoc":"_design/d""#).count();
    assert_eq!(names(&place), 3);
    edit::delete(&place.database, SEARCH, "d", "text", "t").unwrap();
    assert!(list(&place).contains(r#""name":"t","type":"nouveau""#) && list(&place).contains(r#""name":"j""#));
    edit::delete_all_of(&place.database, SEARCH, "_design/d").unwrap();
    assert_eq!(names(&place), 0);
    let made = create(&place, r#"{"index":{},"type":"text","w":3}"#).unwrap();
    assert_eq!(made.name, "cedc01a027213706d7260b5e5b73c70b9233743a");
}

#[test]
fn design_documents_of_text_indexes_are_couchdbs() {
    let place = Place::new();
    let check = |body_text: &str, id: &str, rev: &str| {
        create(&place, body_text).unwrap();
        assert!(body(&place, id).starts_with(rev), "{}", body(&place, id));
    };
    check(r#"{"type":"nouveau","index":{},"name":"i","ddoc":"d"}"#, "_design/d", "1-e3d674ee3719f348957a31561ad88ae2 ");
    check(
        r#"{"type":"nouveau","index":{"default_field":{"enabled":false}},"name":"j","ddoc":"e"}"#,
        "_design/e",
        "1-08711389ecbbad9f2d6252116c709b62 ",
    );
    let fields =
        r#""fields":[{"name":"s","type":"string"},{"name":"n","type":"number"},{"name":"b","type":"boolean"}]"#;
    check(
        &format!(r#"{{"type":"nouveau","index":{{{fields}}},"name":"i","ddoc":"f"}}"#),
        "_design/f",
        "1-aab4df80a058968886be893ba6294a90 ",
    );
    let options = r#""default_analyzer":"english","default_field":{"enabled":true,"analyzer":"german"},"partial_filter_selector":{"n":{"$gt":1}},"index_array_lengths":false"#;
    check(
        &format!(r#"{{"type":"nouveau","index":{{{fields},{options}}},"name":"i","ddoc":"g"}}"#),
        "_design/g",
        "1-e36e557148013adbcaa8ef09c7eb0481 ",
    );
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
