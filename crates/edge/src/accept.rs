//! Content negotiation by `Accept` and `Accept-Encoding`, with CouchDB's rules.

use hyper::{HeaderMap, header};

pub fn accepts(headers: &HeaderMap, content_type: &str) -> bool {
    let Some(accept) = headers.get(header::ACCEPT) else {
        return true;
    };
    let list = qualities(accept.to_str().unwrap_or_default());
    let family = content_type.split('/').next().unwrap_or_default();
    let names_it = |name: &str| name == content_type || name.strip_suffix("/*") == Some(family);
    list.iter().any(|(name, quality)| *quality > 0.0 && (name == "*/*" || names_it(name)))
        && !list.iter().any(|(name, quality)| *quality == 0.0 && names_it(name))
}

pub fn accepts_gzip(headers: &HeaderMap) -> bool {
    quality_of_encoding(headers, "gzip").is_some_and(|quality| quality > 0.0)
}

pub fn accepts_gzip_or_identity(headers: &HeaderMap) -> bool {
    accepts_gzip(headers) || quality_of_encoding(headers, "identity").is_none_or(|quality| quality > 0.0)
}

fn quality_of_encoding(headers: &HeaderMap, encoding: &str) -> Option<f32> {
    let list =
        qualities(headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default());
    let quality = |wanted: &str| list.iter().find(|(name, _)| name == wanted).map(|(_, quality)| *quality);
    quality(encoding).or_else(|| quality("*"))
}

fn qualities(list: &str) -> Vec<(String, f32)> {
    let members = list.split(',').map(str::trim).filter(|member| !member.is_empty());
    let members = members.map(|member| {
        let mut parameters = member.split(';').map(str::trim);
        let name = parameters.next().unwrap_or_default().to_ascii_lowercase();
        let quality = parameters.find_map(|parameter| parameter.strip_prefix("q=")?.parse().ok());
        (name, quality.unwrap_or(1.0))
    });
    members.collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn headers(name: header::HeaderName, value: Option<&str>) -> HeaderMap {
        value.map(|value| (name, value.parse().unwrap())).into_iter().collect()
    }

    #[test]
    fn content_types() {
        for (accept, expected) in [
            (None, true),
            (Some("*/*"), true),
            (Some("multipart/related,application/json;q=0.5"), true),
            (Some("text/html, Multipart/* ;q=0.1"), true),
            (Some("application/json"), false),
            (Some("*/*, multipart/related;q=0"), false),
            (Some("*/*;q=0"), false),
            (Some(""), false),
        ] {
            assert_eq!(accepts(&headers(header::ACCEPT, accept), "multipart/related"), expected, "{accept:?}");
        }
    }

    #[test]
    fn encodings() {
        for (accept, gzip, any) in [
            (None, false, true),
            (Some(""), false, true),
            (Some("identity"), false, true),
            (Some("gzip"), true, true),
            (Some("deflate, GZIP;q=0.5"), true, true),
            (Some("gzip;q=0"), false, true),
            (Some("*"), true, true),
            (Some("gzip;q=0, *"), false, true),
            (Some("gzip, *;q=0"), true, true),
            (Some("gzip, identity;q=0"), true, true),
            (Some("identity, *;q=0"), false, true),
            (Some("identity;q=0"), false, false),
            (Some("deflate, *;q=0"), false, false),
            (Some("gzip;q=0, identity;q=0"), false, false),
        ] {
            let headers = headers(header::ACCEPT_ENCODING, accept);
            assert_eq!((accepts_gzip(&headers), accepts_gzip_or_identity(&headers)), (gzip, any), "{accept:?}");
        }
    }
}
