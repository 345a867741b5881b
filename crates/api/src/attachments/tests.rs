//! Tests of `_attachments` and of documents in multipart bodies.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::VecDeque;
use std::io::Read;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Frame};
use settee_database::{DocUpdate, Form, UpdateOutcome, Work};
use settee_edge::body::pieces::with_pieces;
use settee_edge::bridge::permits::{ClientThreads, PermitCounts};
use settee_model::RevisionHasher;
use settee_model::json::Json;
use settee_wire::multipart::ContentType;

use super::*;
use crate::tests::{database, show};

const INTERACTIVE: EditMode = EditMode::Interactive;

fn policy() -> Policy {
    Policy {
        limit_bytes: 1000,
        level: 8,
        compressible: vec!["text/*".into(), "application/json".into(), String::new()],
    }
}

fn document(text: &str) -> Document {
    Document::parse(Json::parse(text.as_bytes()).unwrap().value()).unwrap()
}

fn resolve_text(database: &Arc<Database>, id: &str, text: &str, mode: EditMode) -> Result<NewAttachments, Error> {
    resolve((database, &Reader::Administrator, id), &policy(), &document(text), mode, HashMap::new(), Waiting::Allowed)
}

fn save(database: &Arc<Database>, id: &str, text: &str, attachments: NewAttachments) -> Rev {
    let hasher = &mut RevisionHasher::default();
    let update = DocUpdate::prepare_with(id.to_owned(), document(text), attachments, INTERACTIVE, hasher).unwrap();
    match database.update(Work::Documents(vec![update])).unwrap().remove(0) {
        UpdateOutcome::Saved(rev) => rev,
        other => panic!("{other:?}"),
    }
}

fn refusal(result: Result<NewAttachments, Error>) -> String {
    show(&result.unwrap_err())
}

#[test]
fn types_are_compressed_by_pattern() {
    let gzip = Compression::Gzip { level: 8 };
    for (content_type, expected) in [
        ("text/plain", gzip),
        ("TEXT/html; charset=utf-8", gzip),
        ("application/json ; x=y", gzip),
        ("application/json5", Compression::None),
        ("application/octet-stream", Compression::None),
        ("", Compression::None),
        ("texts/plain", Compression::None),
    ] {
        assert_eq!(policy().compression(content_type), expected, "{content_type}");
    }
    assert_eq!(Policy { level: 0, ..policy() }.compression("text/plain"), Compression::None);
}

