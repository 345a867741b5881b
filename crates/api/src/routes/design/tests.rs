//! Tests of the validation of design documents.
#![expect(clippy::unwrap_used, reason = "tests")]

use settee_database::DatabaseOptions;
use settee_design::scripted::Scripted;
use settee_mango::MangoLanguage;
use settee_storage::memory::MemoryEngine;

use super::*;
use crate::tests::parts::parts;
use crate::tests::{json, show};

#[tokio::test]
async fn a_selector_is_checked_when_it_is_saved() {
    let node = Node::new(parts(
        Arc::new(MemoryEngine::new()),
        vec![Arc::new(MangoLanguage), Arc::new(Scripted::new(|_, _, _| Ok(b"1".to_vec())))],
    ));
    let options = DatabaseOptions { created_ms: 0, instance: 7, layout: Layout::Whole, q: 1 };
    let database = node.catalog.create("db", options).unwrap();
    let check = async |body: &str, expected: Result<(), &str>| {
        let checked = validate((&node, &Threads::default()), &database, &json(body)).await;
        assert_eq!(checked.map_err(|error| show(&error)), expected.map_err(str::to_owned), "{body}");
    };
    check(r#"{"language":"query","validate_doc_update":{"newDoc":{"a":1}}}"#, Ok(())).await;
    let reason = "400 compilation_error: Compilation of the validate_doc_update function failed: Invalid operator: $x";
    check(r#"{"language":"query","validate_doc_update":{"newDoc":{"$x":1}}}"#, Err(reason)).await;
    let reason = "400 invalid_design_doc: `validate_doc_update` field must have object type";
    check(r#"{"language":"query","validate_doc_update":"x"}"#, Err(reason)).await;
    let reason = "400 invalid_design_doc: `validate_doc_update` field must have string type";
    check(r#"{"validate_doc_update":{}}"#, Err(reason)).await;
}
