//! Names that only some crates may use ([`RULES`]): rules that keep the layers separate.

use std::collections::BTreeSet;

use super::finding::{Finding, Severity};
use super::manifest::{self, Kind};
use super::tokens::{self, Token};
use super::tree::{Tree, is_test_file};

struct Rule {
    name: &'static str,
    packages: &'static [&'static str],
    /// Sequences of tokens that sources must not contain.
    phrases: &'static [&'static [&'static str]],
    crates: AllowedCrates,
    tests: Tests,
    /// The reason, and the alternative.
    advice: &'static str,
}

enum AllowedCrates {
    Only(&'static [&'static str]),
    /// All crates except these.
    AllBut(&'static [&'static str]),
    None,
}

#[derive(PartialEq, Eq)]
enum Tests {
    Exempt,
    Included,
}

const RULES: &[Rule] = &[
    Rule {
        name: "key-value-library",
        packages: &["rocksdb", "librocksdb-sys", "slatedb"],
        phrases: &[&["rocksdb"], &["librocksdb_sys"], &["slatedb"]],
        crates: AllowedCrates::Only(&["storage-rocksdb", "storage-bucket"]),
        tests: Tests::Included,
        advice: "only an engine crate names a key-value library: go through the traits of `storage`",
    },
    Rule {
        name: "database-client",
        packages: &["tokio-postgres", "postgres", "postgres-types", "postgres-protocol"],
        phrases: &[&["tokio_postgres"], &["postgres_types"], &["postgres_protocol"]],
        crates: AllowedCrates::Only(&["storage-postgres"]),
        tests: Tests::Included,
        advice: "only an engine crate names a client of a database: go through the traits of `storage`",
    },
    Rule {
        name: "javascript-engine",
        packages: &["rquickjs", "rquickjs-core", "rquickjs-sys"],
        phrases: &[&["rquickjs"], &["rquickjs_core"], &["rquickjs_sys"]],
        crates: AllowedCrates::Only(&["js"]),
        tests: Tests::Included,
        advice: "only `js` names a JavaScript engine: go through `Language` and `Program` of `design`",
    },
    Rule {
        name: "http",
        packages: &["hyper", "hyper-util", "http", "http-body", "http-body-util", "axum", "tower", "reqwest", "ureq"],
        phrases: &[&["hyper"], &["hyper_util"], &["http_body_util"], &["StatusCode"], &["HeaderMap"]],
        crates: AllowedCrates::Only(&["edge", "api", "replication", "bench"]),
        tests: Tests::Included,
        advice: "only `edge`, `api`, `replication` and `bench` use status codes, headers and query strings: return a value or an \
                 error enum, and let `api` turn it into a response",
    },
    Rule {
        name: "async",
        packages: &["tokio", "tokio-util", "futures", "futures-util", "async-trait"],
        phrases: &[&["tokio"], &["async"], &["await"]],
        crates: AllowedCrates::AllBut(&[
            "model",
            "storage",
            "storage-rocksdb",
            "auth",
            "design",
            "js",
            "process",
            "database",
            "views",
            "e2e",
            "xtask",
        ]),
        tests: Tests::Included,
        advice: "the core is synchronous (docs/adr/01-layers-and-async.md): block here, and let `api` call \
                 through its bridge",
    },
    Rule {
        name: "clock",
        packages: &[],
        phrases: &[&["SystemTime", "::", "now"], &["Instant", "::", "now"]],
        crates: AllowedCrates::Only(&["server", "admin", "bench", "e2e", "xtask", "native"]),
        tests: Tests::Exempt,
        advice: "only `server` and `admin` read the clock: take the time, or a function that returns it, as an argument",
    },
    Rule {
        name: "environment",
        packages: &[],
        phrases: &[&["std", "::", "env"], &["env", "::"]],
        crates: AllowedCrates::Only(&["server", "admin", "bench", "e2e", "xtask"]),
        tests: Tests::Exempt,
        advice: "only `server` and `admin` read the environment: take the setting as an argument",
    },
    Rule {
        name: "entropy",
        packages: &["getrandom", "rand", "fastrand", "uuid"],
        phrases: &[&["getrandom"], &["fastrand"]],
        crates: AllowedCrates::Only(&["server", "admin", "bench"]),
        tests: Tests::Exempt,
        advice: "only `server` and `admin` draw random bytes: take them, or a function that gives them, as an argument",
    },
    Rule {
        name: "serde-json",
        packages: &["serde_json"],
        phrases: &[&["serde_json"]],
        crates: AllowedCrates::Only(&["bench"]),
        tests: Tests::Exempt,
        advice: "it changes numbers and member order (docs/adr/02-json-as-text.md): use `settee_model::json`",
    },
    Rule {
        name: "durable",
        packages: &[],
        phrases: &[
            &["fs", "::", "write"],
            &["fs", "::", "rename"],
            &["File", "::", "create"],
            &["File", "::", "create_new"],
            &["create_new", "(", "true"],
            &["fs", "::", "create_dir"],
            &["create_dir_all"],
        ],
        crates: AllowedCrates::Only(&["bench", "e2e", "xtask"]),
        tests: Tests::Exempt,
        advice: "a file that is written like this may be empty or gone after a power loss: use `settee_storage::durable`",
    },
    Rule {
        name: "unfinished",
        packages: &[],
        phrases: &[&["todo", "!"], &["unimplemented", "!"]],
        crates: AllowedCrates::None,
        tests: Tests::Included,
        advice: "finish it, or omit it and list it in COMPAT.md",
    },
    Rule {
        name: "ignored-test",
        packages: &[],
        phrases: &[&["#", "[", "ignore", "]"]],
        crates: AllowedCrates::None,
        tests: Tests::Included,
        advice: "an ignored test needs a reason: `#[ignore = \"why\"]`; better, assert what happens today",
    },
];

