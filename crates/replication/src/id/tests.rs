//! Ids compared with those of an independent implementation of the algorithm.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use settee_model::json::Json;

use super::{IdError, ReplicationId, trimmed};
use crate::endpoint::{Endpoint, User};
use crate::peer::Peer;
use crate::spec::{Spec, Tuning};
use crate::testing::{Leaf, Server, identity, spec as local};

fn spec(source: &str, target: &str, members: &str) -> Spec {
    let text = format!("{{\"source\":{source},\"target\":{target}{members}}}");
    let json = Json::parse(text.as_bytes()).unwrap();
    Spec::parse(json.value(), &User::default(), &Tuning::default()).unwrap()
}

const SOURCE: &str = "\"http://host:5984/db\"";
const TARGET: &str =
    "{\"url\":\"https://user:secret@other.example:6984/a%2Fb/\",\"headers\":{\"X-B\":\"2\",\"X-A\":\"1\"}}";

fn check(members: &str, code: &str, base: &str) {
    let id = ReplicationId::of(&spec(SOURCE, TARGET, members), &identity(), code);
    assert_eq!(id.base, base, "{members}");
}

#[test]
fn bases() {
    check("", "", "8f3fd1720aa5b194fe850f5ab0b5b84c");
    check(",\"doc_ids\":[\"b c\",\"a\",\"a\"]", "", "23404dec446aa2c964ab6d91712371b5");
    check(
        ",\"filter\":\"_view\",\"query_params\":{\"view\":\"d/v\",\"n\":[1,2,300]}",
        "",
        "341ff7dbcd38b4c93d099d001afa27b2",
    );
    check(",\"filter\":\"d/f\"", "function(doc) { return true; }", "4fcf6c6c86f888655c3e40e820e7decd");
    check(",\"selector\":{\"n\":{\"$gt\":0},\"x\":\"y\"}", "", "e751dcdfa13f6bc5663f875815aa4e02");
    let id = ReplicationId::of(&spec("\"http://host\"", "\"http://host:1\"", ""), &identity(), "");
    assert_eq!(id.base, "2719aee9e6a7dd507bee5c0e3f6f829c");
}

#[test]
fn older_versions() {
    let id = ReplicationId::of(&spec(SOURCE, TARGET, ""), &identity(), "");
    let older =
        ["49479a2456e0354152d90442ae206ae9", "f7ce0e68955ec0a6352b9b187fea0857", "7b4603711da5ff412a9834ede676cdc6"];
    assert_eq!(id.older, older);
}

#[test]
fn what_makes_no_difference() {
    let base = |source: &str| ReplicationId::of(&spec(source, TARGET, ""), &identity(), "").base;
    let one = base("\"http://u:p@host/db/\"");
    // "u:q"
    let headers = "{\"url\":\"http://host/db\",\"headers\":{\"Authorization\":\"Basic dTpx\"}}";
    let auth = "{\"url\":\"http://host/db\",\"auth\":{\"basic\":{\"username\":\"u\",\"password\":\"r\"}}}";
    for same in ["\"http://u:other@host:5984/db\"", "\"http://u@host:80/db\"", headers, auth] {
        assert_eq!(base(same), one, "{same}");
    }
    for other in ["\"http://host/db\"", "\"http://u:p@host:81/db\"", "\"http://u:p@host/db?x\""] {
        assert_ne!(base(other), one, "{other}");
    }
}

#[test]
fn extensions() {
    let id = |members: &str| ReplicationId::of(&spec(SOURCE, TARGET, members), &identity(), "");
    assert_eq!(id(",\"continuous\":true,\"create_target\":true").extension, "+continuous+create_target");
    assert_eq!(id(",\"create_target\":true").to_string(), "8f3fd1720aa5b194fe850f5ab0b5b84c+create_target");
}

#[test]
fn spaces_around_code() {
    let cases = [
        ("  function() {}  ", "function() {}"),
        (" function() {} \n", "function() {}\n"),
        ("\tf ", "\tf"),
        (" f\n g ", " f\n g "),
        ("", ""),
    ];
    for (code, expected) in cases {
        assert_eq!(trimmed(code), expected, "{code:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn code_of_filters_is_part_of_the_id() {
    let server = Server::with(&["a"]);
    let id = async || {
        let spec = local("a", "b", "\"filter\":\"d/f\"");
        let source = Peer::new(spec.source.clone(), server.clone(), &spec.tuning);
        ReplicationId::compute(&spec, &identity(), &source).await
    };
    let Err(IdError::FilterFetch(text)) = id().await else { panic!() };
    assert!(text.starts_with("Couldn't open document `_design/d` from source database `a`"), "{text}");
    server.write("a", "_design/d", Leaf::new(&["1-a"], "{\"filters\":{\"g\":\"1\"}}"));
    assert!(id().await.is_err());
    server.write("a", "_design/d", Leaf::new(&["2-a", "1-a"], "{\"filters\":{\"f\":\"1\"}}"));
    let first = id().await.unwrap();
    server.write("a", "_design/d", Leaf::new(&["3-a", "2-a", "1-a"], "{\"filters\":{\"f\":\"2\"}}"));
    assert_ne!(id().await.unwrap(), first);
    let _: &Arc<Server> = &server;
}

#[test]
fn passwords_are_not_shown() {
    let spec = spec(
        "\"http://adm:geheim@host/db\"",
        "{\"url\":\"http://host/x\",\"headers\":{\"Authorization\":\"Bearer geheim\"},\"auth\":{\"basic\":{\"username\":\"u\",\"password\":\"geheim\"}}}",
        ",\"proxy\":\"http://p:geheim@proxy:1\"",
    );
    let shown = format!("{spec:?} {} {}", spec.source, spec.target);
    assert!(!shown.contains("geheim"), "{shown}");
    let Endpoint::Remote(remote) = &spec.source else { panic!() };
    assert!(!format!("{:?}", remote.auth).contains("geheim"));
    assert_eq!(spec.source.to_string(), "http://host/db/");
}

#[test]
fn replications_of_winners_have_checkpoints_of_their_own() {
    let id = |members: &str| ReplicationId::of(&spec(SOURCE, TARGET, members), &identity(), "");
    let (all, winners) = (id(""), id(",\"winning_revs_only\":true"));
    assert_ne!(all.base, winners.base);
    assert!(winners.older.iter().all(|older| !all.older.contains(older)));
}
