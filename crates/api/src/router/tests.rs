//! Tests of the mapping of paths to resources and captures.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use settee_edge::shutdown::Shutdown;

use crate::head::copy;
use crate::routes::router;
use crate::tests::show;

fn find(method: &Method, path: &str) -> Result<String, Error> {
    let router = router(&Shutdown::new());
    let (resource, _, captures) = router.find(method, path)?;
    let captures = captures.parts.iter().map(|(name, value)| format!(" {name}={value}"));
    Ok(format!("{}{}", resource.path, captures.collect::<String>()))
}

#[test]
fn paths_find_their_resource() {
    let check = |path: &str, expected: &str| {
        assert_eq!(find(&Method::GET, path).map_err(|error| show(&error)).as_deref(), Ok(expected), "{path}");
    };
    check("/", "/");
    check("", "/");
    check("/_up", "/_up");
    check("/_all_dbs", "/_all_dbs");
    check("/_all_dbs/", "/_all_dbs");
    check("/%5Fall_dbs", "/_all_dbs");
    check("/_node/_local/_config/log/level", "/_node/{node}/_config/{section}/{key} node=_local section=log key=level");
    check("/_config/log/level", "/_config/{section}/{key} section=log key=level");
    check("/db", "/{db} db=db");
    check("/db/", "/{db} db=db");
    check("//db//", "/{db} db=db");
    check("/a%2Fb", "/{db} db=a/b");
    check("/a%2fb%2Bc", "/{db} db=a/b+c");
    check("/_users", "/{db} db=_users");
    check("/db/doc", "/{db}/{doc} db=db doc=doc");
    check("/db/doc/", "/{db}/{doc} db=db doc=doc");
    check("/db//doc", "/{db}/{doc} db=db doc=doc");
    check("/db/a%2Fb", "/{db}/{doc} db=db doc=a/b");
    check("/db/a+b", "/{db}/{doc} db=db doc=a b");
    check("/db/a%2Bb", "/{db}/{doc} db=db doc=a+b");
    check("/db/%C3%A9%00", "/{db}/{doc} db=db doc=é\0");
    check("/db/100%", "/{db}/{doc} db=db doc=100%");
    check("/db/%zz%4", "/{db}/{doc} db=db doc=%zz%4");
    check("/db/_all_docs", "/{db}/_all_docs db=db");
    check("/db/_all_docs_", "/{db}/{doc} db=db doc=_all_docs_");
    check("/db/_ALL_DOCS", "/{db}/{doc} db=db doc=_ALL_DOCS");
    check("/db/doc/a/b%2Fc", "/{db}/{doc}/{*attachment} db=db doc=doc attachment=a/b/c");
    check("/db/_local/x", "/{db}/_local/{local} db=db local=x");
    check("/db/_local%2Fx", "/{db}/_local/{local} db=db local=x");
    check("/db/_local%2Fa%2Fb", "/{db}/_local/{local} db=db local=a/b");
    check("/db/_local%2F/x", "/{db}/_local/{local}/{*attachment} db=db local= attachment=x");
    check("/db/_local/a%2Fb", "/{db}/_local/{local} db=db local=a/b");
    check("/db/_design/x", "/{db}/_design/{ddoc} db=db ddoc=x");
    check("/db/_design%2Fx", "/{db}/_design/{ddoc} db=db ddoc=x");
    check("/db/_design%2fx/_view/v", "/{db}/_design/{ddoc}/_view/{view} db=db ddoc=x view=v");
    check("/db/_design/x/_view/v%2Fw", "/{db}/_design/{ddoc}/_view/{view} db=db ddoc=x view=v/w");
    check("/db/_design/x/file", "/{db}/_design/{ddoc}/{*attachment} db=db ddoc=x attachment=file");
    check("/db/_design", "/{db}/{doc} db=db doc=_design");
    check("/db/_designer%2Fx", "/{db}/{doc} db=db doc=_designer/x");
    check("/db/x/_design%2Fy", "/{db}/{doc}/{*attachment} db=db doc=x attachment=_design/y");
}

/// An escaped underscore must not give access, as a document, to a resource that needs more than membership.
#[test]
fn escapes_do_not_change_a_path() {
    let check = |plain: &str, escaped: &str| {
        for method in [Method::GET, Method::PUT, Method::DELETE, Method::POST, copy()] {
            let show = |found: Result<String, Error>| found.unwrap_or_else(|error| show(&error));
            let expected = show(find(&method, plain));
            assert_eq!(show(find(&method, escaped)), expected, "{method} {escaped}");
        }
        let permission = |path| router(&Shutdown::new()).find(&Method::GET, path).map(|(_, permission, _)| permission);
        assert_eq!(permission(plain).ok(), permission(escaped).ok(), "{escaped}");
    };
    check("/db/_design/x", "/db/%5Fdesign/x");
    check("/db/_design/x", "/db/%5fdesign%2fx");
    check("/db/_design/x", "/db/_desig%6E%2Fx");
    check("/db/_design/x/_view/v", "/db/%5Fdesign%2Fx/%5Fview/v");
    check("/db/_security", "/db/%5Fsecurity");
    check("/db/_local/x", "/db/%5Flocal%2Fx");
    check("/db/_bulk_docs", "/db/%5fbulk%5Fdocs");
    check("/_active_tasks", "/%5Factive_tasks");
}