impl Rule {
    fn applies_to(&self, name: &str) -> bool {
        match self.crates {
            AllowedCrates::Only(crates) => !crates.contains(&name),
            AllowedCrates::AllBut(crates) => crates.contains(&name),
            AllowedCrates::None => true,
        }
    }

    fn finding(&self, path: &str, line: usize, label: &str) -> Finding {
        let message = format!("uses `{label}`; {}", self.advice);
        Finding { severity: Severity::Error, rule: self.name, path: path.to_owned(), line, message }
    }
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, manifest) in tree.manifests() {
        let path = format!("crates/{name}/Cargo.toml");
        for dependency in manifest::dependencies(manifest) {
            let for_tests = dependency.kind == Kind::Dev;
            let rules =
                RULES.iter().filter(|rule| rule.applies_to(name) && !(for_tests && rule.tests == Tests::Exempt));
            for rule in rules.filter(|rule| rule.packages.contains(&dependency.name.as_str())) {
                findings.push(rule.finding(&path, dependency.line, &dependency.name));
            }
        }
    }
    let test_modules = test_modules(tree);
    for (name, path, text) in tree.sources() {
        let all = tokens::tokens(text);
        let product = if is_test_file(path) || test_modules.iter().any(|module| path.starts_with(module)) {
            Vec::new()
        } else {
            tokens::without_tests(&all).0
        };
        for rule in RULES.iter().filter(|rule| rule.applies_to(name)) {
            let searched = if rule.tests == Tests::Exempt { &product } else { &all };
            findings.extend(matches(rule, searched).map(|(line, label)| rule.finding(path, line, &label)));
        }
    }
    findings
}

fn matches(rule: &Rule, tokens: &[Token<'_>]) -> impl Iterator<Item = (usize, String)> {
    let mut lines = BTreeSet::new();
    (0..tokens.len())
        .filter_map(|at| {
            let phrase = rule.phrases.iter().find(|phrase| tokens::starts_with(&tokens[at..], phrase))?;
            Some((tokens[at].line, phrase.concat()))
        })
        .filter(move |(line, _)| lines.insert(*line))
        .collect::<Vec<_>>()
        .into_iter()
}

/// Path prefixes of modules that are compiled for tests only.
fn test_modules(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for (_, path, text) in tree.sources() {
        let all = tokens::tokens(text);
        let folder = match path.rsplit_once('/') {
            Some((folder, "lib.rs" | "main.rs" | "mod.rs")) => folder,
            _ => path.trim_end_matches(".rs"),
        };
        for module in tokens::without_tests(&all).1 {
            found.push(format!("{folder}/{module}.rs"));
            found.push(format!("{folder}/{module}/"));
        }
    }
    found
}
