//! JSONP: responses as calls of a function that a page names (`?callback=name`), for pages that cannot use
//! CORS. It is disabled unless `[chttpd] allow_jsonp` is set, because it lets pages of all origins read data
//! with the rights of their visitor.

use bytes::{Bytes, BytesMut};
use hyper::header::{self, HeaderValue};
use settee_edge::respond::{Aborted, Body};
use tokio::sync::mpsc;

use crate::Error;
use crate::params::Query;
use crate::respond::{self, Response};

/// Text before the function name, so that an attacker cannot determine the first bytes of the response.
const BEFORE: &str = "/* CouchDB */";

/// Number of buffered pieces. It is small because the sender measures the speed of the client by it.
const PIECES_WAITING: usize = 1;

pub(crate) fn callback(query: Option<&str>) -> Result<Option<String>, Error> {
    let query = Query::parse(query)?;
    let Some(name) = query.get("callback").filter(|name| !name.is_empty()) else { return Ok(None) };
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._[]".contains(&byte));
    if is_name { Ok(Some(name.to_owned())) } else { Err(Error::bad_request("invalid_callback")) }
}

pub(crate) fn wrap(query: Option<&str>, response: Response) -> Response {
    let is_json = response.headers().get(header::CONTENT_TYPE).is_some_and(|value| value == "application/json");
    if !is_json {
        return response;
    }
    let name = match callback(query) {
        Ok(None) => return response,
        Ok(Some(name)) => name,
        Err(error) => return respond::error(&error),
    };
    let (mut parts, body) = response.into_parts();
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/javascript"));
    parts.headers.remove(header::CONTENT_LENGTH);
    let before = Bytes::from(format!("{BEFORE}{name}("));
    let body = match body {
        Body::Whole(text) => {
            let text = text.unwrap_or_default();
            let mut out = BytesMut::from(&before[..]);
            out.extend_from_slice(text.strip_suffix(b"\n").unwrap_or(&text));
            out.extend_from_slice(AFTER);
            Body::Whole(Some(out.freeze()))
        }
        Body::Stream(pieces) => {
            let (sender, receiver) = mpsc::channel(PIECES_WAITING);
            tokio::spawn(forward(before, pieces, sender));
            Body::Stream(receiver)
        }
        other @ (Body::Sliced(_) | Body::Composed(_)) => other,
    };
    Response::from_parts(parts, body)
}

const AFTER: &[u8] = b");\n";

/// Forwards the pieces between the start and the end of the call. The final line feed must follow the call, so
/// a line feed is held back until the next piece shows that it is not the last.
async fn forward(
    before: Bytes,
    mut pieces: mpsc::Receiver<Result<Bytes, Aborted>>,
    sender: mpsc::Sender<Result<Bytes, Aborted>>,
) {
    let mut held: &'static [u8] = b"";
    let mut next = Ok(before);
    loop {
        let failed = next.is_err();
        if sender.send(next).await.is_err() || failed {
            return;
        }
        let piece = loop {
            match pieces.recv().await {
                Some(Ok(piece)) if piece.is_empty() => {}
                piece => break piece,
            }
        };
        let Some(piece) = piece else { break };
        next = piece.map(|piece| {
            let mut out = BytesMut::from(held);
            let (text, rest): (&[u8], &'static [u8]) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, b"\n"),
                None => (&piece, b""),
            };
            out.extend_from_slice(text);
            held = rest;
            out.freeze()
        });
    }
    drop(sender.send(Ok(Bytes::from_static(AFTER))).await);
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use hyper::StatusCode;

    async fn text(response: Response) -> String {
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[test]
    fn names_of_functions_and_invalid_ones() {
        for (query, expected) in [
            (None, Ok(None)),
            (Some("x=1"), Ok(None)),
            (Some("callback="), Ok(None)),
            (Some("callback=cb&x=1"), Ok(Some("cb"))),
            (Some("callback=a.b%5B0%5D"), Ok(Some("a.b[0]"))),
            (Some("callback=a-b"), Err(())),
            (Some("callback=a%20b"), Err(())),
            (Some("callback=%3Cscript%3E"), Err(())),
            (Some("callback=_x$1"), Err(())),
            (Some("callback=f%28x%29"), Err(())),
            (Some("callback=%0A"), Err(())),
            (Some("callback=%C3%A9"), Err(())),
        ] {
            let found = callback(query);
            assert_eq!(found.as_ref().map(Option::as_deref).map_err(|_| ()), expected, "{query:?}");
        }
    }

    #[tokio::test]
    async fn answers_become_calls() {
        let wrapped = |response| wrap(Some("callback=f"), response);
        let response = wrapped(respond::json(StatusCode::NOT_FOUND, b"{}".to_vec()));
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/javascript");
        assert_eq!((response.status().as_u16(), text(response).await.as_str()), (404, "/* CouchDB */f({});\n"));
        let plain = wrapped(respond::whole(StatusCode::OK, "text/plain", "x"));
        assert_eq!(text(plain).await, "x");
        let refused = wrap(Some("callback=%28"), respond::json(StatusCode::OK, b"{}".to_vec()));
        assert_eq!(text(refused).await, "{\"error\":\"bad_request\",\"reason\":\"invalid_callback\"}\n");
    }

    #[tokio::test]
    async fn answers_in_pieces_become_calls_wherever_their_lines_end() {
        for pieces in [
            vec!["[1,\n2]\n"],
            vec!["[1,\n", "2]\n"],
            vec!["[1,", "\n", "2]", "\n"],
            vec!["[1", ",\n2]"],
            vec!["", "[1,\n2", "", "]\n", ""],
        ] {
            let (sender, receiver) = mpsc::channel(16);
            for piece in &pieces {
                sender.send(Ok(Bytes::from_static(piece.as_bytes()))).await.unwrap();
            }
            drop(sender);
            let response = wrap(Some("callback=f"), respond::streamed("application/json", receiver));
            assert_eq!(text(response).await, "/* CouchDB */f([1,\n2]);\n", "{pieces:?}");
        }
    }

    #[tokio::test]
    async fn an_answer_that_breaks_off_has_no_end() {
        let (sender, receiver) = mpsc::channel(4);
        sender.send(Ok(Bytes::from_static(b"[1,\n"))).await.unwrap();
        sender.send(Err(Aborted)).await.unwrap();
        let response = wrap(Some("callback=f"), respond::streamed("application/json", receiver));
        response.into_body().collect().await.unwrap_err();
    }
}
