//! Entity tags, which the handlers compute.

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderValue};

use crate::respond::{self, Body, Response};

/// `tag` includes its quotation marks. Weak tags match. As in CouchDB `*` matches nothing.
pub fn is_known(header: Option<&str>, tag: &str) -> bool {
    let tags = header.unwrap_or_default().split([',', ' ']);
    tags.map(|one| one.strip_prefix("W/").unwrap_or(one)).any(|one| one == tag)
}

/// `tag` has no quotation marks.
pub fn knows(headers: &HeaderMap, tag: &str) -> bool {
    let header = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    is_known(header, &format!("\"{tag}\""))
}

/// The caller must add the tag.
pub fn not_modified() -> Response {
    // Without a body the HTTP library would omit the length.
    let mut response = Response::new(Body::Whole(Some(Bytes::new())));
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    respond::set(response.headers_mut(), header::CACHE_CONTROL, "must-revalidate");
    response
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn tags_weak_and_in_lists() {
        let tag = "\"1-a\"";
        for (header, expected) in [
            (None, false),
            (Some(""), false),
            (Some("\"1-a\""), true),
            (Some("\"1-a\" "), true),
            (Some("W/\"1-a\""), true),
            (Some("\"x\", \"1-a\""), true),
            (Some("\"x\",W/\"1-a\",\"y\""), true),
            (Some("\"1-a\",\"1-a\""), true),
            (Some("1-a"), false),
            (Some("*"), false),
            (Some("w/\"1-a\""), false),
            (Some("W/\"x\""), false),
            (Some("\"1-a\";x"), false),
            (Some("\"11-a\""), false),
            (Some("\"x\"\"1-a\""), false),
        ] {
            assert_eq!(is_known(header, tag), expected, "{header:?}");
            let headers: HeaderMap =
                header.map(|text| (header::IF_NONE_MATCH, text.parse().unwrap())).into_iter().collect();
            assert_eq!(knows(&headers, "1-a"), expected, "{header:?}");
        }
    }
}
