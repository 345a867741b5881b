//! Ids compared with those of an independent implementation of the algorithm.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use settee_model::json::Json;

use super::{IdError, ReplicationId, trimmed};
use crate::endpoint::{Endpoint, User};
use crate::peer::Peer;
use crate::spec::Spec;
use crate::testing::{Leaf, Server, identity, spec as local};
use crate::tuning::Tuning;

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

/// Endpoints of CouchDB's own test (`http_v4_endpoint_test_` in `couch_replicator_ids`, at 3.5) and more. The numbers
/// are MD5 hashes of the output of Erlang/OTP 25 (`term_to_binary(Term, [{minor_version, 1}])`).
#[test]
fn endpoints() {
    let (first, second) = ("Basic dXNlcjpwYXNz", "Basic dXNlcjI6cGFzczI=");
    let object = |url: &str, headers: &[(&str, &str)], username: &str| {
        let headers: Vec<String> = headers.iter().map(|(name, value)| format!("\"{name}\":\"{value}\"")).collect();
        let auth = match username {
            "" => String::new(),
            name => format!(",\"auth\":{{\"basic\":{{\"username\":\"{name}\",\"password\":\"p\"}}}}"),
        };
        format!("{{\"url\":\"{url}\",\"headers\":{{{}}}{auth}}}", headers.join(","))
    };
    let host = |headers: &[(&str, &str)], username: &str| object("http://host", headers, username);
    let url = |url: &str| object(url, &[], "");
    let cases = [
        (url("http://host"), "00d057b64e65e1a1c5e1f159409bbd26"),
        (url("https://host"), "00d057b64e65e1a1c5e1f159409bbd26"),
        (url("http://host:5984"), "00d057b64e65e1a1c5e1f159409bbd26"),
        (url("http://host/"), "00d057b64e65e1a1c5e1f159409bbd26"),
        (url("http://host:1"), "13efb075876f9b111710f75edf7197bd"),
        (url("https://host:2"), "6608e52616019de1840e2efbeef41451"),
        (url("https://host:5984"), "eda36077f909ba0f4d7793d3933671fd"),
        (url("http://host:300"), "6859bd4e15c64977f7cef18d4277b5ba"),
        (url("http://host:65535"), "6b30499cf836bce9a1cf0ec165c9b628"),
        (url("http://host/a/b"), "a528f1b634dc532ef254414bae0ae766"),
        (url("http://user:pass@host"), "a482e194542e24ebff3c1d65f1c57be9"),
        (url("http://user:newpass@host"), "a482e194542e24ebff3c1d65f1c57be9"),
        (url("http://user:pass@host:3"), "7cf66aecb1deb0a8b0098a6f71a5a2f5"),
        (url("http://u:p@[2001:db8:a1b:12f9::1]/db"), "42101b3ad01778def87d8732a95bda50"),
        (host(&[("h", "v")], ""), "35859e8b8f01cb3188814fcc3a53311c"),
        (host(&[("Authorization", first)], ""), "a482e194542e24ebff3c1d65f1c57be9"),
        (host(&[("AuThorization", "bAsIc dXNlcjpwYXNz")], ""), "a482e194542e24ebff3c1d65f1c57be9"),
        (host(&[("Authorization", "Basic bad")], ""), "00d057b64e65e1a1c5e1f159409bbd26"),
        (host(&[("h", "v"), ("Authorization", first)], "user2"), "eaf8fce79041577ab7651110c77a1046"),
        (host(&[("h", "v")], "user"), "8fb7673c88ad393da231e9a87b9a30b1"),
        (object("http://user1:pass1@host", &[("Authorization", second)], "user3"), "07153db744c7e41f1b502c20391f7800"),
        (host(&[("a", "1"), ("B", "2")], ""), "f514c207e1f69ab13b85826b692da264"),
        (host(&[("a", "1"), ("B", "2"), ("Authorization", first)], ""), "5ee0087b522aef613671c15fa84e1d51"),
    ];
    for (source, base) in cases {
        let id = ReplicationId::of(&spec(&source, "\"http://host/t\"", ""), &identity(), "");
        assert_eq!(id.base, base, "{source}");
    }
}

/// Numbers as in [`endpoints`]. CouchDB publishes no hashes for `winning_revs_only` and `since_seq`.
#[test]
fn options() {
    let code = "function(doc) { return true; }";
    let cases = [
        ("", "61dea2fb73ad4b0abe275070571bc281"),
        (",\"continuous\":true,\"create_target\":true,\"worker_processes\":1", "61dea2fb73ad4b0abe275070571bc281"),
        (",\"doc_ids\":[]", "aeb2266fdeb72a6c28c112200efc6f11"),
        (",\"filter\":\"d/f\"", "7db5a9e4bddc2ecfffe677079a6dbc9a"),
        (
            ",\"filter\":\"d/f\",\"query_params\":{\"b\":1,\"a\":[true,null,1.5,\"x\"]}",
            "acd7914cc88e4acdb5b983ffa5f7556f",
        ),
        (",\"filter\":\"_design\"", "7a306d14d3cbc60805beb36853c75145"),
        (",\"filter\":\"_view\",\"query_params\":{\"view\":\"d/v\"}", "2ab1c0364a1202fa4a38c879d27901bd"),
        (",\"selector\":{}", "010c9dd636b57c3e4dfc1ae02e908a91"),
        (",\"selector\":{\"n\":{\"$gt\":0},\"x\":\"y\"}", "afb6bca7dcb9fbc99b8b778b0c39bf3a"),
        (",\"winning_revs_only\":true", "b435eb3e1baf6f4b3c3db02800e9f6ed"),
        (",\"winning_revs_only\":false", "61dea2fb73ad4b0abe275070571bc281"),
        (",\"since_seq\":\"7-g1AAAA\"", "aad1c7064023dae018ec9d8b5334beae"),
        (",\"since_seq\":5", "d137cfcf20d29eda14d20e849c1ddcb0"),
        (",\"since_seq\":\"7-g1AAAA\",\"winning_revs_only\":true", "bf3110a771672836bfcc12096cf5dd8b"),
        (
            ",\"doc_ids\":[\"b%20c\",\"a\",\"a\"],\"since_seq\":\"7-g1AAAA\",\"winning_revs_only\":true",
            "c1c5f18d69eda9c3b1b6e9d14b9f0749",
        ),
    ];
    for (members, base) in cases {
        let id = ReplicationId::of(&spec("\"http://host/s\"", "\"http://host/t\"", members), &identity(), code);
        assert_eq!(id.base, base, "{members}");
    }
}

#[test]
fn older_versions_of_urls() {
    let target = "{\"url\":\"https://host:2/t?x=1\",\"headers\":{\"h\":\"v\"}}";
    let id = ReplicationId::of(&spec("\"http://u:p@host/s\"", target, ""), &identity(), "");
    let older =
        ["1feb41fb6207dc15ce36694280670ac5", "2ac49d2da61d35dda9a73793464da1b4", "45fd4df3961eefc70ddfb73526aae2c5"];
    assert_eq!(id.older, older);
}

#[test]
fn older_versions() {
    let id = ReplicationId::of(&spec(SOURCE, TARGET, ""), &identity(), "");
    let older =
        ["49479a2456e0354152d90442ae206ae9", "f7ce0e68955ec0a6352b9b187fea0857", "7b4603711da5ff412a9834ede676cdc6"];
    assert_eq!(id.older, older);
}

#[test]
fn differences_without_effect() {
    let base = |source: &str| ReplicationId::of(&spec(source, TARGET, ""), &identity(), "").base;
    let one = base("\"http://u:p@host/db/\"");
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
