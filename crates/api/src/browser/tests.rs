//! Tests of security headers and of refused cross-site requests.
#![expect(clippy::unwrap_used, reason = "tests")]

use settee_edge::respond::Body;

use super::*;
use crate::tests::live::Values;
use crate::tests::show;

const CORS: [&str; 5] = [
    "chttpd/enable_cors=true",
    "cors/origins=http://app.example.com,https://other.example.com",
    "cors/credentials=true",
    "cors/headers=accept, Authorization, content-type",
    "cors/methods=GET, PUT",
];

fn policy(settings: &[&str]) -> BrowserPolicy {
    BrowserPolicy::of(&Values::of(settings))
}

fn headers(lines: &[&str]) -> HeaderMap {
    let pairs = lines.iter().map(|line| line.split_once(": ").unwrap());
    pairs.map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap())).collect()
}

fn show_headers(headers: &HeaderMap) -> Vec<String> {
    let mut lines: Vec<_> =
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    lines.sort();
    lines
}

#[track_caller]
fn check_preflight(settings: &[&str], asked: &[&str], expected: Option<&[&str]>) {
    let response = policy(settings).preflight(&Method::OPTIONS, &headers(asked));
    let seen = response.as_ref().map(|response| {
        assert_eq!(response.status().as_u16(), 204);
        show_headers(response.headers())
    });
    let expected = expected.map(|lines| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>());
    assert_eq!(seen, expected, "{asked:?}");
}

#[test]
fn preflights() {
    let origin = "origin: http://app.example.com";
    let put = "access-control-request-method: PUT";
    let allowed = [
        "access-control-allow-credentials: true",
        "access-control-allow-methods: GET, PUT",
        "access-control-allow-origin: http://app.example.com",
        "access-control-max-age: 600",
    ];
    check_preflight(&CORS, &[origin, put], Some(&allowed));
    let asked = "access-control-request-headers: Content-Type,authorization";
    let mut with_headers = allowed.to_vec();
    with_headers.insert(1, "access-control-allow-headers: Content-Type,authorization");
    check_preflight(&CORS, &[origin, put, asked], Some(&with_headers));
    check_preflight(&CORS, &[origin, put, "access-control-request-headers: accept, x-strange"], None);
    check_preflight(&CORS, &[origin, "access-control-request-method: DELETE"], None);
    check_preflight(&CORS, &[origin, "access-control-request-method: put"], None);
    check_preflight(&CORS, &[origin], None);
    check_preflight(&CORS, &[put], None);
    check_preflight(&CORS, &["origin: http://app.example.com.evil.test", put], None);
    check_preflight(&CORS[1..], &[origin, put], None);
    assert!(policy(&CORS).preflight(&Method::PUT, &headers(&[origin, put])).is_none());
    // The response contains the origin and not `*`, because browsers do not send credentials for `*`.
    let all = ["chttpd/enable_cors=true", "cors/origins=*", "cors/max_age=5"];
    let response = policy(&all).preflight(
        &Method::OPTIONS,
        &headers(&[
            "origin: app://obsidian.md",
            "access-control-request-method: COPY",
            "access-control-request-headers: if-none-match, x-couch-full-commit",
        ]),
    );
    let response = response.unwrap();
    assert_eq!(response.headers()["access-control-allow-origin"], "app://obsidian.md");
    assert_eq!(response.headers()["access-control-max-age"], "5");
    assert!(!response.headers().contains_key("access-control-allow-credentials"));
}

fn marks(settings: &[&str], asked: &[&str], scheme: Scheme, path: &str) -> Vec<String> {
    let mut response = Response::new(Body::Whole(None));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("must-revalidate"));
    response.headers_mut().insert(header::ETAG, HeaderValue::from_static("x"));
    policy(settings).mark(&Viewer::of(&headers(asked), scheme), path, &mut response);
    for name in [header::CACHE_CONTROL, header::ETAG] {
        response.headers_mut().remove(name);
    }
    show_headers(response.headers())
}

#[test]
fn answers_for_other_origins() {
    let seen = |settings: &[&str], asked: &[&str]| marks(settings, asked, Scheme::Http, "/db");
    let exposed = "access-control-expose-headers: content-type, cache-control, accept-ranges, etag, server, \
                   x-couch-request-id, x-couch-update-newrev, x-couchdb-body-time";
    let origin = "origin: https://other.example.com";
    let expected = [
        "access-control-allow-credentials: true",
        "access-control-allow-origin: https://other.example.com",
        exposed,
        "vary: Origin",
    ];
    assert_eq!(seen(&CORS, &[origin]), expected);
    assert_eq!(seen(&CORS, &["origin: http://evil.example.com"]), ["vary: Origin"]);
    assert_eq!(seen(&CORS, &[]), ["vary: Origin"]);
    assert!(seen(&CORS[1..], &[origin]).is_empty());
    let own = ["chttpd/enable_cors=true", "cors/origins=*", "cors/exposed_headers=ETag, X-Mine"];
    let expected = [
        "access-control-allow-origin: https://other.example.com",
        "access-control-expose-headers: content-type, cache-control, etag, x-mine",
        "vary: Origin",
    ];
    assert_eq!(seen(&own, &[origin]), expected);
}

