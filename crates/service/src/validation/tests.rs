//! Writes with validation functions: the arguments of the functions, the results of refusals, and the guarantee that
//! no update evades validation.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use settee_database::{DatabaseOptions, EditMode, Layout, Stored};
use settee_design::scripted::Scripted;
use settee_design::{CallError, Caller};
use settee_mango::MangoLanguage;
use settee_model::RevisionHasher;
use settee_model::json::{Json, Value};

use super::*;
use crate::tests::{json, services, show};

fn number(document: &[u8]) -> Option<u64> {
    Value::trusted(document).get("n")?.as_u64()
}

/// Evaluates a scripted validation function: `least 7`, `grow`, `show`, `forbid`, `login`, `fail`.
fn judge(rule: &str, arguments: &[&[u8]]) -> Result<Vec<u8>, CallError> {
    let [new, old, user, security] = arguments else { panic!("four arguments") };
    let accept = Ok(b"1".to_vec());
    match rule.split_once(' ').unwrap_or((rule, "")) {
        ("least", least) if number(new) >= least.parse().ok() => accept,
        ("least", least) => Err(CallError::Forbidden(format!("less than {least}").as_str().into())),
        ("grow", _) if number(old).is_none_or(|old| number(new) > Some(old)) => accept,
        ("grow", _) => Err(CallError::Forbidden("not grown".into())),
        ("login", _) => Err(CallError::Unauthorized("log in".into())),
        ("fail", _) => Err(CallError::Failed { name: "TypeError".to_owned(), reason: "x".to_owned() }),
        ("show", _) => {
            let seen = [new, old, user, security].map(|text| String::from_utf8_lossy(text).into_owned());
            Err(CallError::Forbidden(seen.join(" ").as_str().into()))
        }
        _ => Err(CallError::Forbidden("no".into())),
    }
}

struct World {
    writer: Arc<Writer>,
    database: Arc<Database>,
    calls: Arc<AtomicU64>,
    user: UserContext,
}

impl World {
    fn new() -> Self {
        let calls = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&calls);
        let words = Scripted::new(move |source, path, arguments| {
            assert_eq!(path, ["validate_doc_update"]);
            counted.fetch_add(1, Ordering::Relaxed);
            let rule = Value::trusted(&source.json).get("validate_doc_update").and_then(Value::as_str);
            judge(&rule.unwrap_or_default(), arguments)
        });
        let services = services(vec![Arc::new(words), Arc::new(MangoLanguage)]);
        let options = DatabaseOptions { created_ms: 0, instance: 7, layout: Layout::Whole, q: 1 };
        let database = services.catalog.create("db", options).unwrap();
        let user = UserContext { name: Some("jo".to_owned()), roles: vec!["editor".to_owned()] };
        Self { writer: services.writer, database, calls, user }
    }

    async fn write(&self, updates: Vec<DocUpdate>) -> Vec<Result<Rev, Error>> {
        self.writer.commit(&self.database, &self.user, &Caller::default(), updates).await.unwrap()
    }

    async fn save(&self, update: DocUpdate) -> Rev {
        self.write(vec![update]).await.remove(0).unwrap()
    }

    async fn refusal(&self, update: DocUpdate) -> String {
        show(&self.write(vec![update]).await.remove(0).unwrap_err())
    }

    fn calls(&self) -> u64 {
        self.calls.swap(0, Ordering::Relaxed)
    }
}

fn update(text: &str, mode: EditMode) -> DocUpdate {
    let document = Document::parse(json(text).value()).unwrap();
    let id = document.id.clone().unwrap();
    DocUpdate::prepare(id, document, mode, &mut RevisionHasher::default()).unwrap()
}

fn edit(text: &str) -> DocUpdate {
    update(text, EditMode::Interactive)
}

fn design(name: &str, rev: Option<&Rev>, rule: &str) -> DocUpdate {
    let rev = rev.map_or_else(String::new, |rev| format!("\"_rev\":\"{rev}\","));
    edit(&format!("{{\"_id\":\"_design/{name}\",{rev}\"validate_doc_update\":\"{rule}\"}}"))
}

