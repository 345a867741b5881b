//! Tests of the headers of console files, and of the page against its content security policy.

use crate::tests::node::{Ask, TestResponse, World};

async fn get(world: &World, path: &str) -> TestResponse {
    get_unless(world, path, "").await
}

async fn get_unless(world: &World, path: &str, known: &str) -> TestResponse {
    world.ask(Ask::new(&format!("GET {path}")).header("host", "h:1").header("if-none-match", known)).await
}

#[tokio::test]
async fn files_with_their_types() {
    let world = World::new();
    let assets = settee_console::FILES.iter().map(|file| (format!("/_utils/{}", file.path), *file));
    let index = *settee_console::file("index.html").expect("the console has a page");
    let pages = ["/_utils/", "/_utils/session.html?return=%2Fdb&reason=x"].map(|path| (path.to_owned(), index));
    for (path, file) in assets.chain(pages) {
        let reply = get(&world, &path).await;
        assert_eq!(reply.status.as_u16(), 200, "{path}");
        assert!(reply.body.len() > 10, "{path}: not compressed unless the client accepts it");
        assert_eq!(reply.header("content-type"), file.content_type, "{path}");
        assert_eq!(reply.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(reply.header("x-frame-options"), "SAMEORIGIN", "{path}");
        assert_eq!(reply.header("vary"), "Accept-Encoding", "{path}");
        let cache = if file.is_immutable { "public, max-age=31536000, immutable" } else { "no-cache" };
        assert_eq!(reply.header("cache-control"), cache, "{path}");
        let again = get_unless(&world, &path, reply.header("etag")).await;
        assert_eq!((again.status.as_u16(), again.body.as_str()), (304, ""), "{path}");
        assert_eq!(again.header("etag"), reply.header("etag"));
    }
}

#[tokio::test]
async fn other_paths() {
    let world = World::new();
    let reply = get(&world, "/_utils").await;
    assert_eq!((reply.status.as_u16(), reply.header("location")), (301, "http://h:1/_utils/"));
    for path in ["/_utils/none", "/_utils/..", "/_utils/%2e%2e/Cargo.toml", "/_utils/assets", "/_utils/index.html.gz"] {
        assert_eq!(get(&world, path).await.line(), r#"404 {"error":"not_found","reason":"missing"}"#, "{path}");
    }
    let reply = world.ask(Ask::new("PUT /_utils").basic("admin", "pw")).await;
    assert_eq!((reply.status.as_u16(), reply.header("allow")), (405, "GET,HEAD"));
    // As in CouchDB the console requires a login with the rest; a browser then prompts for a password.
    world.set("chttpd", "require_valid_user", "true");
    let reply = get(&world, "/_utils/").await;
    assert_eq!((reply.status.as_u16(), reply.header("www-authenticate")), (401, "Basic realm=\"server\""));
}

#[tokio::test]
async fn the_page_has_nothing_that_its_policy_forbids() {
    let world = World::new();
    let page = get(&world, "/_utils/").await.body;
    for forbidden in ["<style", "style=", " onclick", " onload", "javascript:", "http:", "https:"] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    assert_eq!(page.matches("<script").count(), page.matches(" src=\"./assets/").count(), "{page}");
}
