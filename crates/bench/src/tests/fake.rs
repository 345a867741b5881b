//! A minimal CouchDB for tests of the benchmarks, which can return wrong responses.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Honesty {
    Honest,
    SeveralEngines,
    WrongSum,
    LosesDocument,
    ChangesDocument,
}

pub(super) struct Fake {
    port: u16,
    state: Arc<Mutex<State>>,
}

struct State {
    honesty: Honesty,
    databases: BTreeMap<String, BTreeMap<String, Value>>,
    settings: BTreeMap<String, Value>,
    unauthorized: usize,
}

impl Fake {
    pub(super) fn start(honesty: Honesty) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State {
            honesty,
            databases: BTreeMap::new(),
            settings: BTreeMap::new(),
            unauthorized: 0,
        }));
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = shared.clone();
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        Fake { port, state }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn databases(&self) -> Vec<String> {
        self.state.lock().unwrap().databases.keys().cloned().collect()
    }

    pub(super) fn leftovers(&self) -> (usize, usize) {
        let state = self.state.lock().unwrap();
        let users = state.databases.get("_users").into_iter().flat_map(BTreeMap::values);
        (state.settings.len(), users.filter(|user| user["_deleted"] != true).count())
    }

    pub(super) fn set(&self, setting: &str, value: &str) {
        self.state.lock().unwrap().settings.insert(setting.into(), value.into());
    }

    pub(super) fn setting(&self, setting: &str) -> Option<String> {
        self.state.lock().unwrap().settings.get(setting).and_then(Value::as_str).map(str::to_owned)
    }

    pub(super) fn unauthorized(&self) -> usize {
        self.state.lock().unwrap().unauthorized
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut writer = stream;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let mut words = line.split(' ');
        let (method, target) = (words.next()?.to_string(), words.next()?.to_string());
        let (mut length, mut authorized) = (0, false);
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            let header = header.trim().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            authorized |= header.starts_with("authorization: basic ");
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let (status, answer) = {
            let mut state = state.lock().unwrap();
            state.unauthorized += usize::from(!authorized);
            state.answer(&method, &target, serde_json::from_slice(&body).unwrap_or_default())
        };
        let text = format!("{answer}\n");
        let head =
            format!("HTTP/1.1 {status} x\r\nSet-Cookie: AuthSession=x; Path=/\r\nContent-Length: {}", text.len());
        let body: &str = if method == "HEAD" { "" } else { &text };
        write!(writer, "{head}\r\n\r\n{body}").ok()?;
    }
}

impl State {
    fn answer(&mut self, method: &str, target: &str, body: Value) -> (u16, Value) {
        let path = target.split('?').next().unwrap().trim_start_matches('/').to_string();
        let parts: Vec<&str> = path.split('/').collect();
        match (method, &parts[..]) {
            ("GET", [""]) => (200, json!({"couchdb": "Welcome", "version": "0", "vendor": {"name": "Fake"}})),
            ("POST", ["_session"]) => (200, json!({"ok": true})),
            ("GET", ["_session"]) => (401, json!({"error": "unauthorized"})),
            ("PUT", ["_node", "_local", "_config", section, key]) => {
                let old = self.settings.insert(format!("{section}/{key}"), body);
                (200, old.unwrap_or_else(|| json!("")))
            }
            ("DELETE", ["_node", "_local", "_config", section, key]) => {
                (200, self.settings.remove(&format!("{section}/{key}")).unwrap_or_default())
            }
            ("GET", ["_active_tasks"]) => (200, json!([])),
            ("PUT", [name]) => {
                self.databases.insert((*name).into(), BTreeMap::new());
                (201, json!({"ok": true}))
            }
            ("DELETE", [name]) => match self.databases.remove(*name) {
                Some(_) => (200, json!({"ok": true})),
                None => missing(),
            },
            ("POST", [_, "_view_test"]) if self.honesty == Honesty::SeveralEngines => {
                let setting = self.settings.get("query_server_config/native_evaluator");
                let native = setting.is_none_or(|setting| setting != "false");
                (200, json!({"engine": if native { "native" } else { "quickjs" }, "rows": []}))
            }
            (_, [name, rest @ ..]) => {
                let honesty = self.honesty;
                if *name == "_users" {
                    self.databases.entry("_users".into()).or_default();
                }
                match self.databases.get_mut(*name) {
                    Some(documents) => in_database(documents, honesty, method, rest, body),
                    None => missing(),
                }
            }
            _ => missing(),
        }
    }
}

