//! Responses in pieces are equivalent to complete responses; truncated responses are errors.

use http::Response;
use settee_model::json::Json;
use settee_model::testing::Random;
use settee_wire::multipart::Event;

use super::Scripted;
use crate::peer::changes::{ChangesQuery, Feed};
use crate::peer::documents::MissingRevs;
use crate::peer::open_revs::OpenRevsItem;
use crate::peer::{Peer, PeerError};
use crate::spec::Filter;
use crate::testing::{in_pieces, spec};
use crate::transport::full_body;

fn peer(content_type: &'static str, text: &'static str, lengths: Vec<usize>) -> Peer {
    let scripted = Scripted::new(move |_, _| {
        let (mut left, mut pieces) = (bytes::Bytes::from_static(text.as_bytes()), Vec::new());
        for length in lengths.iter().cycle() {
            if left.is_empty() {
                break;
            }
            pieces.push(left.split_to((*length).clamp(1, left.len())));
        }
        let body = in_pieces(pieces, std::time::Duration::ZERO, true);
        Ok(Response::builder().header("content-type", content_type).body(body).unwrap())
    });
    scripted.peer("\"http://host/db\"")
}

async fn feed(peer: &Peer, continuous: bool) -> Result<Vec<String>, PeerError> {
    let query = ChangesQuery::of(&spec("a", "b", if continuous { "\"continuous\":true" } else { "" }));
    let mut feed = peer.changes(&query, &Json::trusted(b"0".to_vec())).await?;
    let mut message = Vec::new();
    while let Some(row) = feed.next().await? {
        message.push(String::from_utf8_lossy(&row).into_owned());
    }
    if query.feed == Feed::Normal {
        let (last, pending) = feed.end()?;
        message.push(format!("{} {pending:?}", String::from_utf8_lossy(last.as_bytes())));
    }
    Ok(message)
}

async fn bulk_get(peer: &Peer) -> Result<Vec<String>, PeerError> {
    let wanted = [MissingRevs {
        id: Json::trusted(b"\"x\"".to_vec()),
        revs: vec!["1-a".to_owned()],
        possible_ancestors: Vec::new(),
    }];
    let mut answer = peer.bulk_get(&wanted).await?.unwrap();
    let mut message = Vec::new();
    while let Some(bulk_get_row) = answer.next().await? {
        let documents: Vec<_> =
            bulk_get_row.documents.iter().map(|document| String::from_utf8_lossy(document)).collect();
        message.push(format!(
            "{} {} {}",
            String::from_utf8_lossy(&bulk_get_row.id),
            documents.join(" & "),
            bulk_get_row.errors
        ));
    }
    Ok(message)
}

async fn open_revs(peer: &Peer) -> Result<Vec<String>, PeerError> {
    let mut answer = peer.open_revs("x", "1-a", &[]).await?;
    let mut message = Vec::new();
    while let Some(arriving) = answer.next().await? {
        match arriving {
            OpenRevsItem::Document(document) => message.push(String::from_utf8_lossy(&document).into_owned()),
            OpenRevsItem::Missing => message.push("missing".to_owned()),
            OpenRevsItem::Related => loop {
                match answer.related().await? {
                    Event::Part(head) => message.push(format!("part {:?}: ", head.filename())),
                    Event::Data(bytes) => message.last_mut().unwrap().push_str(&String::from_utf8_lossy(&bytes)),
                    Event::PartEnd => message.last_mut().unwrap().push('.'),
                    Event::End => break,
                }
            },
        }
    }
    Ok(message)
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Normal,
    Continuous,
    BulkGet,
    OpenRevs,
}

async fn message(kind: Kind, peer: &Peer) -> Result<Vec<String>, PeerError> {
    match kind {
        Kind::Normal => feed(peer, false).await,
        Kind::Continuous => feed(peer, true).await,
        Kind::BulkGet => bulk_get(peer).await,
        Kind::OpenRevs => open_revs(peer).await,
    }
}

const JSON: &str = "application/json";

