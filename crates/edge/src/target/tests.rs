//! Tests of request heads.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::framing::Framing;
use super::*;

fn pass(text: &str, size: usize) -> String {
    let mut framing = Framing::new(HeadLimits { bytes: 500, headers: 5 });
    let mut out = Vec::new();
    for piece in text.as_bytes().chunks(size) {
        let mut escaped = Vec::new();
        let same = framing.follow(piece, &mut escaped);
        out.extend_from_slice(if same { piece } else { &escaped });
    }
    String::from_utf8(out).unwrap()
}

fn check(text: &str, expected: &str) {
    for size in [1, 2, 3, 7, 1000] {
        assert_eq!(pass(text, size), expected, "in pieces of {size}");
    }
}

#[test]
fn targets_are_escaped_and_nothing_else() {
    let get = "GET /db/_all_docs?key=\"ab\"&keys=[{}] HTTP/1.1\r\nHost: \"x\"\r\nA: {\r\n\r\n";
    let escaped = "GET /db/_all_docs?key=%22ab%22&keys=[%7B%7D] HTTP/1.1\r\nHost: \"x\"\r\nA: {\r\n\r\n";
    check(get, escaped);
    let post = "POST /db?x=\"1\" HTTP/1.1\r\ncontent-LENGTH: 9\r\n\r\n{\"a\":\"b\"}";
    let posted = "POST /db?x=%221%22 HTTP/1.1\r\ncontent-LENGTH: 9\r\n\r\n{\"a\":\"b\"}";
    check(&format!("{post}{get}{post}\r\n{post}"), &format!("{posted}{escaped}{posted}\r\n{posted}"));
    let chunks =
        "PUT /db/`x` HTTP/1.1\nTransfer-Encoding: Chunked\n\n3;\"x\"\r\n{\"\n\r\n1\r\n\"\r\n0\r\nT: \"\r\n\r\n";
    let chunked = chunks.replace('`', "%60");
    check(&format!("{chunks}{get}"), &format!("{chunked}{escaped}"));
}

#[test]
fn unparseable_targets_are_not_modified() {
    for head in
        ["Content-Length: 1\r\nTransfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked", "Upgrade: websocket"]
    {
        let text = format!("GET / HTTP/1.1\r\n{head}\r\n\r\n\"GET /\"\r\n\r\n\"");
        check(&text, &text);
    }
    let broken = "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\"\r\n\r\n\"";
    check(broken, broken);
}

#[test]
fn broken_heads_become_heads_that_say_so() {
    let good = "PUT /db HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}";
    for line in
        ["nonsense", "GET /a b HTTP/1.1", "GET / HTTP/2.0", " / HTTP/1.1", "G(T / HTTP/1.1", "GET  HTTP/1.1", "GET / x"]
    {
        let passed = "GET / HTTP/1.1\r\nx-settee-refused: line\r\n\r\n";
        check(&format!("{good}{line}\r\nHost: x\r\n\r\n{good}"), &format!("{good}{passed}"));
    }
    let first = "GET / HTTP/1.1\r\nHost: x\r\n";
    for line in [
        "no header",
        ": x",
        "a b: x",
        " folded",
        "X: a\u{1}b",
        "Content-Length: x",
        "Content-Length: -1",
        "Content-Length: +5",
        "Content-Length: 1\r\nContent-Length: 2",
    ] {
        let passed = line.split_once("\r\n").map_or(String::new(), |(fine, _)| format!("{fine}\r\n"));
        let passed = format!("{good}{first}{passed}x-settee-refused: head\r\n\r\n");
        check(&format!("{good}{first}{line}\r\n\r\n{good}"), &passed);
    }
}

#[test]
fn large_heads_become_heads_that_say_so() {
    let long = "x".repeat(600);
    check(&format!("GET /{long} HTTP/1.1\r\n\r\n"), "GET / HTTP/1.1\r\nx-settee-refused: target\r\n\r\n");
    check(&long, "GET / HTTP/1.1\r\nx-settee-refused: target\r\n\r\n");
    let first = "GET / HTTP/1.1\r\n";
    check(&format!("{first}A: {long}\r\n\r\n"), &format!("{first}x-settee-refused: size\r\n\r\n"));
    let five = "A: b\r\n".repeat(5);
    let whole = format!("{first}{five}\r\n");
    check(&whole.repeat(20), &whole.repeat(20));
    check(&format!("{first}{five}A: b\r\n\r\n"), &format!("{first}{five}x-settee-refused: size\r\n\r\n"));
}

#[test]
fn refusals_say_what_was_wrong() {
    for (refusal, _) in HeadError::ALL {
        let line = refusal.header();
        let (name, value) = line.trim_end().split_once(": ").unwrap();
        let headers = HeaderMap::from_iter([(name.parse::<HeaderName>().unwrap(), value.parse().unwrap())]);
        let error = refused(&headers).unwrap();
        assert!(error.status.is_client_error() && error.headers[0].1 == "close", "{error:?}");
    }
    assert!(refused(&HeaderMap::new()).is_none());
}