fn missing() -> (u16, Value) {
    (404, json!({"error": "not_found", "reason": "missing"}))
}

fn in_database(
    documents: &mut BTreeMap<String, Value>,
    honesty: Honesty,
    method: &str,
    rest: &[&str],
    body: Value,
) -> (u16, Value) {
    match (method, rest) {
        ("GET", []) => {
            let lost = usize::from(honesty == Honesty::LosesDocument);
            (200, json!({"doc_count": documents.len() - lost, "update_seq": "0-x", "sizes": {"file": 1000}}))
        }
        ("POST", ["_bulk_docs"]) => {
            let rows = body["docs"].as_array().unwrap().iter().map(|document| {
                let id = document["_id"].as_str().unwrap().to_string();
                write(documents, &id, document.clone()).1
            });
            (201, Value::Array(rows.collect()))
        }
        ("GET", ["_all_docs"]) => {
            let rows = documents.iter().map(|(id, document)| json!({"id": id, "value": {"rev": document["_rev"]}}));
            (200, json!({"rows": rows.collect::<Vec<_>>()}))
        }
        ("PUT", ["_design", _]) if body["language"].as_str().is_none_or(|language| language == "javascript") => {
            (201, json!({"ok": true}))
        }
        ("PUT", ["_design", _]) if body["language"] == "wasm" && honesty == Honesty::SeveralEngines => {
            let module = body["views"]["lib"]["scores"].as_str().unwrap();
            assert!(module.starts_with("AGFzbQEAAA"), "{}", &module[..20]);
            (201, json!({"ok": true}))
        }
        ("PUT", ["_design", _]) => (400, json!({"error": "unknown_query_language"})),
        ("GET", ["_design", _, "_view", "tenRows"]) => (200, json!({"total_rows": documents.len() * 10, "rows": []})),
        ("GET", ["_design", _, "_view", "scoresByMonth"]) => (200, sums(documents, honesty)),
        ("GET", ["_design", _, "_view" | "_show", ..]) | ("GET" | "POST", ["_changes"]) => (200, json!({"rows": []})),
        ("POST", ["_design", _, "_update", ..] | ["_index" | "_find" | "_bulk_get"]) => (200, json!({"ok": true})),
        ("GET" | "PUT", [_, "file"]) => (201, json!({"ok": true})),
        ("DELETE", [id]) => (200, json!({"ok": documents.remove(*id).is_some()})),
        ("PUT", [id]) => write(documents, id, body),
        ("GET" | "HEAD", [id]) => match documents.get(*id) {
            Some(document) => {
                let mut document = document.clone();
                if honesty == Honesty::ChangesDocument {
                    document["score"] = json!(-1);
                }
                (200, document)
            }
            None => missing(),
        },
        _ => missing(),
    }
}

fn write(documents: &mut BTreeMap<String, Value>, id: &str, mut document: Value) -> (u16, Value) {
    let current = documents.get(id).map_or(Value::Null, |document| document["_rev"].clone());
    if document["_rev"] != current {
        return (409, json!({"error": "conflict"}));
    }
    let generation: u64 = current.as_str().map_or(0, |rev| rev.split('-').next().unwrap().parse().unwrap());
    let rev = format!("{}-x", generation + 1);
    document["_id"] = json!(id);
    document["_rev"] = json!(rev);
    documents.insert(id.into(), document);
    (201, json!({"ok": true, "id": id, "rev": rev}))
}

fn sums(documents: &BTreeMap<String, Value>, honesty: Honesty) -> Value {
    let mut sums: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for document in documents.values() {
        let date = document["metadata"]["createdAt"].as_str().unwrap();
        let key = (date[..4].parse().unwrap(), date[5..7].parse().unwrap());
        *sums.entry(key).or_default() += document["score"].as_u64().unwrap();
    }
    if honesty == Honesty::WrongSum {
        *sums.values_mut().next_back().unwrap() += 1;
    }
    let rows = sums.into_iter().map(|((year, month), sum)| json!({"key": [year, month], "value": sum}));
    json!({"rows": rows.collect::<Vec<_>>()})
}
