//! Tests of views in languages other than JavaScript, from design document to query.

use settee_model::base64;

use crate::server::{Directory, Server};
use crate::{load, text};

const MODULE: &[u8] = include_bytes!("../../../wasm/tests/data/scores-rust.wasm");

fn scores(client: &mut crate::Client) {
    for (id, score, month) in [("a", 3, "01"), ("b", 4, "11"), ("c", 5, "01")] {
        let created = format!("2020-{month}-11T09:00:00Z");
        let body = format!(r#"{{"score":{score},"metadata":{{"createdAt":"{created}"}}}}"#);
        client.put(&format!("/db/{id}"), &body).expect(201);
    }
}

#[test]
fn a_module_is_attached_used_and_replaced() {
    let directory = Directory::new();
    let server = Server::start(&directory);
    let mut client = server.client();
    client.put("/db", "").expect(201);
    scores(&mut client);
    let design = r#"{"language":"wasm","views":{"v":{
        "map":"attachment:scores.wasm#by_month_map","reduce":"attachment:scores.wasm#sum_reduce"}}}"#;
    let rev = text(client.put("/db/_design/d", design).expect(201).json().value(), "rev");
    let missing = client.get("/db/_design/d/_view/v").expect(400);
    assert!(missing.text().contains("no attachment `scores.wasm`"), "{}", missing.text());
    let kind = [("Content-Type", "application/wasm")];
    let path = format!("/db/_design/d/scores.wasm?rev={rev}");
    client.request("PUT", &path, &kind, MODULE).unwrap().expect(201);
    let grouped = client.get("/db/_design/d/_view/v?group=true").expect(200).text();
    assert!(
        grouped.contains(r#"{"key":[2020,1],"value":8}"#) && grouped.contains(r#"{"key":[2020,11],"value":4}"#),
        "{grouped}"
    );
    let all = client.get("/db/_design/d/_view/v").expect(200).text();
    assert!(all.contains(r#"{"key":null,"value":12}"#), "{all}");
}

#[test]
fn invalid_modules_are_rejected_when_saved() {
    let directory = Directory::new();
    let server = Server::start(&directory);
    let mut client = server.client();
    client.put("/db", "").expect(201);
    let mut module = Vec::new();
    base64::encode(MODULE, &mut module);
    let module = String::from_utf8(module).unwrap();
    let design =
        |map: &str| format!(r#"{{"language":"wasm","views":{{"lib":{{"m":"{module}"}},"v":{{"map":"{map}"}}}}}}"#);
    for (map, reason) in
        [("function(doc) {}", "written as a module"), ("lib:n", "no member `n`"), ("lib:m#x", "no function `x`")]
    {
        let refused = client.put("/db/_design/d", &design(map)).expect(400).text();
        assert!(refused.contains(r#""error":"compilation_error""#) && refused.contains(reason), "{refused}");
    }
    client.put("/db/_design/d", &design("lib:m#by_month_map")).expect(201);
    load(&mut client, "/db", 3, 10);
    let empty = client.get("/db/_design/d/_view/v").expect(200).text();
    assert!(empty.contains(r#""total_rows":0"#), "{empty}");
}
