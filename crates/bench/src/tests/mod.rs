//! Tests of whole runs against a small server in memory, correct or not.

#![expect(clippy::unwrap_used, reason = "tests")]

mod fake;

use crate::{Program, run};
use clap::Parser as _;
use fake::{Fake, Honesty};
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;

fn bench(words: &[&str]) -> anyhow::Result<ExitCode> {
    let words = std::iter::once("bench").chain(words.iter().copied());
    run(Program::parse_from(words).args)
}

struct TestFile(PathBuf);

impl TestFile {
    fn new(name: &str) -> TestFile {
        TestFile(std::env::temp_dir().join(format!("bench-test-{}-{name}", std::process::id())))
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&std::fs::read(&self.0).unwrap()).unwrap()
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn check(honesty: Honesty, words: &str, expected: ExitCode, failure: &str) {
    let fake = Fake::start(honesty);
    let json = TestFile::new(&format!("{}.json", fake.port()));
    let url = format!("http://admin:pw@127.0.0.1:{}", fake.port());
    let mut all: Vec<&str> = words.split(' ').collect();
    all.extend(["--url", &url, "--json", json.0.to_str().unwrap()]);
    let code = bench(&all).unwrap();
    let found = json.json();
    assert_eq!(code, expected, "{words}: {found:#}");
    let failures = found["failures"].to_string();
    assert!(failures.contains(failure), "{words}: {failure} in {failures}");
    assert_eq!(fake.databases(), Vec::<String>::new(), "{words}");
    assert_eq!(fake.unauthorized(), 0, "{words}");
}

#[test]
fn right_answers_succeed() {
    for words in [
        "load --docs 300 --batches 1,7,1000 --clients 2",
        "load --docs 300 --batches 100 --size 200 --most-requests 2",
        "index --docs 400 --documents small --languages javascript,erlang --sample-ms 1",
        "index --big-docs 20 --documents big,big-tail --languages javascript",
        "writes --seconds 0.05 --clients 3 --hot 2 --shared",
    ] {
        check(Honesty::Honest, words, ExitCode::SUCCESS, "[]");
    }
}

#[test]
fn proofs_are_measured_and_nothing_is_left_of_them() {
    let fake = Fake::start(Honesty::Honest);
    let (url, json) = (format!("http://admin:pw@127.0.0.1:{}", fake.port()), TestFile::new("auth.json"));
    let words = ["auth", "--seconds", "0.3", "--clients", "2", "--users", "30", "--wrong-passwords", "400"];
    let code = bench(&[&words[..], &["--url", &url, "--json", json.0.to_str().unwrap()]].concat()).unwrap();
    let found = json.json();
    assert_eq!(code, ExitCode::SUCCESS, "{found:#}");
    let cells = found["tables"][0]["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 6);
    for cell in cells {
        assert!(cell["figures"][1]["values"][0][0].as_f64().unwrap() > 0.0, "{cell}");
    }
    assert_eq!(fake.leftovers(), (0, 0));
}

#[test]
fn each_request_has_a_floor() {
    let fake = Fake::start(Honesty::Honest);
    let (url, json) = (format!("http://admin:pw@127.0.0.1:{}", fake.port()), TestFile::new("requests.json"));
    let (pid, directory) = (std::process::id().to_string(), std::env::temp_dir());
    let words = ["requests", "--docs", "30", "--requests", "2", "--clients", "2", "--url", &url, "--server-pid", &pid];
    let files = ["--dir", directory.to_str().unwrap(), "--json", json.0.to_str().unwrap()];
    let code = bench(&[&words[..], &files].concat()).unwrap();
    let found = json.json();
    assert_eq!(code, ExitCode::SUCCESS, "{found:#}");
    for cell in found["tables"][0]["cells"].as_array().unwrap() {
        let figures = cell["figures"].as_array().unwrap();
        let names: Vec<&str> = figures.iter().map(|figure| figure["metric"].as_str().unwrap()).collect();
        assert_eq!(names, ["median", "p99", "processor", "switches", "floor", "over floor"], "{cell}");
        assert!(figures.iter().all(|figure| figure["values"][0][0].as_f64().is_some()), "{cell}");
    }
    assert_eq!(fake.databases(), Vec::<String>::new());
}

#[test]
fn rows_of_engines_are_measured_where_there_are_several() {
    for (honesty, measured) in [(Honesty::Honest, vec!["javascript"]), (Honesty::SeveralEngines, LANGUAGES.to_vec())] {
        for before in [None, Some("true")] {
            let fake = Fake::start(honesty);
            if let Some(before) = before {
                fake.set("query_server_config/native_evaluator", before);
            }
            let (url, json) = (format!("http://admin:pw@127.0.0.1:{}", fake.port()), TestFile::new("engines.json"));
            let languages = LANGUAGES.join(",");
            let words = ["index", "--docs", "40", "--documents", "small", "--languages", &languages, "--url", &url];
            let code = bench(&[&words[..], &["--json", json.0.to_str().unwrap()]].concat()).unwrap();
            let found = json.json();
            assert_eq!(code, ExitCode::SUCCESS, "{found:#}");
            for cell in found["tables"][0]["cells"].as_array().unwrap() {
                let language = cell["cell"].as_str().unwrap().split(',').next().unwrap();
                let has_figures = cell["figures"].as_array().is_some_and(|figures| !figures.is_empty());
                assert_eq!(has_figures, measured.contains(&language), "{honesty:?}: {cell}");
            }
            assert_eq!(fake.setting("query_server_config/native_evaluator").as_deref(), before, "{honesty:?}");
        }
    }
}

const LANGUAGES: [&str; 3] = ["javascript", "quickjs", "wasm"];

#[test]
fn wrong_answers_fail() {
    for (honesty, words, failure) in [
        (Honesty::WrongSum, "index --docs 50 --documents small --languages javascript", "wrong answer: row"),
        (Honesty::LosesDocument, "load --docs 50 --batches 10 --ids random", "wrong answer: doc_count is 49"),
        (Honesty::LosesDocument, "writes --seconds 0.05 --clients 2", "wrong answer: doc_count"),
        (Honesty::ChangesDocument, "load --docs 50 --batches 10 --ids random", "sent was"),
    ] {
        check(honesty, words, ExitCode::FAILURE, failure);
    }
}

#[test]
fn two_servers_are_compared_pair_by_pair() {
    let (one, two) = (Fake::start(Honesty::Honest), Fake::start(Honesty::Honest));
    let (json, page) = (TestFile::new("vs.json"), TestFile::new("vs.html"));
    let urls = [&one, &two].map(|fake| format!("http://admin:pw@127.0.0.1:{}", fake.port()));
    let code = bench(&[
        "load",
        "--docs",
        "100",
        "--batches",
        "10,50",
        "--url",
        &urls[0],
        "--vs",
        &urls[1],
        "--runs",
        "2",
        "--json",
        json.0.to_str().unwrap(),
        "--report",
        page.0.to_str().unwrap(),
    ]);
    assert_eq!(code.unwrap(), ExitCode::SUCCESS);
    let found = json.json();
    assert_eq!(found["servers"].as_array().unwrap().len(), 2);
    let cells = found["tables"][0]["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 4);
    for cell in cells {
        assert_eq!(cell["figures"][0]["values"][1].as_array().unwrap().len(), 2);
        assert_eq!(cell["figures"][0]["ratios"]["pairs"].as_array().unwrap().len(), 2);
    }
    let page = std::fs::read_to_string(&page.0).unwrap();
    assert!(page.contains("A: sequential ids") && page.contains("B: random ids"));
    assert!(!page.contains("admin:pw"), "credentials in a report");
}

#[test]
fn a_server_that_is_not_there_is_an_error() {
    let port = Fake::start(Honesty::Honest).port();
    let error = bench(&["load", "--url", "https://127.0.0.1"]).unwrap_err().to_string();
    assert!(error.contains("https is not supported"), "{error}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let free = listener.local_addr().unwrap().port();
    drop(listener);
    assert_ne!(free, port);
    let error = bench(&["load", "--url", &format!("http://127.0.0.1:{free}")]).unwrap_err().to_string();
    assert!(error.contains("cannot reach"), "{error}");
}
