//! What the files of the console are served as, and that they keep within what browsers let them do.

use super::{PAGE, SCRIPT, STYLE};
use crate::tests::node::{Ask, Told, World};

async fn get(world: &World, path: &str) -> Told {
    get_unless(world, path, "").await
}

async fn get_unless(world: &World, path: &str, known: &str) -> Told {
    world.ask(Ask::new(&format!("GET {path}")).header("host", "h:1").header("if-none-match", known)).await
}

#[tokio::test]
async fn files_with_their_types() {
    let world = World::new();
    for (path, asset) in [
        ("/_utils/", &PAGE),
        ("/_utils/index.html", &PAGE),
        ("/_utils/session.html?return=%2Fdb&reason=x", &PAGE),
        ("/_utils/style.css", &STYLE),
        ("/_utils/script.js", &SCRIPT),
    ] {
        let told = get(&world, path).await;
        assert_eq!((told.status.as_u16(), told.body.as_str()), (200, asset.text), "{path}");
        assert_eq!(told.header("content-type"), asset.content_type, "{path}");
        assert_eq!(told.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(told.header("x-frame-options"), "SAMEORIGIN", "{path}");
        assert_eq!(told.header("cache-control"), "private, must-revalidate", "{path}");
        // A browser that has it asks whether it is still the same.
        let again = get_unless(&world, path, told.header("etag")).await;
        assert_eq!((again.status.as_u16(), again.body.as_str()), (304, ""), "{path}");
        assert_eq!(again.header("etag"), told.header("etag"));
    }
    let tags = [get(&world, "/_utils/").await, get(&world, "/_utils/style.css").await];
    assert_ne!(tags[0].header("etag"), tags[1].header("etag"));
}

#[tokio::test]
async fn other_paths() {
    let world = World::new();
    let told = get(&world, "/_utils").await;
    assert_eq!((told.status.as_u16(), told.header("location")), (301, "http://h:1/_utils/"));
    for path in ["/_utils/none", "/_utils/..", "/_utils/%2e%2e/Cargo.toml", "/_utils/console/script.js"] {
        assert_eq!(get(&world, path).await.line(), r#"404 {"error":"not_found","reason":"missing"}"#, "{path}");
    }
    let told = world.ask(Ask::new("PUT /_utils").basic("admin", "pw")).await;
    assert_eq!((told.status.as_u16(), told.header("allow")), (405, "GET,HEAD"));
    // As in CouchDB it is closed with the rest; a browser then asks for a password itself.
    world.set("chttpd", "require_valid_user", "true");
    let told = get(&world, "/_utils/").await;
    assert_eq!((told.status.as_u16(), told.header("www-authenticate")), (401, "Basic realm=\"server\""));
}

/// The default policy lets nothing run that stands within a page, and answers must not become markup.
#[test]
fn pages_have_nothing_that_their_policy_forbids() {
    for forbidden in ["<style", "style=", " onclick", " onload", "javascript:", "http:", "https:"] {
        assert!(!PAGE.text.contains(forbidden), "{forbidden}");
    }
    assert_eq!(PAGE.text.matches("<script").count(), PAGE.text.matches("<script src=\"script.js\"").count());
    for forbidden in
        ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "http:", "https:"]
    {
        assert!(!SCRIPT.text.contains(forbidden), "{forbidden}");
    }
    for forbidden in ["url(", "@import"] {
        assert!(!STYLE.text.contains(forbidden), "{forbidden}");
    }
}
