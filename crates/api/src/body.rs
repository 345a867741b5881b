//! Request bodies as JSON, and their content type.

use bytes::Bytes;
use hyper::{HeaderMap, header};
use settee_model::json::{Json, JsonError};
use settee_threads::Threads;

use crate::{Error, bridge};

const LARGE_BODY_BYTES: usize = 256 << 10;

pub(crate) async fn json(threads: &Threads, bytes: Bytes) -> Result<Json, Error> {
    parse(threads, bytes, Json::parse).await
}

pub(crate) async fn json_envelope(threads: &Threads, bytes: Bytes) -> Result<Json, Error> {
    parse(threads, bytes, Json::parse_envelope).await
}

async fn parse(threads: &Threads, bytes: Bytes, parse: fn(&[u8]) -> Result<Json, JsonError>) -> Result<Json, Error> {
    if bytes.len() > LARGE_BODY_BYTES {
        return bridge::blocking(threads, move || Ok(parse(&bytes)?)).await;
    }
    Ok(parse(&bytes)?)
}

pub(crate) fn require_json(headers: &HeaderMap) -> Result<(), Error> {
    require_type(headers, "application/json")
}

/// The comparison of content types is exact, also in case and white space, as in CouchDB.
pub(crate) fn require_type(headers: &HeaderMap, essence: &'static str) -> Result<(), Error> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let named = content_type.trim_start_matches(';').split(';').next().unwrap_or_default();
    if named == essence { Ok(()) } else { Err(Error::bad_content_type(essence)) }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::tests::show;

    #[tokio::test]
    async fn small_and_large_bodies_are_parsed_alike() {
        let threads = Threads::default();
        for len in [10, LARGE_BODY_BYTES + 10] {
            let text = format!("[ \"{}\" ]", "x".repeat(len));
            let parsed = json(&threads, Bytes::from(text.clone())).await.unwrap();
            assert_eq!(parsed.as_bytes(), text.replace(' ', "").as_bytes());
            let broken = json(&threads, Bytes::from(text[1..].to_owned())).await.map_err(|error| show(&error));
            assert_eq!(broken, Err("400 bad_request: invalid UTF-8 JSON".to_owned()));
        }
    }

    #[test]
    fn a_post_must_be_called_json() {
        let check = |content_type: Option<&'static str>, expected: bool| {
            let headers = content_type.map(|text| (header::CONTENT_TYPE, header::HeaderValue::from_static(text)));
            let result = require_json(&headers.into_iter().collect()).map_err(|error| show(&error));
            let refused = "415 bad_content_type: Content-Type must be application/json".to_owned();
            assert_eq!(result, if expected { Ok(()) } else { Err(refused) }, "{content_type:?}");
        };
        check(None, false);
        check(Some(""), false);
        check(Some("application/json"), true);
        check(Some("application/json; charset=utf-8"), true);
        check(Some(";application/json;x=y"), true);
        check(Some("APPLICATION/JSON"), false);
        check(Some("application/json ;x=y"), false);
        check(Some("application/jsonp"), false);
        check(Some("text/plain; application/json"), false);
    }
}
