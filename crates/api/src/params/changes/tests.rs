//! Parameters of the changes feed.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::tests::{database, query, show};

fn resolve(text: &str) -> Result<ChangesParams, Error> {
    ChangesParams::resolve(&query(text), None, 60_000, (&database(), &Reader::Administrator))
}

#[test]
fn without_parameters_everything_is_sent_once() {
    let params = resolve("").unwrap();
    assert_eq!((params.feed, params.since, params.limit), (Feed::Normal, Since::Seq(0), None));
    assert_eq!((params.direction, params.style), (Direction::Forward, Style::MainOnly));
    assert_eq!((params.include_docs, params.conflicts, params.seq_interval), (false, false, 1));
    assert_eq!(params.quiet, IdlePolicy::Timeout(Duration::from_millis(60_000)));
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
    assert_eq!(seqs("seq_interval=2&limit=-1"), "-x-x-x-");
    assert_eq!(seqs("seq_interval=3&limit=-2"), "-x--x--");
    assert_eq!(seqs("seq_interval=10&limit=-2"), "-------");
    assert_eq!(seqs("seq_interval=10&limit=-9"), "-x-----");
}

#[test]
fn the_place_to_begin_has_three_names() {
    let seq = |number: u64| sequence::text(&database(), number);
    let since = |header: Option<&str>, text: &str| {
        ChangesParams::resolve(&query(text), header, 60_000, (&database(), &Reader::Administrator))
            .map(|params| params.since)
    };
    let (five, six) = (format!("since={}", seq(5)), format!("last-event-id={}", seq(6)));
    let check = |header: Option<&str>, text: &str, expected: Since| {
        assert_eq!(since(header, text).map_err(|error| show(&error)), Ok(expected), "{text}");
    };
    check(None, &five, Since::Seq(5));
    check(None, "since=now", Since::Now);
    check(None, &format!("{five}&{six}"), Since::Seq(6));
    check(None, &format!("{six}&{five}"), Since::Seq(5));
    check(Some(&seq(7)), &five, Since::Seq(5));
    check(Some(&seq(7)), &format!("{five}&{six}&feed=eventsource"), Since::Seq(7));
    check(None, "descending=true&since=5", Since::Now);
    check(None, "since=never&descending=true", Since::Now);
    check(None, "since=2025-08-01T00:00:00Z", Since::Time(1_754_006_400));
    check(Some("2025-08-01T00:00:00Z"), "since=5&feed=eventsource", Since::Time(1_754_006_400));
    check(None, "since=2025-08-01Txx:00:00Z&descending=true", Since::Now);
}

#[test]
fn a_quiet_feed_lives_by_heartbeats_or_ends() {
    let check = |text: &str, timeout_ms: u64, expected: IdlePolicy| {
        let params =
            ChangesParams::resolve(&query(text), None, timeout_ms, (&database(), &Reader::Administrator)).unwrap();
        assert_eq!(params.quiet, expected, "{text}");
    };
    let timeout = |ms| IdlePolicy::Timeout(Duration::from_millis(ms));
    let heartbeat = |ms| IdlePolicy::Heartbeat(Duration::from_millis(ms));
    check("timeout=5", 1000, timeout(5));
    check("timeout=0", 1000, timeout(0));
    check("timeout=5000", 1000, timeout(1000));
    check("", 1000, timeout(1000));
    check("", 0, timeout(60_000));
    check("heartbeat=true", 1000, heartbeat(1000));
    check("heartbeat=true", 0, heartbeat(60_000));
    check("heartbeat=10", 1000, heartbeat(10));
    check("heartbeat=10&timeout=5", 1000, heartbeat(10));
    check("heartbeat=5000", 1000, heartbeat(1000));
    check("heartbeat=99999999999999999999", 1000, heartbeat(1000));
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
    for name in ["limit", "timeout"] {
        for value in ["x", "", "1.5", "1e9", " 1", "null", "\"1\"", "-"] {
            let expected = format!("400 bad_request: The {name} parameter should be a non-negative integer");
            check(&format!("{name}={value}"), &expected);
        }
        for value in ["0", "-0", "-1", "-99999999999999999999", "007", "99999999999999999999"] {
            assert!(resolve(&format!("{name}={value}")).is_ok(), "{name}={value}");
        }
    }
    let most = resolve("seq_interval=99999999999999999999").unwrap();
    assert_eq!(most.seq_interval, u64::MAX, "integers have any size");
    for text in ["seq_interval=a", "seq_interval=0", "seq_interval=-1", "seq_interval=1.5", "seq_interval="] {
        check(text, "400 bad_request: invalid_seq_interval");
    }
    for text in ["style=", "style=x", "style=All_docs", "style=%22all_docs%22"] {
        check(text, "400 bad_request: Supported `style` types: main_only, all_docs");
    }
    for text in ["never", "2025-08-01", "2025-08-01T00:00:00%2B00:00", "%222025-08-01T00:00:00Z%22"] {
        check(&format!("since={text}"), "400 bad_request: Malformed sequence supplied in 'since' parameter.");
    }
    for text in ["2025-08-01Txx:yy:00Z", "2025-02-30T00:00:00Z"] {
        check(&format!("since={text}"), "400 bad_request: invalid_time_format");
        check(&format!("last-event-id={text}"), "400 bad_request: invalid_time_format");
    }
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

#[test]
fn updates_of_databases_have_parameters_of_their_own() {
    let of_updates = |text: &str| ChangesParams::of_updates(&query(text), None, 1000, &database());
    let check = |text: &str, expected: IdlePolicy| {
        assert_eq!(of_updates(text).map(|params| params.quiet).map_err(|error| show(&error)), Ok(expected), "{text}");
    };
    let timeout = |ms| IdlePolicy::Timeout(Duration::from_millis(ms));
    let heartbeat = |ms| IdlePolicy::Heartbeat(Duration::from_millis(ms));
    check("", timeout(1000));
    check("heartbeat=false", timeout(1000));
    check("heartbeat=false&timeout=5", timeout(5));
    check("heartbeat=0", heartbeat(MIN_HEARTBEAT_MS));
    check("heartbeat=50", heartbeat(50));
    check("heartbeat=true", heartbeat(1000));
    check("heartbeat=5000", heartbeat(1000));
    check("timeout=0", timeout(0));
    // Names in another case, and parameters of `_changes`, are ignored.
    check("HEARTBEAT=x&Limit=-1&filter=_nosuch&seq_interval=0&style=x", timeout(1000));
    for name in ["heartbeat", "limit", "timeout"] {
        for value in ["-1", "x", "", "1.5"] {
            let error = of_updates(&format!("{name}={value}")).map(|_| ()).map_err(|error| show(&error));
            assert_eq!(error, Err("400 bad_request: invalid_integer".to_owned()), "{name}={value}");
        }
    }
    for feed in ["live", "", "x"] {
        let error = of_updates(&format!("feed={feed}")).map(|_| ()).map_err(|error| show(&error));
        let expected = "400 bad_request: Supported `feed` types: normal, continuous, longpoll, eventsource";
        assert_eq!(error, Err(expected.to_owned()), "{feed}");
    }
    for since in ["5", "00", "\"0\"", "0 ", "x"] {
        assert!(of_updates(&format!("since={since}")).is_err(), "{since}");
    }
    assert_eq!(of_updates("since=0&limit=3").map(|params| params.limit).map_err(|error| show(&error)), Ok(Some(3)));
}
