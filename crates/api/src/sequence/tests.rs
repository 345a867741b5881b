//! Sequences as clients send them.

use super::*;
use crate::tests::{INSTANCE, database, show};

const OF_COUCHDB: &str = "g1AAAACLeJzLYWBgYMpgTmHgzcvPy09JdcjLz8gvLskBCScyJNX___8_K4M5kTsXKMBumJpskZSSiq4Yh_Y8FiDJ0ACk_kNN4QGbkpRkbJGcZoauJwsAgDQrWw";

const OF_COUCHDB_PLAIN: &str = "g2wAAAACaANkAA1ub25vZGVAbm9ob3N0bAAAAAJhAGJ_____amgDYQttAAAABzFlYzhiZGVkAA1ub25vZGVAbm9ob3N0aANkAA1ub25vZGVAbm9ob3N0bAAAAAJuBAAAAACAbgQA_____2poA2EMbQAAAAdiYjM4Y2Y2ZAANbm9ub2RlQG5vaG9zdGo";

/// The term of sequence 5 of the instance of these tests, as `term_to_binary` of Erlang writes it but for the
/// width of the integer.
const OWN: &str =
    "g2wAAAABaANkAA1ub25vZGVAbm9ob3N0bAAAAAJhAG4EAP____9qaANiAAAABW0AAAAQMDEyMzQ1Njc4OWFiY2RlZmQADW5vbm9kZUBub2hvc3Rq";

const OWN_LARGEST: &str = "g2wAAAABaANkAA1ub25vZGVAbm9ob3N0bAAAAAJhAG4EAP____9qaANuCAD__________20AAAAQMDEyMzQ1Njc4OWFiY2RlZmQADW5vbm9kZUBub2hvc3Rq";

#[test]
fn values_of_since() {
    let database = database();
    let own = format!("{INSTANCE:016x}");
    let check = |since: &str, expected: Since| {
        assert_eq!(
            parse(since, (&database, &Reader::Administrator)).map_err(|error| show(&error)),
            Ok(expected),
            "{since}"
        );
    };
    check("0", Since::Seq(0));
    check("now", Since::Now);
    check(&format!("5-{OWN}"), Since::Seq(5));
    check(&format!("\"5-{OWN}\""), Since::Seq(5));
    // The term determines the sequence, with or without the number before it.
    check(OWN, Since::Seq(5));
    check(&format!("7-{OWN}"), Since::Seq(5));
    check(&format!("99999999999999999999-{OWN}"), Since::Seq(5));
    check(&format!("5-{own}"), Since::Seq(5));
    check(&format!("\"5-{own}\""), Since::Seq(5));
    // Sequences of another database with this name.
    check("5-fedcba9876543210", Since::Seq(0));
    check(&format!("5-{}", OWN.replace("MDEy", "MDEz")), Since::Seq(0));
    // Sequences of CouchDB from before a migration.
    check(&format!("23-{OF_COUCHDB}"), Since::Seq(23));
    check(&format!("\"23-{OF_COUCHDB_PLAIN}\""), Since::Seq(23));
    check("23-g2o", Since::Seq(23));
    // Unused bits of the last digit, and bytes after the term.
    check("23-g2p", Since::Seq(23));
    check("23-g2oAAAA", Since::Seq(23));
    check(&format!("5-{OWN}AAAA"), Since::Seq(5));
    check(&format!("5-{}AAAA", OWN.replace("MDEy", "MDEz")), Since::Seq(0));
    check(OF_COUCHDB, Since::Seq(0));
    check(&format!("99999999999999999999-{OF_COUCHDB}"), Since::Seq(0));
}

/// CouchDB rejects texts without a valid term.
#[test]
fn invalid_sequences_are_rejected() {
    let database = database();
    let broken = [
        format!("5-{}", &OWN[..OWN.len() - 4]),
        format!("5-{}", &OF_COUCHDB[..OF_COUCHDB.len() - 8]),
        format!("5-{}", &OF_COUCHDB_PLAIN[..40]),
        format!(" 5-{OWN}"),
        format!("5-{OWN} "),
        format!("[5,\"{OWN}\"]"),
        format!("5-{OWN}="),
    ];
    let texts = [
        "",
        "x",
        "-1",
        "NOW",
        "\"now\"",
        "now ",
        "1.5",
        "5",
        "00",
        "17",
        "\"0\"",
        "\"5\"",
        "0 ",
        " 0",
        "+0",
        "0-",
        "5-",
        "5 6",
        "18446744073709551615",
        "18446744073709551616",
        "[]",
        "{}",
        "[5,\"g1AAAA\"]",
        "\0",
        "-",
        "1-abc",
        "5-g",
        "5-g1AAAA",
        "g2o=",
        "5-fedcba987654321x",
        "-fedcba9876543210",
        "fedcba9876543210",
        "99999999999999999999-fedcba9876543210",
    ];
    for since in texts.into_iter().chain(broken.iter().map(String::as_str)) {
        let error = parse(since, (&database, &Reader::Administrator)).map_err(|error| show(&error));
        let expected = "400 bad_request: Malformed sequence supplied in 'since' parameter.";
        assert_eq!(error, Err(expected.to_owned()), "{since:?}");
    }
}

#[test]
fn a_sequence_is_read_as_it_was_written() {
    let database = database();
    assert_eq!(text(&database, 5), format!("5-{OWN}"));
    assert_eq!(text(&database, u64::MAX), format!("{}-{OWN_LARGEST}", u64::MAX));
    for seq in [0, 1, 255, 256, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 40, u64::MAX] {
        let mut out = Vec::new();
        write(&mut out, &database, seq);
        let written = String::from_utf8_lossy(&out).into_owned();
        assert_eq!(written, format!("\"{}\"", text(&database, seq)));
        assert_eq!(
            parse(&written, (&database, &Reader::Administrator)).map_err(|error| show(&error)),
            Ok(Since::Seq(seq))
        );
        assert_eq!(
            parse(&text(&database, seq), (&database, &Reader::Administrator)).map_err(|error| show(&error)),
            Ok(Since::Seq(seq))
        );
    }
}

#[test]
fn a_sequence_of_a_member_with_other_roles_is_the_start() {
    use settee_database::Member;
    let database = database();
    let of = |role: &str| Reader::Member(Member::new(Some("ann"), [role.to_owned()]));
    let (before, now) = (of("staff"), of("board"));
    let sequence = text_for((&database, &before), 7);
    let start = |text: &str, reader: &Reader| parse(text, (&database, reader)).map_err(|error| show(&error));
    assert_eq!(start(&sequence, &before), Ok(Since::Seq(7)));
    assert_eq!(start(&sequence, &now), Ok(Since::Seq(0)));
    assert_eq!(start(&sequence, &Reader::Administrator), Ok(Since::Seq(0)));
    // For example `update_seq` of the information about the database.
    assert_eq!(start(&text(&database, 7), &now), Ok(Since::Seq(7)));
}
