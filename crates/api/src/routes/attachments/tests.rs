//! Tests of range requests.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::tests::show;

#[test]
fn ranges_are_clamped_to_the_content() {
    let check = |header: &str, expected: &[(u64, u64)]| {
        assert_eq!(ranges(Some(header), 10).unwrap().as_deref(), Some(expected), "{header}");
    };
    check("bytes=0-0", &[(0, 0)]);
    check("bytes=2-4", &[(2, 4)]);
    check("bytes=7-", &[(7, 9)]);
    check("bytes=-3", &[(7, 9)]);
    check("bytes=5-100", &[(5, 9)]);
    check("bytes=0-9", &[(0, 9)]);
    check("bytes=-100", &[(0, 9)]);
    check("bytes=-10", &[(0, 9)]);
    check("bytes=-11", &[(0, 9)]);
    check("bytes=-99999999999999999999", &[(0, 9)]);
    check("bytes=0-1, 4-5,-1", &[(0, 1), (4, 5), (9, 9)]);
    check("bytes= 0-3,", &[(0, 3)]);
    check("bytes=0-99999999999999999999", &[(0, 9)]);
    check("bytes=7", &[(7, 9)]);
    check("bytes=", &[]);
    let everything =
        ["bytes=0-", "bytes=x-y", "items=0-1", "Bytes=0-1", "bytes=-", "bytes=0-1-2", "bytes=1-2,x-3", "bytes=2-3,0-"];
    for header in everything {
        assert_eq!(ranges(Some(header), 10).unwrap(), None, "{header}");
    }
    assert_eq!(ranges(None, 10).unwrap(), None);
}

#[test]
fn ranges_beyond_the_end_are_refused() {
    let refused = "416 requested_range_not_satisfiable: Requested range not satisfiable";
    for header in ["bytes=10-", "bytes=100-200", "bytes=5-2", "bytes=-0", "bytes=--1", "bytes=0-1,10-11"] {
        assert_eq!(show(&ranges(Some(header), 10).unwrap_err()), refused, "{header}");
    }
    for header in ["bytes=0-0", "bytes=-1", "bytes=1-"] {
        assert_eq!(show(&ranges(Some(header), 0).unwrap_err()), refused, "{header} of nothing");
    }
    assert_eq!(ranges(Some("bytes=0-"), 0).unwrap(), None);
}

#[test]
fn any_ranges() {
    let seeds: &[&[u8]] =
        &[b"bytes=0-9,20-,-5", b"bytes=--170141183460469231731687303715884105728", b"bytes=1-2,,3", b"bytes=0-"];
    let words =
        &["bytes=", "-", ",", "0", "18446744073709551616", "170141183460469231731687303715884105727", "--", " "];
    settee_model::testing::fuzz(seeds, words, |data| {
        let header = String::from_utf8_lossy(data);
        for length in [0, 1, 10, u64::MAX] {
            let Ok(Some(found)) = ranges(Some(&header), length) else { continue };
            assert!(found.iter().all(|(from, to)| from <= to && *to < length), "{header} of {length}: {found:?}");
        }
    });
}
