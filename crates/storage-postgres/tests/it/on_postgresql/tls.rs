//! Encrypted connections, and certificates that are not trusted.

use std::net::TcpListener;
use std::path::PathBuf;

use settee_storage::{Durability, Shard};
use settee_storage_postgres::PostgresEngine;

use crate::scratch::Scratch;
use crate::{open, options, step};

/// Returns a file that the tests of the server use as well: `first.pem` is for localhost and 127.0.0.1, issued by the
/// authority `root.pem`.
fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../server/tests/it/certificates").join(name)
}

#[test]
fn certificates_are_verified_on_request() {
    let read = |name| std::fs::read(file(name)).unwrap();
    // The port is unlikely to be used by another process until the server binds it.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    // Not the default port; the port also names the socket.
    let settings = format!(
        "-c ssl=on -c ssl_cert_file=../server.crt -c ssl_key_file=../server.key -c listen_addresses=127.0.0.1 -c port={port}"
    );
    let files = [("server.crt", &read("first.pem")[..]), ("server.key", &read("first.key"))];
    let Some(_server) = Scratch::start_with(&settings, &files) else { return };
    let authority = file("root.pem").display().to_string().replace('/', "%2F");
    let url = |host: &str, rest: &str| format!("postgres://settee@{host}:{port}/postgres?schema=tls&{rest}");
    let by_authority = format!("sslmode=verify-full&sslrootcert={authority}");
    for (number, (host, rest)) in [
        ("127.0.0.1", "sslmode=prefer"),
        ("127.0.0.1", "sslmode=require"),
        ("localhost", &by_authority[..]),
        ("127.0.0.1", &by_authority),
        ("127.0.0.1", &by_authority.replace("verify-full", "require")),
        ("127.0.0.1", "sslmode=disable"),
    ]
    .into_iter()
    .enumerate()
    {
        step(&open(&url(host, rest)), Shard(1), number as u64, Durability::Synced);
    }
    let other =
        format!("sslmode=verify-full&sslrootcert={}", file("first.pem").display().to_string().replace('/', "%2F"));
    for (host, rest, wanted) in [
        ("127.0.0.1", "sslmode=verify-full", "UnknownIssuer"),
        ("127.0.0.1", &other[..], "UnknownIssuer"),
        ("127.0.0.2", &by_authority, "cannot be reached"),
        ("127.0.0.1", "sslmode=verify-full&sslrootcert=%2Fnowhere", "sslrootcert /nowhere cannot be used"),
    ] {
        let text = PostgresEngine::open(&options(&url(host, rest)), crate::id()).unwrap_err().to_string();
        assert!(text.contains(wanted), "{rest}: {text}");
    }
}