#[test]
fn names_that_are_no_text_are_refused() {
    for path in ["/%ff", "/db/%ff", "/db/a%C3", "/db/_design/%fe", "/db/%ff/x", "/db/_design/%fe/x", "/db/_local/%ff"] {
        let error = find(&Method::GET, path).unwrap_err();
        assert_eq!(show(&error), "400 illegal_docid: Document id must be valid UTF-8", "{path}");
    }
    // Handlers of attachments report this with another message.
    for path in ["/db/x/%ed%a0%80", "/db/x/y/%ff", "/db/_design/d/%ff"] {
        assert!(find(&Method::GET, path).is_ok(), "{path}");
        let router = router(&Shutdown::new());
        let (.., captures) = router.find(&Method::GET, path).unwrap();
        assert!(captures.require_text().is_err(), "{path}");
    }
}

#[test]
fn requests_that_change_a_database_are_known_by_their_path() {
    let router = router(&Shutdown::new());
    let effect = |method: &Method, path: &str| match router.resolve(path, Plus::Space).effect(method) {
        Effect::Nothing => "nothing".to_owned(),
        Effect::Server => "server".to_owned(),
        Effect::Database(path, name) | Effect::Rewrite(path, name) | Effect::Read(path, name) => {
            format!("{path} {name}")
        }
    };
    let check =
        |method: &Method, path: &str, expected: &str| assert_eq!(effect(method, path), expected, "{method} {path}");
    check(&Method::POST, "/db", "/{db} db");
    check(&Method::POST, "//a%2Fb+c/", "/{db} a/b c");
    check(&Method::POST, "/db/_bulk_docs", "/{db}/_bulk_docs db");
    check(&Method::POST, "/db/_partition/p/_find", "nothing");
    check(&copy(), "/db/doc", "/{db}/{doc} db");
    for method in [Method::PUT, Method::DELETE] {
        check(&method, "/db/a%2Fb", "/{db}/{doc} db");
        check(&method, "/db/_local%2Fx", "/{db}/_local/{local} db");
        check(&method, "/db/doc/attachment", "/{db}/{doc}/{*attachment} db");
        check(&method, "/db", "/{db} db");
        check(&method, "/db/_security", "/{db}/_security db");
        check(&method, "/_node/_local/_config/a/b", "server");
        check(&method, "/db/%ff", "nothing");
    }
    for path in
        ["/db/_find", "/db/_revs_diff", "/db/_bulk_get", "/db/_all_docs", "/db/_changes", "/db/_design/d/_view/v"]
    {
        check(&Method::POST, path, "nothing");
    }
    for path in ["/db/_design/d/_update/f", "/db/_purge", "/db/_compact", "/db/_index", "/db/_design/d/_rewrite/x"] {
        assert!(effect(&Method::POST, path).ends_with(" db"), "{path}");
    }
    for method in [Method::GET, Method::HEAD] {
        check(&method, "/db/doc", "nothing");
        check(&method, "/db/_design/d/_rewrite/x", "/{db}/_design/{ddoc}/_rewrite/{*path} db");
    }
}

#[test]
fn head_is_served_as_get() {
    for path in ["/", "/_all_dbs", "/db", "/db/doc", "/db/_all_docs", "/db/_design/d/_view/v", "/db/_changes"] {
        assert_eq!(find(&Method::HEAD, path).unwrap(), find(&Method::GET, path).unwrap(), "{path}");
    }
}

#[test]
fn an_unsupported_method_gets_the_supported_ones() {
    let check = |method: Method, path: &str, allow: &str| {
        let error = find(&method, path).unwrap_err();
        assert_eq!(show(&error), format!("405 method_not_allowed: Only {allow} allowed"), "{method} {path}");
        assert_eq!(error.headers, [(hyper::header::ALLOW, allow.parse().unwrap())], "{method} {path}");
    };
    check(Method::POST, "/", "GET,HEAD");
    check(Method::DELETE, "/_all_dbs", "GET,HEAD");
    check(Method::PUT, "/_uuids", "GET");
    check(Method::PATCH, "/db", "DELETE,GET,HEAD,POST");
    check(copy(), "/db", "DELETE,GET,HEAD,POST");
    check(Method::PUT, "/db/_all_docs", "GET,HEAD,POST");
    check(Method::GET, "/db/_bulk_docs", "POST");
    check(Method::HEAD, "/db/_bulk_docs", "POST");
    check(Method::PUT, "/db/_changes", "GET,POST,HEAD");
    check(Method::POST, "/db/_security", "PUT,GET");
    check(Method::DELETE, "/db/_revs_limit", "PUT,GET");
    check(Method::PUT, "/db/_design/d/_view/v", "GET,POST,HEAD");
    check(Method::PATCH, "/db/doc", "DELETE,GET,HEAD,POST,PUT,COPY");
    check(Method::OPTIONS, "/db/_design/d", "DELETE,GET,HEAD,POST,PUT,COPY");
    check(Method::PUT, "/_node/_local/_config/log", "GET");
    check(Method::POST, "/_config/log/level", "GET,PUT,DELETE");
}

#[test]
fn members_below_the_known_depth_are_missing() {
    for path in ["/_membership/x/y", "/_node/a/b/c/d/e"] {
        // Names with an underscore can be databases, so these paths are documents or not found.
        let found = find(&Method::GET, path).map_err(|error| show(&error));
        match found {
            Ok(pattern) => assert!(pattern.starts_with("/{db}"), "{path}: {pattern}"),
            Err(error) => assert_eq!(error, "404 not_found: missing", "{path}"),
        }
    }
}
