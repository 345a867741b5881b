//! Parameters of the changes feed.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::tests::{database, query, show};

fn resolve(text: &str) -> Result<ChangesParams, Error> {
    ChangesParams::resolve(&query(text), None, 60_000, &database())
}

#[test]
fn without_parameters_everything_is_sent_once() {
    let params = resolve("").unwrap();
    assert_eq!((params.feed, params.since, params.limit), (Feed::Normal, Since::Seq(0), None));
    assert_eq!((params.direction, params.style), (Direction::Forward, Style::MainOnly));
    assert_eq!((params.include_docs, params.conflicts, params.seq_interval), (false, false, 1));
    assert_eq!(params.quiet, Quiet::Timeout(Duration::from_millis(60_000)));
}

#[test]
fn feeds_by_their_names() {
    for (name, expected) in [
        ("normal", Feed::Normal),
        ("longpoll", Feed::Longpoll),
        ("continuous", Feed::Continuous),
        ("live", Feed::Continuous),
        ("eventsource", Feed::EventSource),
    ] {
        assert_eq!(resolve(&format!("feed={name}")).unwrap().feed, expected, "{name}");
    }
}

#[test]
fn switches_and_numbers() {
    let params =
        resolve("descending=true&style=all_docs&include_docs=true&conflicts=true&limit=0&seq_interval=5").unwrap();
    assert_eq!((params.direction, params.style, params.limit), (Direction::Backward, Style::AllDocs, Some(0)));
    assert!(params.include_docs && params.conflicts);
    assert_eq!(params.seq_interval, 5);
    for text in ["limit=-1", "limit=99999999999999999999999", "limit=99999999999999999999999999999999999999999999999"] {
        assert_ne!(resolve(text).unwrap().limit, Some(0), "{text}");
    }
    assert_eq!(resolve("LIMIT=3&Feed=longpoll").unwrap().limit, Some(3), "names in any case");
    assert_eq!(resolve("limit=3&limit=4&descending=true&descending=x").unwrap().limit, Some(4), "the last of several");
}

#[test]
fn rows_that_have_a_sequence_are_counted_downwards() {
    let seqs = |text: &str| {
        let params = resolve(text).unwrap();
        (0..7).map(|sent| if params.has_seq(sent) { 'x' } else { '-' }).collect::<String>()
    };
    assert_eq!(seqs(""), "xxxxxxx");
    assert_eq!(seqs("seq_interval=2"), "x-x-x-x");
    // 10^15 is one more than a multiple of three.
    assert_eq!(seqs("seq_interval=3"), "-x--x--");
    assert_eq!(seqs("seq_interval=3&limit=6"), "x--x--x");
}

#[test]
fn the_place_to_begin_has_three_names() {
    let since = |header: Option<&str>, text: &str| {
        ChangesParams::resolve(&query(text), header, 60_000, &database()).unwrap().since
    };
    assert_eq!(since(None, "since=5"), Since::Seq(5));
    assert_eq!(since(None, "since=now"), Since::Now);
    assert_eq!(since(None, "since=5&last-event-id=6"), Since::Seq(6));
    assert_eq!(since(None, "last-event-id=6&since=5"), Since::Seq(5));
    assert_eq!(since(Some("7"), "since=5"), Since::Seq(5), "the header is for event sources");
    assert_eq!(since(Some("7"), "since=5&last-event-id=6&feed=eventsource"), Since::Seq(7));
}

#[test]
fn a_quiet_feed_lives_by_heartbeats_or_ends() {
    let check = |text: &str, timeout_ms: u64, expected: Quiet| {
        let params = ChangesParams::resolve(&query(text), None, timeout_ms, &database()).unwrap();
        assert_eq!(params.quiet, expected, "{text}");
    };
    let timeout = |ms| Quiet::Timeout(Duration::from_millis(ms));
    let heartbeat = |ms| Quiet::Heartbeat(Duration::from_millis(ms));
    check("timeout=5", 1000, timeout(5));
    check("timeout=0", 1000, timeout(0));
    check("timeout=5000", 1000, timeout(1000));
    check("", 1000, timeout(1000));
    check("", 0, timeout(60_000));
    check("heartbeat=true", 1000, heartbeat(60_000));
    check("heartbeat=10", 1000, heartbeat(10));
    check("heartbeat=10&timeout=5", 1000, heartbeat(10));
    check("timeout=-1", 1000, timeout(0));
    check("heartbeat=18446744073709551615", 1000, heartbeat(u64::MAX));
}

#[test]
fn errors_say_which_parameter_is_wrong() {
    let check = |text: &str, expected: &str| {
        assert_eq!(resolve(text).map(|_| ()).map_err(|error| show(&error)), Err(expected.to_owned()), "{text}");
    };
    let heartbeat = "400 bad_request: Invalid heartbeat value. Expecting a positive integer value (in milliseconds).";
    for text in ["heartbeat=false", "heartbeat=1.5", "heartbeat=x", "heartbeat="] {
        check(text, heartbeat);
    }
    let not_positive = "400 bad_request: The heartbeat value should be a positive integer (in milliseconds).";
    for text in ["heartbeat=0", "heartbeat=-1"] {
        check(text, not_positive);
    }
    let feeds = "400 bad_request: Supported `feed` types: normal, continuous, live, longpoll, eventsource";
    for text in ["feed=", "feed=NORMAL", "feed=longpoll&feed=x", "feed=x&since=never"] {
        check(text, feeds);
    }
    check("limit=x", "400 bad_request: Invalid value for `limit`: expected a number, got `x`");
    for text in ["seq_interval=a", "seq_interval=0", "seq_interval=-1", "seq_interval=1.5", "seq_interval="] {
        check(text, "400 bad_request: invalid_seq_interval");
    }
    check("timeout=1e9", "400 bad_request: Invalid value for `timeout`: expected a number, got `1e9`");
    check("since=never", "400 bad_request: Malformed sequence supplied in 'since' parameter.");
    let of_filter = "400 bad_request: `filter` must be of the form `designname/filtername`";
    for text in ["filter=x", "filter=x/", "filter=/x", "filter=x/y/z", "filter=x&feed=x"] {
        check(text, of_filter);
    }
    for text in ["filter=_view", "filter=_view&view="] {
        check(text, "400 bad_request: `view` filter parameter is not provided.");
    }
    for text in ["filter=_view&view=x", "filter=_view&view=x/y/z"] {
        check(text, "400 bad_request: `view` must be of the form `designname/viewname`");
    }
    check("filter=_nosuch", "400 bad_request: unknown builtin filter name");
    for text in ["filter=", "filter=/", "filter=x/y", "filter=x//y", "filter=_view&view=x/y", "filter=_design"] {
        assert!(resolve(text).is_ok(), "{text}");
    }
}
