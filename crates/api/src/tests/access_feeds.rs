//! Feeds and counts of members of a database with per-document access: gains, losses and changed roles.

use settee_model::json::{Json, Value};

use super::document_access::{MARK, ask, rev_in, world};
use super::node::Ask;

#[tokio::test]
async fn counts_and_feeds_contain_only_visible_documents() {
    let world = world().await;
    let feed = |body: &str| {
        let ids = body.split(r#""id":""#).skip(1).map(|rest| rest.split('"').next().unwrap().to_owned());
        ids.collect::<Vec<_>>()
    };
    for (caller, expected, total) in [
        ("anonymous", vec![], 0),
        ("eve", vec!["mine"], 1),
        ("bob", vec!["secret"], 1),
        ("ann", vec!["secret", "hidden-confidential"], 2),
        ("dba", vec!["_design/d", "secret", "hidden-confidential", "none-confidential", "mine"], 5),
    ] {
        let get = async |line: &str| ask(&world, caller, line, "").await.body;
        assert_eq!(feed(&get("GET /db/_changes").await), expected, "{caller}");
        let continuous = ["feed=continuous&timeout=1", "feed=eventsource&timeout=1&include_docs=true"];
        let normal = ["include_docs=true", "style=all_docs", "descending=true", "feed=longpoll&timeout=1"];
        for query in normal.into_iter().chain(continuous) {
            let mut found = feed(&get(&format!("GET /db/_changes?{query}")).await);
            found.sort_unstable();
            let mut expected = expected.clone();
            expected.sort_unstable();
            assert_eq!(found, expected, "{query} for {caller}");
        }
        let limited = get("GET /db/_changes?limit=1").await;
        assert!(limited.contains(&format!(r#""pending":{}}}"#, i32::max(total - 1, 0))), "{caller}: {limited}");
        let info = get("GET /db").await;
        assert!(info.contains(&format!(r#""doc_del_count":0,"doc_count":{total},"#)), "{caller}: {info}");
        assert!(info.contains(r#""access":true"#), "{info}");
        let list = get("GET /db/_all_docs").await;
        assert!(list.starts_with(&format!(r#"{{"total_rows":{total},"offset":0,"#)), "{caller}: {list}");
        let empty = get("GET /db/_all_docs?skip=9").await;
        assert!(empty.starts_with(&format!(r#"{{"total_rows":{total},"offset":{total},"#)), "{caller}: {empty}");
    }
}

#[tokio::test]
async fn changed_roles_apply_to_the_next_request() {
    let world = world().await;
    let list = async || ask(&world, "bob", "GET /db/_all_docs", "").await.body;
    assert!(list().await.contains("secret"));
    let user = world.admin("GET /_users/org.couchdb.user:bob", "").await.body;
    world.admin("PUT /_users/org.couchdb.user:bob", &user.replace("\"staff\"", "")).await;
    assert!(list().await.starts_with(r#"{"total_rows":0"#));
    assert_eq!(ask(&world, "bob", "GET /db/secret", "").await.status.as_u16(), 404);
}

pub(super) fn last_seq_in(body: &str) -> String {
    body.split(r#""last_seq":""#).nth(1).unwrap().split('"').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_new_role_shows_old_documents_in_feeds() {
    let world = world().await;
    let feed =
        async |caller: &str, query: &str| ask(&world, caller, &format!("GET /db/_changes?{query}"), "").await.body;
    let set_roles = async |roles: &str| {
        let user = world.admin("GET /_users/org.couchdb.user:eve", "").await.body;
        let (before, rest) = user.split_once(r#""roles":["#).unwrap();
        let user = format!(r#"{before}"roles":[{roles}]{}"#, rest.split_once(']').unwrap().1);
        world.admin("PUT /_users/org.couchdb.user:eve", &user).await;
    };
    let since = last_seq_in(&feed("eve", "").await);
    let same = feed("eve", &format!("since={since}")).await;
    assert!(same.starts_with("{\"results\":[\n\n]"), "{same}");
    let waiting = format!("feed=longpoll&timeout=20000&since={since}");
    let (woken, ()) = tokio::join!(feed("eve", &waiting), async {
        // The feed waits after one of these requests, or starts with the new role.
        for _ in 0..50 {
            world.admin("GET /db", "").await;
        }
        set_roles(r#""staff""#).await;
    });
    for body in [&woken, &feed("eve", &format!("since={since}")).await] {
        assert!(body.contains(r#""id":"secret""#) && body.contains(r#""id":"mine""#), "{body}");
    }
    let later = last_seq_in(&woken);
    let same = feed("eve", &format!("since={later}")).await;
    assert!(same.starts_with("{\"results\":[\n\n]"), "{same}");
    // A lost role hides the documents; the feed does not report them.
    set_roles("").await;
    let without = feed("eve", &format!("since={later}")).await;
    assert!(without.contains(r#""id":"mine""#) && !without.contains("secret"), "{without}");
}

/// Regression: subscribers of a database are called in any order, so a feed could be woken before the accounts that are
/// kept in memory were outdated. It then continued to wait with the old roles.
#[tokio::test]
async fn every_change_of_roles_reaches_a_waiting_feed() {
    let world = world().await;
    let user = world.admin("GET /_users/org.couchdb.user:eve", "").await.body;
    let (before, rest) = user.split_once(r#""roles":["#).unwrap();
    let after = rest.split_once(']').unwrap().1;
    let mut rev = before.split(r#""_rev":""#).nth(1).unwrap().split('"').next().unwrap().to_owned();
    for round in 0..20 {
        let since = last_seq_in(&ask(&world, "eve", "GET /db/_changes", "").await.body);
        let waiting = format!("GET /db/_changes?feed=longpoll&timeout=20000&since={since}");
        let (role, expected) = if round % 2 == 0 { (r#""staff""#, true) } else { ("", false) };
        let (woken, ()) = tokio::join!(ask(&world, "eve", &waiting, ""), async {
            for _ in 0..50 {
                world.admin("GET /db", "").await;
            }
            let stored = before.split(r#""_rev":""#).nth(1).unwrap().split('"').next().unwrap();
            let user = format!(r#"{}"roles":[{role}]{after}"#, before.replace(stored, &rev));
            let reply = world.admin("PUT /_users/org.couchdb.user:eve", &user).await;
            rev = reply.body.split(r#""rev":""#).nth(1).unwrap().split('"').next().unwrap().to_owned();
        });
        assert!(woken.body.contains(r#""id":"mine""#), "round {round}: {}", woken.body);
        assert_eq!(woken.body.contains(r#""id":"secret""#), expected, "round {round}: {}", woken.body);
    }
}

/// A branch whose last revision is invisible ends with a tombstone, which has a body.
#[tokio::test]
async fn the_open_revisions_of_a_document_with_an_invisible_branch_are_complete() {
    let world = world().await;
    let replicated = async |rev: &str, parents: &[&str], rest: &str| {
        let hashes = std::iter::once(rev).chain(parents.iter().copied()).map(|rev| rev.split_once('-').unwrap().1);
        let hashes = hashes.map(|hash| format!("\"{hash}\"")).collect::<Vec<_>>().join(",");
        let generation = rev.split_once('-').unwrap().0;
        let body = format!(
            r#"{{"new_edits":false,"docs":[{{"_id":"two","_rev":"{rev}","_revisions":{{"start":{generation},"ids":[{hashes}]}},{rest}}}]}}"#
        );
        world.admin("POST /db/_bulk_docs", &body).await;
    };
    replicated("1-a", &[], r#""_access":["eve"]"#).await;
    replicated("2-b", &["1-a"], r#""_access":["eve"],"kept":1"#).await;
    replicated("2-c", &["1-a"], r#""_access":["eve"]"#).await;
    replicated("3-d", &["2-c", "1-a"], r#""_access":["ann"],"_deleted":true"#).await;
    let ask = Ask::new("GET /db/two?open_revs=all&revs=true").header("accept", "application/json");
    let reply = world.ask(ask.basic("eve", "pw")).await;
    let rows = Json::parse(reply.body.as_bytes()).unwrap_or_else(|error| panic!("{error}: {}", reply.body));
    let rows: Vec<_> = rows.value().elements().map(|row| row.get("ok").unwrap()).collect();
    assert_eq!(rows.len(), 2, "{}", reply.body);
    let is_tombstone = |row: &&Value<'_>| row.get("_deleted").is_some();
    assert_eq!(rows.iter().filter(is_tombstone).count(), 1, "{}", reply.body);
    assert!(!reply.body.contains("\"d\""), "the invisible revision is not named: {}", reply.body);
}

#[tokio::test]
async fn a_lost_document_is_a_tombstone_in_the_feed() {
    let world = world().await;
    let put = async |list: &str, rev: &str| {
        let line = format!("PUT /db/x{}", if rev.is_empty() { String::new() } else { format!("?rev={rev}") });
        rev_in(&ask(&world, "ann", &line, &format!(r#"{{"_access":[{list}],"text":"{MARK}"}}"#)).await.body)
    };
    let feed = async |since: &str| {
        let line = format!("GET /db/_changes?include_docs=true&since={since}");
        let body = ask(&world, "eve", &line, "").await.body;
        let last = body.split(r#""last_seq":""#).nth(1).unwrap().split('"').next().unwrap().to_owned();
        let rows: Vec<String> = body.split(r#"{"seq":"#).skip(1).map(|row| row.trim().to_owned()).collect();
        (rows.into_iter().filter(|row| row.contains(r#""id":"x""#)).collect::<Vec<_>>(), last)
    };
    let first = put(r#""ann","eve""#, "").await;
    let (rows, since) = feed("0").await;
    assert!(rows[0].contains(MARK), "{rows:?}");
    let second = put(r#""ann""#, &first).await;
    let (rows, later) = feed(&since).await;
    let gone = rev_in(&rows[0]);
    let expected = format!(
        r#""changes":[{{"rev":"{gone}"}}],"deleted":true,"doc":{{"_id":"x","_rev":"{gone}","_deleted":true}}}}"#
    );
    assert!(rows.len() == 1 && rows[0].contains(&expected) && !rows[0].contains(MARK), "{rows:?}");
    let of_removal = async || {
        let ask = async |line: &str, body: &str| ask(&world, "eve", line, body).await.line();
        let wanted = format!(r#"{{"docs":[{{"id":"x","rev":"{gone}"}}]}}"#);
        let got = ask("POST /db/_bulk_get?revs=true&latest=true", &wanted).await;
        (got, ask("POST /db/_revs_diff", &format!(r#"{{"x":["{gone}"]}}"#)).await)
    };
    let (got, diff) = of_removal().await;
    let hash = |rev: &str| rev.split_once('-').unwrap().1.to_owned();
    let revisions = format!(r#""_revisions":{{"start":2,"ids":["{}","{}"]}}"#, hash(&gone), hash(&first));
    assert!(got.contains(r#""_deleted":true"#) && got.contains(&revisions) && !got.contains(MARK), "{got}");
    assert_eq!(diff, "200 {}");
    for rev in [&first, &second] {
        let reply = ask(&world, "eve", &format!("GET /db/x?rev={rev}"), "").await;
        assert_eq!((reply.status.as_u16(), reply.body.contains(MARK)), (404, false), "{reply:?}");
    }
    // Later changes are of no concern to eve.
    let third = put(r#""ann""#, &second).await;
    assert_eq!(feed(&later).await.0, [""; 0]);
    assert_eq!(feed(&since).await.0.len(), 1);
    let reply = ask(&world, "eve", "GET /db/x", "").await.line();
    assert_eq!(reply, r#"404 {"error":"not_found","reason":"deleted"}"#);
    let fourth = put(r#""ann","eve""#, &third).await;
    let (rows, _) = feed("0").await;
    assert!(rows.len() == 1 && rows[0].contains(&fourth) && rows[0].contains(MARK), "{rows:?}");
    assert_eq!(of_removal().await.1, "200 {}");
}
