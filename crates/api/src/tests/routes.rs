//! The table of all resources, as a file: paths, methods, and kinds of bodies.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use hyper::Method;
use settee_edge::shutdown::Shutdown;

use super::check_file;
use crate::router::{Resource, Served};
use crate::routes::router;

#[test]
fn every_resource_with_its_methods_and_permissions_was_reviewed() {
    let mut text = String::new();
    for Resource { path, allow, methods, other_methods, .. } in router(&Shutdown::new()).resources() {
        writeln!(text, "{path}  [{allow}]").unwrap();
        for Served { method, permission, takes, .. } in methods {
            writeln!(text, "    {method} {permission:?} {takes:?}").unwrap();
        }
        if let Some((permission, takes, _)) = other_methods {
            writeln!(text, "    * {permission:?} {takes:?}").unwrap();
        }
    }
    check_file("routes.txt", &text);
}

/// Returns true for methods that CouchDB supports or handles without listing them.
fn is_unlisted(path: &str, method: &Method) -> bool {
    match method.as_str() {
        "PUT" => path == "/{db}",
        "POST" => path == "/{db}/_partition/{partition}",
        "GET" => path.contains("/_update/"),
        "OPTIONS" => path.contains("/_list"),
        _ => false,
    }
}

#[test]
fn a_method_that_is_served_is_allowed_and_declared_once() {
    let mut paths = BTreeSet::new();
    for Resource { path, allow, methods, .. } in router(&Shutdown::new()).resources() {
        assert!(paths.insert(path.replace("{doc}", "{}").replace("{ddoc}", "{}")), "{path} occurs twice");
        let mut served = BTreeSet::new();
        for Served { method, .. } in methods {
            assert!(served.insert(method.as_str()), "{path} declares {method} twice");
            let is_listed = allow.split(',').any(|listed| listed.trim() == method.as_str());
            assert!(is_listed || is_unlisted(path, method), "{path} serves {method} but allows {allow}");
        }
    }
}