const ANSWERS: [(Kind, &str, &str, &[&str]); 5] = [
    (
        Kind::Normal,
        JSON,
        "{\"results\":[\r\n{\"seq\":\"1-]}\",\"id\":\"a\\\"]}\\\\\",\"changes\":[{\"rev\":\"1-a\"},{\"rev\":\"1-b\"}]}\n,\n{\"seq\":2,\"id\":\"\u{e9}\u{1f600}\",\"changes\":[]}],\n\"last_seq\":[2,\"g[\"],\"pending\":3}\n",
        &[
            "{\"seq\":\"1-]}\",\"id\":\"a\\\"]}\\\\\",\"changes\":[{\"rev\":\"1-a\"},{\"rev\":\"1-b\"}]}",
            "{\"seq\":2,\"id\":\"\u{e9}\u{1f600}\",\"changes\":[]}",
            "[2,\"g[\"] Some(3)",
        ],
    ),
    (
        Kind::Continuous,
        JSON,
        "\n\n{\"seq\":1,\"id\":\"}\\\\\"}\n\n{\"seq\":2,\"id\":\"{\",\"deleted\":true}\r\n{\"last_seq\":2}\n",
        &["{\"seq\":1,\"id\":\"}\\\\\"}", "{\"seq\":2,\"id\":\"{\",\"deleted\":true}", "{\"last_seq\":2}"],
    ),
    (
        Kind::BulkGet,
        JSON,
        "{\"results\": [{\"id\":\"x\",\"docs\":[{\"ok\":{\"_id\":\"x\",\"n\":[\"]}\",{}]}},{\"error\":{\"rev\":\"2-b\"}}]},\n{\"docs\":[ { \"ok\" : {} } ],\"id\":\"y\"},{}]}",
        &["\"x\" {\"_id\":\"x\",\"n\":[\"]}\",{}]} 1", "\"y\" {} 0", "  0"],
    ),
    (
        Kind::OpenRevs,
        JSON,
        "[{\"ok\":{\"_id\":\"x\",\"s\":\"]\\\"\"}},{\"missing\":\"1-b\"},{\"ok\":{}}]",
        &["{\"_id\":\"x\",\"s\":\"]\\\"\"}", "missing", "{}"],
    ),
    (
        Kind::OpenRevs,
        "multipart/mixed; boundary=\"out er\"",
        "before\r\n--out er\r\nContent-Type: application/json\r\n\r\n{\"a\":\"\\r\\n--out er\"}\r\n--out er\r\n\
         Content-Type: multipart/related; boundary=in\r\n\r\n--in\r\nContent-Type: application/json\r\n\r\n{\"b\":1}\r\n--in\r\n\
         Content-Disposition: attachment; filename=\"n\"\r\n\r\nbytes\r\n--i\r\n-\r\n--in\r\n\
         Content-Disposition: attachment; filename=\"m\"\r\n\r\n\r\n--in--\r\n--out er\r\n\
         Content-Type: application/json; error=\"true\"\r\n\r\n{\"missing\":\"1-c\"}\r\n--out er--\r\nbehind",
        &[
            "{\"a\":\"\\r\\n--out er\"}",
            "part None: {\"b\":1}.",
            "part Some(\"n\"): bytes\r\n--i\r\n-.",
            "part Some(\"m\"): .",
            "missing",
        ],
    ),
];

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn pieces_of_any_length() {
    let mut random = Random::new();
    for (kind, content_type, text, expected) in ANSWERS {
        for length in 1..=text.len() {
            let found = message(kind, &peer(content_type, text, vec![length])).await;
            assert_eq!(found.as_deref(), Ok(&owned(expected)[..]), "{kind:?} in pieces of {length}");
        }
        for at in 1..text.len() {
            let found = message(kind, &peer(content_type, text, vec![at, text.len()])).await;
            assert_eq!(found.as_deref(), Ok(&owned(expected)[..]), "{kind:?} cut at {at}");
        }
        for _ in 0..100 {
            let lengths: Vec<usize> = (0..8).map(|_| 1 + random.below(9_usize)).collect();
            let found = message(kind, &peer(content_type, text, lengths.clone())).await;
            assert_eq!(found.as_deref(), Ok(&owned(expected)[..]), "{kind:?} in pieces of {lengths:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn answers_that_end_anywhere() {
    for (kind, content_type, text, expected) in ANSWERS {
        let whole = owned(expected);
        let needed = text.trim_end_matches(['\n', '\r']).trim_end_matches("behind").trim_end().len();
        for end in 0..needed {
            let scripted = Scripted::new(move |_, _| {
                let bytes = bytes::Bytes::from_static(&text.as_bytes()[..end]);
                Ok(Response::builder().header("content-type", content_type).body(full_body(bytes)).unwrap())
            });
            let found = message(kind, &scripted.peer("\"http://host/db\"")).await;
            match (kind, found) {
                (Kind::Continuous, Ok(rows)) => assert_eq!(rows[..], whole[..rows.len()], "cut at {end}"),
                (Kind::BulkGet, Ok(rows)) if end == 0 => assert_eq!(rows.len(), 0),
                (_, Ok(rows)) => panic!("{kind:?} cut at {end}: {rows:?}"),
                (_, Err(_)) => {}
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn feeds() {
    let members = [
        "",
        "\"continuous\":true",
        "\"connection_timeout\":1",
        "\"winning_revs_only\":true",
        "\"doc_ids\":[]",
        "\"doc_ids\":[\"b\",\"a\",\"b\",\"\\\"\\\\\",\"%C3%A9\",\"%zz\"]",
        "\"selector\":{}",
        "\"selector\":{\"a\":{\"$in\":[1,\"]}\"]}}",
        "\"filter\":\"d/f\"",
        "\"filter\":\"d/f/g\"",
        "\"filter\":\"\u{e9}/ &=\"",
        "\"filter\":\"_design\"",
        "\"filter\":\"_nosuch\"",
        "\"filter\":\"_view\",\"query_params\":{\"view\":\"d/v\"}",
        "\"filter\":\"_view\",\"query_params\":{\"view\":\"d/v\",\"key\":\"x\",\"startkey\":[1],\"other\":\"x\"}",
        "\"filter\":\"d/f\",\"query_params\":{\"key\":\"x\",\"n\":1.50,\"null\":null,\"list\":[1, 2],\"a b\":\"c&d=e\"}",
        "\"filter\":\"d/f\",\"query_params\":{\"feed\":\"x\",\"since\":9,\"style\":\"x\",\"heartbeat\":1,\"filter\":\"x\",\"limit\":1,\"timeout\":1,\"limits\":2}",
        "\"query_params\":{\"a\":1}",
        "\"doc_ids\":[\"a\"],\"query_params\":{\"a\":1}",
        "\"selector\":{\"a\":1},\"query_params\":{\"a\":1},\"continuous\":true,\"winning_revs_only\":true",
    ];
    let mut table = String::new();
    for members in members {
        let scripted = Scripted::new(|_, _| Ok(Response::new(full_body("{\"results\":[],\"last_seq\":0}"))));
        let query = ChangesQuery::of(&spec("a", "b", members));
        let since = Json::trusted(b"[5,\"g1 &\"]".to_vec());
        scripted.peer("\"http://host/db\"").changes(&query, &since).await.unwrap();
        let asked = scripted.log.lock().join(" ").replace("http://host/db/_changes", "");
        table.push_str(&format!("{members}\n    {asked}\n"));
    }
    crate::testing::check_file("feeds.txt", &table);
    let mut spec = spec("a", "b", "");
    spec.filter = Filter::AllButDesign;
    let query = ChangesQuery::of(&spec);
    for (row, keeps) in [
        ("{\"id\":\"_design/d\"}", false),
        ("{\"id\":\"_design\"}", true),
        ("{\"id\":\"a\",\"x\":{\"id\":\"_design/d\"}}", true),
        ("{\"seq\":1,\"id\":\"_design/\"}", false),
        ("{}", true),
    ] {
        assert_eq!(query.keeps(row.as_bytes()), keeps, "{row}");
    }
}
