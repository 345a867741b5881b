//! Sequences as clients send them.

use super::*;
use crate::tests::{INSTANCE, database, show};

#[test]
fn what_clients_send_as_since() {
    let database = database();
    let own = format!("{INSTANCE:016x}");
    let check = |since: &str, expected: Since| {
        assert_eq!(parse(since, &database).map_err(|error| show(&error)), Ok(expected), "{since}");
    };
    check("0", Since::Seq(0));
    check("17", Since::Seq(17));
    check("18446744073709551615", Since::Seq(u64::MAX));
    check("now", Since::Now);
    check("\"now\"", Since::Now);
    check(" 5 ", Since::Seq(5));
    check("\"5\"", Since::Seq(5));
    check(&format!("5-{own}"), Since::Seq(5));
    check(&format!("\"5-{own}\""), Since::Seq(5));
    // Of a database that had this one's name.
    check("5-fedcba9876543210", Since::Seq(0));
    // Of CouchDB, before the documents moved here.
    check("23-g1AAAACbeJzLYWBgYMpgTmEQTM4vTc5ISXIwNDLXMwBCwxyQVCJDUv3___-zMpiTGBgCc4Fi7Jn", Since::Seq(23));
    check("[5,\"g1AAAA\"]", Since::Seq(5));
    check("0-", Since::Seq(0));
}

#[test]
fn what_is_no_sequence_is_refused() {
    let database = database();
    for since in [
        "",
        "x",
        "-1",
        "NOW",
        "1.5",
        "5 6",
        "18446744073709551616",
        "[]",
        "{}",
        "\0",
        "-",
        "1-abc",
        "5-fedcba987654321x",
    ] {
        let error = parse(since, &database).map_err(|error| show(&error));
        let expected = "400 bad_request: Malformed sequence supplied in 'since' parameter.";
        assert_eq!(error, Err(expected.to_owned()), "{since:?}");
    }
}

#[test]
fn a_sequence_is_read_as_it_was_written() {
    let database = database();
    for seq in [0, 1, 1 << 40, u64::MAX] {
        let mut out = Vec::new();
        write(&mut out, &database, seq);
        let written = String::from_utf8_lossy(&out).into_owned();
        assert_eq!(written, format!("\"{seq}-{INSTANCE:016x}\""));
        assert_eq!(parse(&written, &database).map_err(|error| show(&error)), Ok(Since::Seq(seq)));
        assert_eq!(parse(&text(&database, seq), &database).map_err(|error| show(&error)), Ok(Since::Seq(seq)));
    }
}