#[test]
fn frames_and_the_console() {
    let seen = |settings: &[&str], host: &str, path: &str| marks(settings, &[host], Scheme::Https, path);
    let frames = ["chttpd/enable_xframe_options=true", "x_frame_options/hosts=https://a.test, https://b.test:6984"];
    assert!(seen(&[], "host: a.test", "/db").is_empty());
    assert_eq!(seen(&frames, "host: b.test:6984", "/db"), ["x-frame-options: ALLOW-FROM https://b.test:6984"]);
    assert_eq!(seen(&frames, "host: c.test", "/db"), ["x-frame-options: DENY"]);
    assert_eq!(marks(&frames, &["host: a.test"], Scheme::Http, "/db"), ["x-frame-options: DENY"]);
    let same = ["chttpd/enable_xframe_options=true", "x_frame_options/same_origin=true"];
    assert_eq!(seen(&same, "host: c.test", "/db"), ["x-frame-options: SAMEORIGIN"]);
    for path in ["/_utils", "/_utils/index.html"] {
        assert_eq!(
            seen(&[], "host: c.test", path),
            [format!("content-security-policy: {}", csp::UTILS_HEADER_VALUE.setting().default.unwrap_or_default())]
        );
        let own = ["csp/utils_header_value=default-src 'none'"];
        assert_eq!(seen(&own, "host: c.test", path), ["content-security-policy: default-src 'none'"]);
        assert!(seen(&["csp/utils_enable=false"], "host: c.test", path).is_empty());
    }
    assert!(seen(&[], "host: c.test", "/_utilsx").is_empty());
}

#[test]
fn forged_requests() {
    let refused =
        "403 forbidden: a page of another site may not send this for its visitor; list its origin in [cors] origins";
    let check = |settings: &[&str], method: Method, lines: &[&str], party: bool, expected: Result<(), &str>| {
        let seen = policy(settings).refuse_forged(&method, &headers(lines), party).map_err(|error| show(&error));
        assert_eq!(seen, expected.map_err(str::to_owned), "{method} {lines:?}");
    };
    let cross = "sec-fetch-site: cross-site";
    let (form, text) = ("content-type: application/x-www-form-urlencoded", "content-type: text/plain; charset=utf-8");
    let cookie = "cookie: AuthSession=x";
    check(&[], Method::POST, &[cross, form, cookie], false, Err(refused));
    check(&[], Method::POST, &[cross, text, "authorization: Basic x"], false, Err(refused));
    check(&[], Method::POST, &[cross, cookie], false, Err(refused));
    check(&[], Method::POST, &[cross, text], true, Err(refused));
    check(&[], Method::POST, &[cross, form], false, Ok(()));
    // Browsers send a preflight for these.
    check(&[], Method::POST, &[cross, "content-type: application/json", cookie], false, Ok(()));
    check(&[], Method::PUT, &[cross, text, cookie], false, Ok(()));
    check(&[], Method::GET, &[cross, cookie], false, Ok(()));
    check(&[], Method::POST, &["sec-fetch-site: same-origin", form, cookie], false, Ok(()));
    check(&[], Method::POST, &[form, cookie], true, Ok(()));
    let origin = "origin: http://app.example.com";
    check(&CORS, Method::POST, &[cross, form, cookie, origin], false, Ok(()));
    check(&CORS, Method::POST, &[cross, form, cookie, "origin: http://evil.example.com"], false, Err(refused));
    check(&CORS, Method::POST, &[cross, form, cookie], false, Err(refused));
}

#[test]
fn names_that_others_can_own() {
    for host in [
        "localhost",
        "localhost:5984",
        "127.0.0.1:5984",
        "[::1]:5984",
        "10.0.0.1",
        "db.localhost",
        "settee.test",
        "my-laptop",
        "my-laptop.local:80",
        "nas.lan.",
        "",
    ] {
        assert!(refuse_public_name(&headers(&[&format!("host: {host}")])).is_ok(), "{host}");
    }
    assert!(refuse_public_name(&HeaderMap::new()).is_ok());
    for host in ["evil.example.com", "evil.example.com:5984", "127.0.0.1.nip.io", "LOCALHOST.COM", "evil.example.com."]
    {
        let error = refuse_public_name(&headers(&[&format!("host: {host}")])).unwrap_err();
        assert!(show(&error).starts_with("403 forbidden: without an administrator"), "{host}");
    }
}
