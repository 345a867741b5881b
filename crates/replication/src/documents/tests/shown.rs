//! Documents without an active replication, and secrets in all positions of a document.

use settee_model::testing::Random;

use super::super::*;
use super::json;
use crate::testing::check_file;

const DOCUMENTS: [&str; 30] = [
    "{}",
    r#"{"source":"a","target":"b"}"#,
    r#"{"source":"http://u:SECRET@h:1/a","target":"https://h/b/"}"#,
    r#"{"source":{"url":"http://u:SECRET@h/a","headers":{"Authorization":"SECRET"}},"target":{"url":"b"}}"#,
    r#"{"source":{"uri":"x"},"target":{}}"#,
    r#"{"source":[],"target":null}"#,
    r#"{"source":"é\n\"","target":"\u0000"}"#,
    r#"{"source":"a","_replication_state":null}"#,
    r#"{"source":"a","_replication_state":5}"#,
    r#"{"source":"a","_replication_state":"triggered","_replication_state_time":"T"}"#,
    r#"{"source":"a","_replication_state":"error","_replication_state_time":"T","_replication_state_reason":"r"}"#,
    r#"{"source":"a","_replication_state":"Completed"}"#,
    r#"{"source":"a","target":"b","_replication_state":"completed"}"#,
    r#"{"source":"a","_replication_state":"completed","_replication_state_time":5}"#,
    r#"{"source":"a","_replication_state":"completed","_replication_stats":null}"#,
    r#"{"source":"a","_replication_state":"completed","_replication_stats":[1]}"#,
    r#"{"source":"a","_replication_state":"completed","_replication_stats":{}}"#,
    r#"{"source":"a","_replication_state":"completed","_replication_stats":{"start_time":"S"}}"#,
    r#"{"source":"a","_replication_state":"completed","_replication_stats":{"start_time":5,"x":[{"y":"z"}]}}"#,
    r#"{"source":"a","_replication_state":"completed","_replication_stats":{"docs_read":1,"start_time":"S","docs_written":2.50}}"#,
    r#"{"source":"a","_replication_state":"completed","_replication_state_reason":"not shown"}"#,
    r#"{"source":"a","_replication_state":"failed"}"#,
    r#"{"source":"a","_replication_state":"failed","_replication_state_time":"T"}"#,
    r#"{"source":"a","_replication_state":"failed","_replication_state_reason":""}"#,
    r#"{"source":"a","_replication_state":"failed","_replication_state_reason":"\"quoted\" and é\n"}"#,
    r#"{"source":"a","_replication_state":"failed","_replication_state_reason":{"error":"x"}}"#,
    r#"{"source":"a","_replication_state":"failed","_replication_stats":{"docs_read":1}}"#,
    r#"{"source":"http://u:SECRET/x@h/a","target":"http://SECRET@h/b?c=d@e","_replication_state":"failed"}"#,
    r#"{"source":"a","proxy":"http://p:SECRET@q","_replication_state":"completed"}"#,
    r#"{"source":"a","_replication_id":"abc","_replication_state":"completed"}"#,
];

#[test]
fn documents_at_rest_as_a_table() {
    let mut table = String::new();
    for document in DOCUMENTS {
        let state = resting("a/_replicator", "r \"1\"", json(document).value());
        let shown = String::from_utf8(state.json).unwrap();
        assert!(!shown.contains("SECRET"), "{shown}");
        assert!(STATES.contains(&state.state));
        assert_eq!(json(&shown).value().get("state").unwrap().to_text(), state.state);
        table.push_str(&format!("{document}\n    {shown}\n"));
    }
    check_file("resting.txt", &table);
}

const SECRET: &str = "GEHEIM";

fn endpoint(random: &mut Random) -> String {
    let url = match random.below(6) {
        0 => format!("http://u:{SECRET}@host/db"),
        1 => format!("https://{SECRET}@host:1/db/"),
        2 => format!("http://u:x@{SECRET}@host"),
        3 => format!("http://u:{SECRET}%40/x@host/db"),
        4 => format!("http://u:x/{SECRET}@host/db"),
        _ => "db".to_owned(),
    };
    if random.one_in(2) {
        return format!("\"{url}\"");
    }
    let mut members = vec![format!("\"url\":\"{url}\"")];
    if random.one_in(2) {
        members.push(format!("\"headers\":{{\"Authorization\":\"{SECRET}\",\"x\":\"{SECRET}\"}}"));
    }
    if random.one_in(2) {
        members.push(format!("\"auth\":{{\"basic\":{{\"username\":\"u\",\"password\":\"{SECRET}\"}}}}"));
    }
    members.push(format!("\"more\":{}", random.below(9_u64)));
    random.shuffle(&mut members);
    format!("{{{}}}", members.join(","))
}

#[test]
fn secrets_are_hidden_at_every_position() {
    let mut random = Random::new();
    for _ in 0..5_000 {
        let mut members = vec![
            format!("\"source\":{}", endpoint(&mut random)),
            format!("\"target\":{}", endpoint(&mut random)),
            "\"owner\":\"ann\"".to_owned(),
            "\"n\":[1.50,{\"source\":\"http://a:b@c\"}]".to_owned(),
        ];
        for proxy in ["proxy", "source_proxy", "target_proxy"] {
            if random.one_in(3) {
                members.push(format!("\"{proxy}\":\"socks5://u:{SECRET}@proxy:3128\""));
            }
        }
        if random.one_in(3) {
            members.push("\"_replication_state\":\"failed\"".to_owned());
        }
        random.shuffle(&mut members);
        let document = format!("{{{}}}", members.join(","));
        let parsed = json(&document);
        let mut out = Vec::new();
        write_without_credentials(&mut out, parsed.value());
        let shown = String::from_utf8(out).unwrap();
        assert!(!shown.contains(SECRET), "{document}\n{shown}");
        let names = |text: &str| json(text).value().members().map(|(name, _)| name.to_text()).collect::<Vec<_>>();
        assert_eq!(names(&shown), names(&document));
        assert!(shown.contains("\"n\":[1.50,{\"source\":\"http://a:b@c\"}]") && shown.contains("\"owner\":\"ann\""));
        let mut again = Vec::new();
        write_without_credentials(&mut again, json(&shown).value());
        assert_eq!(String::from_utf8(again).unwrap(), shown);
        let state = String::from_utf8(resting("_replicator", "r", parsed.value()).json).unwrap();
        assert!(!state.contains(SECRET), "{document}\n{state}");
    }
}
