//! Parsing and writing of documents; CouchDB's error texts.

#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::testing::Random;

fn parse(text: &str) -> Result<Document, DocumentError> {
    Document::parse(Json::parse(text.as_bytes()).unwrap().value())
}

#[track_caller]
fn check_body(text: &str, expected: &str) {
    let document = parse(text).unwrap();
    assert_eq!(std::str::from_utf8(document.body.as_bytes()).unwrap(), expected, "{text}");
}

#[test]
fn body_is_the_remainder() {
    for (text, expected) in [
        ("{}", "{}"),
        (r#"{"a":1}"#, r#"{"a":1}"#),
        (r#"{"_id":"x"}"#, "{}"),
        (r#"{"_id":"x","_deleted":false}"#, "{}"),
        (r#"{"_id":"x","a":1}"#, r#"{"a":1}"#),
        (r#"{"a":1,"_id":"x"}"#, r#"{"a":1}"#),
        (r#"{"a":[1,{"_b":2}],"_id":"x","b":"\u00e9","c":1e2}"#, r#"{"a":[1,{"_b":2}],"b":"\u00e9","c":1e2}"#),
        (r#"{"_id":"x","a":1,"_rev":"1-a","b":2,"_deleted":true}"#, r#"{"a":1,"b":2}"#),
        (r#"{"\u005fid":"x","\u0061":1}"#, r#"{"\u0061":1}"#),
        (r#"{"_conflicts":["1-x"],"_deleted_conflicts":[],"_revs_info":[],"_local_seq":3,"n":1}"#, r#"{"n":1}"#),
        (
            r#"{"_replication_state":"done","_id":"x","_replication_id":1}"#,
            r#"{"_replication_state":"done","_replication_id":1}"#,
        ),
        (r#"{"":1," _id":2,"id":3}"#, r#"{"":1," _id":2,"id":3}"#),
    ] {
        check_body(text, expected);
    }
}

#[test]
fn special_members() {
    let text = r#"{"_id":"a\u0062","_rev":"3-c","_deleted":true,"_attachments":{"x":{"stub":true}},"n":1}"#;
    let document = parse(text).unwrap();
    assert_eq!(document.id.as_deref(), Some("ab"));
    assert_eq!(document.rev, Some(Rev::parse("3-c").unwrap()));
    assert!(document.deleted);
    assert_eq!(document.attachments.unwrap().as_bytes(), br#"{"x":{"stub":true}}"#);
    assert_eq!(document.revisions, None);

    let document = parse(r#"{"_revisions":{"start":3,"ids":["c","b"]},"_rev":"?"}"#).unwrap();
    assert_eq!(document.rev, Some(Rev::parse("3-c").unwrap()), "the history counts, not _rev");
    let path = document.revisions.unwrap().path();
    assert_eq!(path, [Rev::parse("3-c").unwrap(), Rev::parse("2-b").unwrap()]);

    let document = parse(r#"{"_revisions":{"start":1,"ids":["b","a"]}}"#).unwrap();
    assert_eq!(document.revisions.unwrap().path(), [Rev::parse("1-b").unwrap(), Rev::parse("0-a").unwrap()]);

    for empty in
        [r#"{"_rev":"1-x","_revisions":{"ids":[],"start":0}}"#, r#"{"_revisions":{"ids":[],"start":3},"_rev":"1-abc"}"#]
    {
        let document = parse(empty).unwrap();
        assert_eq!((document.rev, document.revisions), (None, None), "{empty}");
    }

    let document = parse(r#"{"_id":"_local/x","_rev":"0-3"}"#).unwrap();
    assert_eq!(document.rev.unwrap().to_string(), "0-3");

    let document = parse("{}").unwrap();
    assert_eq!((document.id, document.rev, document.deleted, document.attachments), (None, None, false, None));
}

#[test]
fn refused() {
    use DocumentErrorKind::{BadRequest, DocValidation, IllegalDocid};
    for (kind, reason, texts) in [
        (BadRequest, "Document must be a JSON object", &["[]", "1", r#""x""#, "null", "true", "[{}]"][..]),
        (
            BadRequest,
            "Invalid rev format",
            &[r#"{"_rev":"x"}"#, r#"{"_rev":1}"#, r#"{"_rev":null}"#, r#"{"_rev":"-1"}"#, r#"{"_rev":""}"#],
        ),
        (
            IllegalDocid,
            "Only reserved document ids may start with underscore.",
            &[
                r#"{"_id":"_x"}"#,
                r#"{"_id":"_design"}"#,
                r#"{"_id":"_"}"#,
                r#"{"_id":"\u005fx"}"#,
                r#"{"_id":"_x","_y":1}"#,
            ],
        ),
        (IllegalDocid, "Document id must not be empty", &[r#"{"_id":""}"#]),
        (IllegalDocid, "Document id must be a string", &[r#"{"_id":1}"#, r#"{"_id":null}"#, r#"{"_id":["a"]}"#]),
        (IllegalDocid, "Illegal document id `_design/`", &[r#"{"_id":"_design/"}"#]),
        (IllegalDocid, "Illegal document id `_local/`", &[r#"{"_id":"_local/"}"#]),
        (
            DocValidation,
            "Bad special document member: _x",
            &[r#"{"_x":1}"#, r#"{"\u005fx":1}"#, r#"{"_x":1,"_id":""}"#],
        ),
        (DocValidation, "Bad special document member: _", &[r#"{"_":1}"#]),
        (DocValidation, "Bad special document member: _Rev", &[r#"{"_Rev":1}"#]),
        (DocValidation, "Bad special document member: _rev2", &[r#"{"_rev2":1}"#]),
        (DocValidation, "Bad special document member: _deleted", &[r#"{"_deleted":1}"#, r#"{"_deleted":null}"#]),
        (DocValidation, "Bad special document member: _attachments", &[r#"{"_attachments":[]}"#]),
        (DocValidation, "Bad special document member: _revisions", &[r#"{"_revisions":1}"#]),
        (
            DocValidation,
            "_revisions.start isn't an integer.",
            &[
                r#"{"_revisions":{}}"#,
                r#"{"_revisions":{"start":"1","ids":[]}}"#,
                r#"{"_revisions":{"start":1.0,"ids":[]}}"#,
            ],
        ),
        (
            DocValidation,
            "_revisions.ids isn't a array.",
            &[r#"{"_revisions":{"start":1}}"#, r#"{"_revisions":{"start":1,"ids":"a"}}"#],
        ),
        (DocValidation, "RevId isn't a string", &[r#"{"_revisions":{"start":1,"ids":[1]}}"#]),
        (
            DocValidation,
            "RevId isn't a valid hexadecimal",
            &[r#"{"_revisions":{"start":1,"ids":["zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz"]}}"#],
        ),
        (
            DocValidation,
            "_revisions.ids is longer than _revisions.start allows.",
            &[r#"{"_revisions":{"start":1,"ids":["c","b","a"]}}"#],
        ),
    ] {
        for text in texts {
            let error = parse(text).unwrap_err();
            assert_eq!((error.kind(), error.to_string().as_str()), (kind, reason), "{text}");
        }
    }
}

#[test]
fn ids() {
    for id in ["a", " ", "é", "a/b", "-", "_design/a", "_local/a", "_design/a/b", &"x".repeat(MAX_DOC_ID_LEN)] {
        assert_eq!(validate_doc_id(id), Ok(()), "{id}");
    }
    let error = validate_doc_id(&"x".repeat(MAX_DOC_ID_LEN + 1)).unwrap_err();
    assert_eq!(error.to_string(), "Document id is too long");
}

#[test]
fn write_json() {
    let rev = Rev::parse("1-a").unwrap();
    let check = |deleted: bool, extra: &str, body: &str, expected: &str| {
        let mut out = b"[".to_vec();
        let write_extra = |out: &mut Vec<u8>| out.extend_from_slice(extra.as_bytes());
        Document::write_json(&mut out, "a\"b", &rev, deleted, write_extra, body.as_bytes());
        assert_eq!(std::str::from_utf8(&out).unwrap(), format!("[{expected}"));
    };
    check(false, "", "{}", r#"{"_id":"a\"b","_rev":"1-a"}"#);
    check(false, "", r#"{"n":1}"#, r#"{"_id":"a\"b","_rev":"1-a","n":1}"#);
    check(true, "", "{}", r#"{"_id":"a\"b","_rev":"1-a","_deleted":true}"#);
    check(
        true,
        ",\"_local_seq\":3",
        r#"{"n":1}"#,
        r#"{"_id":"a\"b","_rev":"1-a","n":1,"_deleted":true,"_local_seq":3}"#,
    );
}

#[test]
fn random_documents_come_back() {
    let mut random = Random::new();
    let rev = Rev::parse("12-23202479633c2b380f79507a776743d5").unwrap();
    for _ in 0..2_000 {
        let body = Json::parse(random.json_object().as_bytes()).unwrap();
        if body.value().members().any(|(name, _)| name.as_str().unwrap().starts_with('_')) {
            continue;
        }
        let special = [r#""_id":"x""#, r#""_rev":"12-23202479633c2b380f79507a776743d5""#, r#""_deleted":true"#];
        let mut members: Vec<Vec<u8>> =
            body.value().members().map(|(name, value)| [name.raw(), b":", value.raw()].concat()).collect();
        for member in special {
            members.insert(random.below(members.len() + 1), member.as_bytes().to_vec());
        }
        let text = [&b"{"[..], &members.join(&b","[..]), b"}"].concat();
        let document = Document::parse(Json::parse(&text).unwrap().value()).unwrap();
        assert_eq!(document.body, body);
        let mut written = Vec::new();
        Document::write_json(&mut written, "x", &rev, true, |_| {}, body.as_bytes());
        assert_eq!(Document::parse(Json::parse(&written).unwrap().value()).unwrap(), document);
    }
}
