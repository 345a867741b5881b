//! Batches of a feed whose slices end after each step.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::tests::node::World;
use crate::tests::query;

fn whole(view: &ReadView<'_>, text: &str, body: &str, slice: fn() -> TimeSlice) -> (String, u64, u64) {
    let query = query(text);
    let mut params = ChangesParams::resolve(&query, None, 60_000, (view.database(), view.reader())).unwrap();
    let body = (!body.is_empty()).then(|| Json::parse(body.as_bytes()).unwrap());
    params.filter = Filter::resolve(&params.filter_name, &query, body.as_ref()).unwrap();
    let mut rows = Rows::new(params, view.update_seq().unwrap());
    let (mut out, mut batches) = (Vec::new(), 0);
    loop {
        let (text, more) = read_batch(view, &mut rows, None, slice()).unwrap();
        out.extend(text);
        batches += 1;
        assert!(batches < 100, "the feed does not advance");
        if !more {
            return (String::from_utf8(out).unwrap(), rows.position, rows.beyond);
        }
    }
}

#[tokio::test]
async fn a_feed_continues_where_its_slice_ended() {
    let world = World::new();
    world.make_database("db");
    for id in ["a", "b", "_design/c", "d", "e"] {
        world.admin(&format!("PUT /db/{id}"), &format!(r#"{{"id":"{id}"}}"#)).await;
    }
    world
        .admin(
            "POST /db/_bulk_docs",
            r#"{"new_edits":false,"docs":[{"_id":"b","_rev":"1-x"},{"_id":"d","_rev":"1-y"}]}"#,
        )
        .await;
    let view = world.node.database("db").unwrap().read().unwrap();
    let many = (0..LOOKUPS_MAX).map(|id| format!(r#""{id}""#)).collect::<Vec<_>>().join(",");
    for feed in ["normal", "longpoll", "continuous", "eventsource"] {
        for order in ["", "&descending=true"] {
            for rest in ["", "&style=all_docs", "&include_docs=true", "&limit=1", "&limit=2", "&limit=0"] {
                for (filter, body) in [
                    ("", String::new()),
                    ("&filter=_design", String::new()),
                    ("&filter=_doc_ids", r#"{"doc_ids":["a","e","d"]}"#.to_owned()),
                    ("&filter=_doc_ids", format!(r#"{{"doc_ids":["e","d",{many}]}}"#)),
                    ("&filter=_selector", r#"{"selector":{"id":"a"}}"#.to_owned()),
                    ("&filter=_selector", r#"{"selector":{"id":{"$gt":"a"}}}"#.to_owned()),
                    ("&filter=_selector", r#"{"selector":{"id":"nothing"}}"#.to_owned()),
                ] {
                    let query = format!("feed={feed}{order}{rest}{filter}");
                    let expected = whole(&view, &query, &body, TimeSlice::endless);
                    assert_eq!(whole(&view, &query, &body, TimeSlice::over), expected, "{query} {body}");
                }
            }
        }
    }
}