#[test]
fn rejected_input() {
    let database = database();
    let check = |text: &str, expected: &str| {
        assert_eq!(refusal(resolve_text(&database, "doc", text, INTERACTIVE)), expected, "{text}");
    };
    check(r#"{"_attachments":{"x":{"data":"!"}}}"#, "400 bad_request: Invalid attachment data for x");
    let name = "400 bad_request: Attachment name '_x' starts with prohibited character '_'";
    check(r#"{"_attachments":{"_x":{"data":""}}}"#, name);
    let stub = "412 missing_stub: Invalid attachment stub in doc for x";
    check(r#"{"_attachments":{"x":{"stub":true}}}"#, stub);
    check(r#"{"_attachments":{"x":{"follows":true}}}"#, "400 bad_request: The data of attachment x does not follow");
    let large = format!(r#"{{"_attachments":{{"x":{{"data":"{}"}}}}}}"#, "AAAA".repeat(334));
    check(&large, "413 attachment_too_large: x");
    let local = resolve_text(&database, "_local/x", r#"{"_attachments":{"_x":5,"x":{"stub":true}}}"#, INTERACTIVE);
    assert!(local.is_ok(), "local documents are stored without them");
    for text in [r#"{"_attachments":{"_x":{"data":""}}}"#, r#"{"_attachments":{"x":{"data":"!"}}}"#] {
        assert!(resolve_text(&database, "_local/x", text, INTERACTIVE).is_err(), "{text}");
    }
}

#[test]
fn stubs_must_name_the_generation_that_is_stored() {
    let database = database();
    let text = r#"{"_attachments":{"x":{"data":"AAEC"}}}"#;
    let rev = save(&database, "doc", text, resolve_text(&database, "doc", text, INTERACTIVE).unwrap());
    let with = |stub: &str| format!(r#"{{"_rev":"{rev}","_attachments":{{"x":{{"stub":true{stub}}}}}}}"#);
    assert!(resolve_text(&database, "doc", &with(r#","revpos":1"#), INTERACTIVE).is_ok());
    assert!(resolve_text(&database, "doc", &with(""), INTERACTIVE).is_ok());
    let wrong = resolve_text(&database, "doc", &with(r#","revpos":2"#), INTERACTIVE);
    assert_eq!(refusal(wrong), "412 missing_stub: Invalid attachment stub in doc for x");
    // The database detects the conflict.
    assert!(
        resolve_text(&database, "doc", r#"{"_rev":"1-a","_attachments":{"x":{"stub":true}}}"#, INTERACTIVE).is_ok()
    );
    let replicated = r#"{"_revisions":{"start":3,"ids":["c","b"]},"_attachments":{"x":{"stub":true}}}"#;
    let missing = resolve_text(&database, "doc", replicated, EditMode::Replicated);
    assert_eq!(refusal(missing), "412 missing_stub: Invalid attachment stub in doc for x");
}

async fn receive(body: &str, size: usize) -> Result<Vec<(String, String)>, String> {
    let pieces = body.as_bytes().chunks(size).map(|piece| Frame::data(Bytes::copy_from_slice(piece)));
    let body = Pieced(pieces.collect());
    let received = with_pieces(
        ClientThreads::new(&PermitCounts { answers: 1, lists: 1, uploads: 1 }, &crate::tests::nothing(), 1)
            .upload(&crate::tests::account(), Duration::from_secs(60)),
        body,
        |pieces| {
            let database = database();
            let content_type = ContentType::parse("multipart/related; boundary=sep");
            let related = related::receive(&database, &policy(), &content_type, pieces, |_| Ok(()))?;
            let (place, waiting) = ((&database, &Reader::Administrator, "doc"), Waiting::Allowed);
            let attachments = resolve(place, &policy(), &related.document, INTERACTIVE, related.followed, waiting)?;
            let rev = save(&database, "doc", "{}", attachments);
            let view = database.read()?;
            let stored = view.head("doc")?.unwrap();
            assert_eq!(stored.rev, rev);
            let attachments = view.revision(stored.stored)?.unwrap().attachments;
            let read = |attachment: &Attachment| {
                let mut text = String::new();
                view.content(attachment).unwrap().reader(Form::Identity).read_to_string(&mut text).unwrap();
                (attachment.name.clone(), text)
            };
            Ok(attachments.iter().map(read).collect())
        },
    );
    received.await.unwrap().map_err(|error: Error| show(&error))
}

struct Pieced(VecDeque<Frame<Bytes>>);

impl Body for Pieced {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::convert::Infallible>>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}

#[tokio::test]
async fn documents_come_with_their_attachments_behind_them() {
    let document =
        |members: &str| format!("--sep\r\nContent-Type: application/json\r\n\r\n{{\"_attachments\":{{{members}}}}}");
    let plain = document(
        r#""a":{"follows":true,"length":3},"b":{"follows":true,"content_type":"text/plain"},"c":{"data":"Yw=="}"#,
    );
    let named = "\r\n--sep\r\nContent-Disposition: attachment; filename=\"b\"\r\n\r\naaa\r\n--sep\r\n\r\nbb\r\n--sep--";
    let expected = [("a", "aaa"), ("b", "bb"), ("c", "c")].map(|(name, text)| (name.to_owned(), text.to_owned()));
    for body in [format!("{plain}\r\n--sep\r\n\r\naaa\r\n--sep\r\n\r\nbb\r\n--sep--"), format!("{plain}{named}")] {
        for size in [1, 7, 1000] {
            assert_eq!(receive(&body, size).await.as_deref(), Ok(&expected[..]), "{size}");
        }
    }
    // CouchDB reads no part for an attachment of length 0.
    let empty = document(r#""a":{"follows":true,"length":0},"b":{"follows":true},"c":{"follows":true,"length":0}"#);
    let expected = [("a", ""), ("b", "bb"), ("c", "")].map(|(name, text)| (name.to_owned(), text.to_owned()));
    for parts in [&["bb"][..], &["", "bb"], &["bb", ""], &["", "bb", ""]] {
        let parts: String = parts.iter().map(|data| format!("\r\n--sep\r\n\r\n{data}")).collect();
        let body = format!("{empty}{parts}\r\n--sep--");
        assert_eq!(receive(&body, 7).await.as_deref(), Ok(&expected[..]), "{body}");
    }
    let follows = |reply: &str, data: &str| {
        format!("{}\r\n--sep\r\n\r\n{data}\r\n--sep--", document(&format!(r#""a":{{"follows":true{reply}}}"#)))
    };
    let md5 = r#","digest":"md5-kAFQmDzST7DWlj99KOF/cg==""#;
    assert!(receive(&follows(md5, "abc"), 9).await.is_ok());
    for (body, error) in [
        (follows(md5, "abd"), "400 content_md5_mismatch: Possible message corruption."),
        (follows(r#","length":4"#, "abc"), "400 bad_request: attachment shorter than expected"),
        (follows(r#","length":2"#, "abc"), "400 bad_request: attachment longer than expected"),
        (follows(r#","length":3,"encoded_length":"x""#, "abd"), ""),
        (follows("", &"x".repeat(1001)), "413 attachment_too_large: a"),
        (
            format!("{}\r\n--sep--", document(r#""a":{"follows":true}"#)),
            "400 bad_request: The data of attachment a does not follow",
        ),
        (format!("{plain}\r\n--sep\r\n\r\naaa"), "400 bad_request: the multipart body ended early"),
        ("--sep--".to_owned(), "400 bad_request: The multipart body has no document"),
        (
            "--sep\r\nX: y\r\n\r\n{}\r\n--sep--".to_owned(),
            "415 bad_content_type: Content-Type must be application/json",
        ),
        (follows("", "a") + "x", ""),
    ] {
        assert_eq!(receive(&body, 11).await.err().unwrap_or_default(), error, "{body}");
    }
}
