//! The table of all resources, as a file: what is reachable, by which method, and what it takes.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use hyper::Method;

use super::check_file;
use crate::router::Resource;
use crate::routes::router;
use crate::server::Shutdown;

#[test]
fn every_resource_with_its_methods_and_permissions_was_reviewed() {
    let mut text = String::new();
    for Resource { path, allow, methods, other_methods, .. } in router(&Shutdown::new()).resources() {
        writeln!(text, "{path}  [{allow}]").unwrap();
        for (method, permission, _) in methods {
            writeln!(text, "    {method} {permission:?}").unwrap();
        }
        if let Some((permission, _)) = other_methods {
            writeln!(text, "    * {permission:?}").unwrap();
        }
    }
    check_file("routes.txt", &text);
}

#[test]
fn a_method_that_is_served_is_allowed_and_declared_once() {
    let mut paths = BTreeSet::new();
    for Resource { path, allow, methods, other_methods, .. } in router(&Shutdown::new()).resources() {
        assert!(paths.insert(path.replace("{doc}", "{}").replace("{ddoc}", "{}")), "{path} stands twice");
        let mut served = BTreeSet::new();
        for (method, ..) in methods {
            assert!(served.insert(method.as_str()), "{path} declares {method} twice");
            // CouchDB leaves PUT out of the list of a database's methods.
            let is_listed = allow.split(',').any(|listed| listed == method.as_str());
            assert!(
                is_listed || (*path, method) == ("/{db}", &Method::PUT),
                "{path} serves {method} but allows {allow}"
            );
        }
        assert!(!methods.is_empty() || other_methods.is_some(), "{path} serves nothing");
    }
}