#[tokio::test]
async fn refusals_are_errors_of_their_documents() {
    let world = World::new();
    world.save(design("rules", None, "least 5")).await;
    let replicated = |text: &str| update(text, EditMode::Replicated);
    let results = world
        .write(vec![
            edit(r#"{"_id":"a","n":5}"#),
            edit(r#"{"_id":"b","n":4}"#),
            replicated(r#"{"_id":"c","_rev":"1-c","n":9}"#),
            replicated(r#"{"_id":"d","_rev":"1-d"}"#),
            edit(r#"{"_id":"_local/e"}"#),
            edit(r#"{"_id":"_design/other"}"#),
        ])
        .await;
    let shown: Vec<String> =
        results.iter().map(|result| result.as_ref().map_or_else(show, |_| "ok".to_owned())).collect();
    let refused = "forbidden: less than 5";
    assert_eq!(shown, ["ok", refused, "ok", refused, "ok", "ok"]);
    world.save(design("a", None, "login")).await;
    assert_eq!(world.refusal(edit(r#"{"_id":"f"}"#)).await, "unauthorized: log in", "the first design document first");
    let fails = world.save(design("0", None, "fail")).await;
    assert_eq!(world.refusal(edit(r#"{"_id":"f"}"#)).await, "TypeError: x");
    world.save(edit(&format!(r#"{{"_id":"_design/0","_rev":"{fails}","_deleted":true}}"#))).await;
    assert_eq!(world.refusal(edit(r#"{"_id":"f"}"#)).await, "unauthorized: log in");
}

#[tokio::test]
async fn functions_see_both_documents_the_user_and_the_security_object() {
    let world = World::new();
    let first = world.save(edit(r#"{"_id":"a","n":1}"#)).await;
    let hash = &first.hash;
    let rules = world.save(design("rules", None, "show")).await;
    let user = r#"{"db":"db","name":"jo","roles":["editor"]}"#;
    let security = r#"{"members":{"roles":["_admin"]},"admins":{"roles":["_admin"]}}"#;
    let deletion = edit(&format!(r#"{{"_id":"a","_rev":"{first}","_deleted":true}}"#));
    let expected = format!(
        concat!(
            r#"forbidden: {{"_id":"a","_rev":"{0}","_deleted":true,"_revisions":{{"start":1,"ids":["{1}"]}}}} "#,
            r#"{{"_id":"a","_rev":"{0}","n":1,"_revisions":{{"start":1,"ids":["{1}"]}}}} {2} {3}"#
        ),
        first, hash, user, security
    );
    assert_eq!(world.refusal(deletion).await, expected);
    let refusal = world.refusal(update(r#"{"_id":"b","_rev":"1-b","x":2}"#, EditMode::Replicated)).await;
    let expected = r#"forbidden: {"_id":"b","_rev":"1-b","x":2,"_revisions":{"start":1,"ids":["b"]}} null "#;
    assert_eq!(refusal, format!("{expected}{user} {security}"));
    // An update that names no leaf conflicts before any function is called, and a stored revision is accepted without
    // a call.
    assert_eq!(world.calls(), 2);
    assert_eq!(world.refusal(edit(r#"{"_id":"a"}"#)).await, "Document update conflict.");
    world.save(update(&format!(r#"{{"_id":"a","_rev":"{first}"}}"#), EditMode::Replicated)).await;
    assert_eq!(world.calls(), 0);
    world.save(design("rules", Some(&rules), "grow")).await;
    let grown = world.save(edit(&format!(r#"{{"_id":"a","_rev":"{first}","n":2}}"#))).await;
    let same = edit(&format!(r#"{{"_id":"a","_rev":"{grown}","n":2}}"#));
    assert_eq!(world.refusal(same).await, "forbidden: not grown");
}

#[tokio::test]
async fn a_chain_of_revisions_in_one_request_is_asked_about_link_by_link() {
    let world = World::new();
    world.save(design("rules", None, "grow")).await;
    let link = |n: u64, value: u64| {
        let ids: Vec<String> = (1..=n).rev().map(|n| format!("\"{n}\"")).collect();
        let text = format!(r#"{{"_id":"a","_revisions":{{"start":{n},"ids":[{}]}},"n":{value}}}"#, ids.join(","));
        update(&text, EditMode::Replicated)
    };
    let results = world.write((1..=6).map(|n| link(n, if n == 5 { 4 } else { n })).collect()).await;
    let written: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(written, [true, true, true, true, false, true]);
}

#[tokio::test]
async fn a_selector_validates_beside_functions() {
    let world = World::new();
    let mango = |rev: Option<&Rev>, selector: &str| {
        let rev = rev.map_or_else(String::new, |rev| format!("\"_rev\":\"{rev}\","));
        edit(&format!(r#"{{"_id":"_design/m",{rev}"language":"query","validate_doc_update":{selector}}}"#))
    };
    let first = world.save(mango(None, r#"{"newDoc":{"n":{"$gt":0}}}"#)).await;
    let n1 = world.save(edit(r#"{"_id":"a","n":1}"#)).await;
    let refused = "forbidden: document is not valid";
    assert_eq!(world.refusal(edit(r#"{"_id":"b","n":0}"#)).await, refused);
    let replicated = update(r#"{"_id":"b","_rev":"1-b"}"#, EditMode::Replicated);
    assert_eq!(world.refusal(replicated).await, refused);
    world.save(design("rules", None, "grow")).await;
    let same = edit(&format!(r#"{{"_id":"a","_rev":"{n1}","n":1}}"#));
    assert_eq!(world.refusal(same).await, "forbidden: not grown");
    let second = world.save(mango(Some(&first), r#"{"$or":[{"oldDoc":null},{"oldDoc.n":2}]}"#)).await;
    assert_eq!(world.refusal(edit(&format!(r#"{{"_id":"a","_rev":"{n1}","n":9}}"#))).await, refused);
    world.save(edit(r#"{"_id":"b","n":0}"#)).await;
    let third = world.save(mango(Some(&second), r#"{"newDoc":{"$nosuch":1}}"#)).await;
    let refusal = world.refusal(edit(r#"{"_id":"c"}"#)).await;
    assert_eq!(refusal, "compilation_error: Invalid operator: $nosuch");
    world.save(edit(&format!(r#"{{"_id":"_design/m","_rev":"{third}","_deleted":true}}"#))).await;
    world.save(edit(r#"{"_id":"c"}"#)).await;
}

#[tokio::test]
async fn a_database_without_functions_calls_none_and_reads_nothing() {
    let world = World::new();
    world.save(edit(r#"{"_id":"a"}"#)).await;
    assert!(world.writer.validators.databases.lock().is_empty(), "design documents are not read");
    world.save(edit(r#"{"_id":"_design/views","views":{}}"#)).await;
    for id in ["b", "c"] {
        world.save(edit(&format!(r#"{{"_id":"{id}"}}"#))).await;
    }
    assert_eq!((world.calls(), world.writer.validators.databases.lock().len()), (0, 1));
    assert!(world.writer.validators.has_none(&world.database, world.database.design_seq()));
    world.writer.validators.forget(&world.database);
    assert!(world.writer.validators.databases.lock().is_empty());
}

fn body(view: &ReadView<'_>, stored: Stored) -> Json {
    let mut body = Vec::new();
    assert!(view.read_body(stored, &mut body).unwrap());
    Json::trusted(body)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_written_that_the_functions_of_its_moment_refuse() {
    let world = Arc::new(World::new());
    let done = Arc::new(AtomicBool::new(false));
    let accepted = Arc::new(AtomicU64::new(0));
    let mut rev = world.save(design("rules", None, "least 0")).await;
    let writers: Vec<_> = (0..8)
        .map(|writer: u64| {
            let (world, done, accepted) = (Arc::clone(&world), Arc::clone(&done), Arc::clone(&accepted));
            tokio::spawn(async move {
                let mut number = writer;
                while !done.load(Ordering::Acquire) {
                    number += 8;
                    let text = format!(r#"{{"_id":"{writer}-{number}","n":{}}}"#, number * 7919 % 100);
                    let is_written = world.write(vec![edit(&text)]).await.remove(0).is_ok();
                    accepted.fetch_add(u64::from(is_written), Ordering::AcqRel);
                }
            })
        })
        .collect();
    for round in 0..150u64 {
        rev = world.save(design("rules", Some(&rev), &format!("least {}", round * 37 % 90))).await;
        tokio::task::yield_now().await;
    }
    while accepted.load(Ordering::Acquire) < 100 {
        tokio::task::yield_now().await;
    }
    done.store(true, Ordering::Release);
    for writer in writers {
        writer.await.unwrap();
    }
    let written = accepted.load(Ordering::Acquire);
    let view = world.database.read().unwrap();
    let rules = view.record("_design/rules").unwrap().unwrap();
    let rules: Vec<(u64, u64)> = rules
        .tree
        .nodes()
        .iter()
        .map(|node| {
            let stored = node.value.unwrap();
            let rule = body(&view, stored).value().get("validate_doc_update").unwrap().as_str().unwrap().into_owned();
            (stored.body_seq, rule.trim_start_matches("least ").parse().unwrap())
        })
        .collect();
    let mut changes = view.changes(0, Direction::Forward).unwrap();
    let mut checked = 0;
    while let Some(change) = changes.next().unwrap() {
        if change.id.starts_with("_design/") {
            continue;
        }
        let n = number(body(&view, change.stored).as_bytes()).unwrap();
        let (_, least) = rules.iter().rfind(|(seq, _)| *seq < change.seq).unwrap();
        assert!(n >= *least, "{} was written with {n} under {least}", change.id);
        checked += 1;
    }
    assert_eq!(checked, written);
}
