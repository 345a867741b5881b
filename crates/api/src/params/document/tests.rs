//! Parameters of document reads, and the revision that a write replaces.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::tests::{query, show};

const A: &str = "1-0123456789abcdef0123456789abcdef";
const B: &str = "2-fedcba9876543210fedcba9876543210";

fn rev(text: &str) -> Rev {
    Rev::parse(text).unwrap()
}

#[test]
fn which_revisions_a_read_means() {
    let check = |text: &str, expected: RevisionSelection| {
        assert_eq!(DocParams::resolve(&query(text)).unwrap().which, expected, "{text}");
    };
    check("", RevisionSelection::Winner { deleted: false });
    check("deleted=true", RevisionSelection::Winner { deleted: true });
    check(&format!("rev={A}"), RevisionSelection::Rev(rev(A)));
    check("open_revs=all", RevisionSelection::Open(OpenRevs::All));
    check(
        &format!("open_revs=%5B%22{A}%22,%22{B}%22%5D"),
        RevisionSelection::Open(OpenRevs::Some(vec![rev(A), rev(B)])),
    );
    check(&format!("open_revs=all&rev={A}"), RevisionSelection::Open(OpenRevs::All));
    // As in CouchDB an empty list is ignored.
    check("open_revs=%5B%5D", RevisionSelection::Winner { deleted: false });
    check(&format!("open_revs=%5B%5D&rev={A}"), RevisionSelection::Rev(rev(A)));
    check(&format!("rev={A}&rev={B}"), RevisionSelection::Rev(rev(B)));
    check("open_revs=all&open_revs=%5B%5D", RevisionSelection::Winner { deleted: false });
    // With `latest` the winner is read, whatever the revision is.
    check(&format!("rev={A}&latest=true"), RevisionSelection::Winner { deleted: false });
}

#[test]
fn new_edits_is_a_parameter_of_put_whose_last_value_counts() {
    let mode = |text: &str| DocParams::resolve(&query(text)).unwrap().mode;
    assert_eq!(mode(""), EditMode::Interactive);
    assert_eq!(mode("new_edits=true&new_edits=false"), EditMode::Replicated);
    assert_eq!(mode("new_edits=false&new_edits=true"), EditMode::Interactive);
    assert_eq!(mode("new_edits=0"), EditMode::Interactive);
}

#[test]
fn the_first_wrong_value_is_named() {
    let refused = |text: &str| show(&DocParams::resolve(&query(text)).unwrap_err());
    let (revision, json) = ("400 bad_request: Invalid rev format", "400 bad_request: invalid UTF-8 JSON");
    assert_eq!(refused("rev=x&atts_since=x"), revision);
    assert_eq!(refused("atts_since=x&rev=x"), json);
    assert_eq!(refused("rev=1-a&rev=x"), revision);
    assert_eq!(refused("rev=99999999999999999999-a"), "404 not_found: missing");
}

#[test]
fn extras_are_asked_for_alone_or_together() {
    let extras = |text: &str| DocParams::resolve(&query(text)).unwrap().extras;
    assert_eq!(extras(""), Extras::default());
    assert_eq!(extras("revs=true"), Extras { revs: true, ..Extras::default() });
    assert_eq!(extras("local_seq=true"), Extras { local_seq: true, ..Extras::default() });
    let meta = Extras { revs_info: true, conflicts: true, deleted_conflicts: true, ..Extras::default() };
    assert_eq!(extras("meta=true"), meta);
    assert_eq!(extras("revs_info=true&conflicts=true&deleted_conflicts=true"), meta);
    assert!(DocParams::resolve(&query("latest=true")).unwrap().latest);
}

#[test]
fn invalid_revisions_are_rejected() {
    let check = |text: &str, expected: &str| {
        let error = DocParams::resolve(&query(text)).unwrap_err();
        assert_eq!(show(&error), expected, "{text}");
    };
    let invalid = "400 bad_request: Invalid rev format";
    check("rev=x", invalid);
    check("rev=", invalid);
    check("rev=1", invalid);
    check("open_revs=%5B1%5D", invalid);
    check("open_revs=%5B%22x%22%5D", invalid);
    check("open_revs=%7B%7D", "400 bad_request: Invalid list of revisions");
    check("atts_since=null", "400 bad_request: Invalid list of revisions");
    check("open_revs=any", "400 bad_request: invalid UTF-8 JSON");
    check("atts_since=%5B%22x%22%5D", invalid);
}

#[test]
fn the_replaced_revision_has_three_sources() {
    let check =
        |in_query: Option<&str>, header: Option<&str>, body: Option<&str>, expected: Result<Option<&str>, &str>| {
            let mut headers = HeaderMap::new();
            if let Some(header) = header {
                headers.insert(header::IF_MATCH, header.parse().unwrap());
            }
            let text = in_query.map(|rev| format!("rev={rev}")).unwrap_or_default();
            let found = replaced_rev(&query(&text), &headers, body.map(rev).as_ref());
            let expected = expected.map(|found| found.map(rev)).map_err(|reason| format!("400 bad_request: {reason}"));
            assert_eq!(found.map_err(|error| show(&error)), expected, "{in_query:?} {header:?} {body:?}");
        };
    let quoted = format!("\"{A}\"");
    let body_disagrees = "Document rev from request body and query string have different values";
    let etag_disagrees = "Document rev and etag have different values";
    check(None, None, None, Ok(None));
    check(Some(A), None, None, Ok(Some(A)));
    check(None, Some(A), None, Ok(Some(A)));
    check(None, Some(&quoted), None, Ok(Some(A)));
    check(None, None, Some(A), Ok(Some(A)));
    check(Some(A), Some(&quoted), Some(A), Ok(Some(A)));
    check(Some(A), None, Some(B), Err(body_disagrees));
    check(Some(B), Some(A), None, Err(etag_disagrees));
    check(None, Some(A), Some(B), Err(etag_disagrees));
    check(Some(A), Some(B), Some(B), Err(body_disagrees));
    check(Some("x"), None, None, Err("Invalid rev format"));
    check(None, Some("*"), None, Err("Invalid rev format"));
}
