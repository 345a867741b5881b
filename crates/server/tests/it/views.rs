//! Tests of views: the input of map functions, the order of rows, the permitted results of reduce functions.

use crate::server::{Directory, Server};
use crate::{Client, load, save};

/// Two losing revisions of the document `a`; one of them is a deletion.
const LOSERS: &str = r#"{"new_edits":false,"docs":[
    {"_id":"a","_rev":"1-b","v":1},{"_id":"a","_rev":"1-a","v":2},{"_id":"a","_rev":"1-0","_deleted":true}]}"#;

fn start(directory: &Directory) -> (Server, Client) {
    let server = Server::start(directory);
    let mut client = server.client();
    client.put("/db", "").expect(201);
    (server, client)
}

fn rows(client: &mut Client, path: &str) -> Vec<String> {
    let text = client.get(path).expect(200).text();
    let rows = text.lines().skip(1).map(|line| line.trim_end_matches(',').to_owned());
    rows.take_while(|line| line != "]}").filter(|line| !line.is_empty()).collect()
}

fn design(client: &mut Client, name: &str, map: &str, language: &str) {
    let map = map.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let body = format!(r#"{{"language":"{language}","views":{{"v":{{"map":"{map}"}}}}}}"#);
    save(client, &format!("/db/_design/{name}"), &body);
}

#[test]
fn map_functions_see_conflicts_as_they_come_and_go() {
    let directory = Directory::new();
    let python = format!("python3 -S -E {}/../process/tests/it/server.py", env!("CARGO_MANIFEST_DIR"));
    directory.configure(&format!("[query_servers]\npython = {python}\n"));
    let (_server, mut client) = start(&directory);
    let native = "function(doc) { if (doc._conflicts || doc._deleted_conflicts) \
                  emit(doc._id, [doc._conflicts, doc._deleted_conflicts]); }";
    let engine = "function(doc) { function* seen() { yield doc; } for (var d of seen()) { \
                  if (d._conflicts || d._deleted_conflicts) emit(d._id, [d._conflicts, d._deleted_conflicts]); } }";
    design(&mut client, "native", native, "javascript");
    design(&mut client, "engine", engine, "javascript");
    let coffee = "(doc) -> emit doc._id, [doc._conflicts, doc._deleted_conflicts] \
                  if doc._conflicts or doc._deleted_conflicts";
    design(&mut client, "coffee", coffee, "coffeescript");
    let python = "def f(doc):\n    if '_conflicts' in doc or '_deleted_conflicts' in doc:\n        \
                  yield doc['_id'], [doc.get('_conflicts'), doc.get('_deleted_conflicts')]\n";
    design(&mut client, "python", python, "python");
    for (name, engines) in [("native", "native"), ("engine", "quickjs")] {
        let info = client.get(&format!("/db/_design/{name}/_info")).expect(200).text();
        assert!(info.contains(&format!(r#""engines":{{"v":"{engines}"}}"#)), "{info}");
    }
    let check = |client: &mut Client, expected: &[&str]| {
        for name in ["native", "engine", "coffee", "python"] {
            let rows = rows(client, &format!("/db/_design/{name}/_view/v"));
            assert_eq!(rows, expected, "{name}");
        }
    };
    check(&mut client, &[]);
    client.post("/db/_bulk_docs", LOSERS).expect(201);
    check(&mut client, &[r#"{"id":"a","key":"a","value":[["1-a"],["1-0"]]}"#]);
    client.delete("/db/a?rev=1-a").expect(200);
    let loser = client.get("/db/a?deleted_conflicts=true").expect(200).json();
    let deleted = loser.value().get("_deleted_conflicts").unwrap().raw().to_vec();
    let deleted = String::from_utf8(deleted).unwrap();
    check(&mut client, &[&format!(r#"{{"id":"a","key":"a","value":[null,{deleted}]}}"#)]);
    let purged = format!(r#"{{"a":{deleted}}}"#);
    client.post("/db/_purge", &purged).expect(201);
    check(&mut client, &[]);
}

#[test]
fn a_mango_index_has_the_conflicts_of_documents() {
    let directory = Directory::new();
    let (_server, mut client) = start(&directory);
    client.post("/db/_bulk_docs", LOSERS).expect(201);
    save(&mut client, "/db/b", "{}");
    let query = r#"{"selector":{"_conflicts":{"$gt":null}},"conflicts":true,"execution_stats":true,"fields":["_id"]}"#;
    let found = |client: &mut Client| client.post("/db/_find", query).expect(200).text();
    assert!(found(&mut client).contains(r#"{"_id":"a"}"#), "{}", found(&mut client));
    client.post("/db/_index", r#"{"index":{"fields":["_conflicts"]},"ddoc":"i","name":"i"}"#).expect(200);
    let indexed = found(&mut client);
    assert!(indexed.contains(r#"{"_id":"a"}"#) && !indexed.contains("warning"), "{indexed}");
}

#[test]
fn filters_and_shows_see_the_conflicts_that_couchdb_shows_them() {
    let directory = Directory::new();
    let (_server, mut client) = start(&directory);
    client.post("/db/_bulk_docs", LOSERS).expect(201);
    let function = "function(doc, req) { return !!doc._conflicts; }";
    let show = "function(doc) { return JSON.stringify(doc._conflicts || null); }";
    save(&mut client, "/db/_design/d", &format!(r#"{{"filters":{{"f":"{function}"}},"shows":{{"s":"{show}"}}}}"#));
    assert_eq!(client.get("/db/_design/d/_show/s/a").expect(200).text(), r#"["1-a"]"#);
    for (query, is_seen) in [("", false), ("&conflicts=true", true), ("&style=all_docs", false)] {
        let changes = client.get(&format!("/db/_changes?filter=d/f{query}")).expect(200).text();
        assert_eq!(changes.contains(r#""id":"a""#), is_seen, "{query}: {changes}");
    }
}

#[test]
fn rows_of_one_document_with_equal_keys_are_in_the_order_of_their_values() {
    let directory = Directory::new();
    let (_server, mut client) = start(&directory);
    let values = r#"["b","a",[1],{"x":1},true,null,false,10,2]"#;
    save(&mut client, "/db/a", &format!(r#"{{"values":{values}}}"#));
    save(&mut client, "/db/b", r#"{"values":[2,1]}"#);
    let sorted = ["2", "10", "false", "null", "true", r#"{"x":1}"#, "[1]", r#""a""#, r#""b""#];
    for (name, map) in [
        ("native", "function(doc) { for (var i in doc.values) emit('k', doc.values[i]); }"),
        (
            "engine",
            "function(doc) { function* all() { yield* doc.values; } for (var value of all()) emit('k', value); }",
        ),
    ] {
        design(&mut client, name, map, "javascript");
        let row = |id: &str, value: &str| format!(r#"{{"id":"{id}","key":"k","value":{value}}}"#);
        let of_a: Vec<String> = sorted.iter().map(|value| row("a", value)).collect();
        let of_b = vec![row("b", "1"), row("b", "2")];
        let (ascending, descending) = ([of_a.clone(), of_b.clone()].concat(), [of_b, of_a].concat());
        let path = format!("/db/_design/{name}/_view/v");
        assert_eq!(rows(&mut client, &path), ascending, "{name}");
        assert_eq!(rows(&mut client, &format!("{path}?descending=true")), descending, "{name}");
        for skip in 0..ascending.len() {
            let page = |order| format!("{path}?skip={skip}&limit=2{order}");
            let end = ascending.len().min(skip + 2);
            assert_eq!(rows(&mut client, &page("")), ascending[skip..end], "{name} {skip}");
            assert_eq!(rows(&mut client, &page("&descending=true")), descending[skip..end], "{name} {skip}");
        }
    }
}

#[test]
fn a_reduction_that_grows_is_an_error_of_its_row_until_the_limit_is_switched_off() {
    let directory = Directory::new();
    let (_server, mut client) = start(&directory);
    load(&mut client, "/db", 3_000, 10);
    let reduce = "function(keys, values, rereduce) { return rereduce ? [].concat.apply([], values) : values; }";
    save(
        &mut client,
        "/db/_design/d",
        &format!(r#"{{"views":{{"v":{{"map":"function(doc) {{ emit(doc._id, doc._id); }}","reduce":"{reduce}"}}}}}}"#),
    );
    let overflow = rows(&mut client, "/db/_design/d/_view/v");
    assert!(
        overflow.len() == 1
            && overflow[0].starts_with(
                r#"{"key":null,"error":"reduce_overflow_error","reason":"Reduce output must shrink more rapidly"#
            ),
        "{overflow:?}"
    );
    client.put("/_node/_local/_config/query_server_config/reduce_limit", "\"false\"").expect(200);
    save(
        &mut client,
        "/db/_design/e",
        &format!(r#"{{"views":{{"v":{{"map":"function(doc) {{ emit(doc._id, doc._id) }}","reduce":"{reduce}"}}}}}}"#),
    );
    let grown = rows(&mut client, "/db/_design/e/_view/v");
    assert!(grown.len() == 1 && grown[0].contains("d002999"), "{grown:?}");
}

#[test]
fn a_source_that_starts_with_a_built_in_reduce_is_one() {
    let directory = Directory::new();
    let (_server, mut client) = start(&directory);
    load(&mut client, "/db", 10, 1);
    for (name, reduce, expected) in
        [("a", r"_sum\n", "45"), ("b", "_sum ", "45"), ("c", "_counted", "10"), ("d", "_statsorama", r#"{"sum":45"#)]
    {
        let body = format!(r#"{{"views":{{"v":{{"map":"function(doc) {{ emit(1, doc.n) }}","reduce":"{reduce}"}}}}}}"#);
        save(&mut client, &format!("/db/_design/{name}"), &body);
        let rows = rows(&mut client, &format!("/db/_design/{name}/_view/v"));
        assert!(rows[0].starts_with(&format!(r#"{{"key":null,"value":{expected}"#)), "{reduce}: {rows:?}");
    }
}

#[test]
fn a_plus_in_an_address_is_decoded_as_configured() {
    let directory = Directory::new();
    let (_server, mut client) = start(&directory);
    let setting = "/_node/_local/_config/chttpd/decode_plus_to_space";
    save(&mut client, "/db/a+b", "{}");
    client.put(setting, "\"false\"").expect(200);
    save(&mut client, "/db/a+b", "{}");
    let ids = rows(&mut client, "/db/_all_docs");
    assert!(ids.len() == 2 && ids[0].contains(r#""id":"a b""#) && ids[1].contains(r#""id":"a+b""#), "{ids:?}");
    assert!(rows(&mut client, "/db/_all_docs?key=%22a+b%22")[0].contains(r#""id":"a b""#));
}
