//! Tests of the rules on small invented trees.

use super::manifest::{self, Kind};
use super::tokens;
use super::*;

fn sound() -> Tree {
    let mut tree = Tree::default();
    let mut architecture = String::new();
    let mut limits = String::from("docs 0 0 250\nnovel 0 0 250\n");
    for (name, imports) in edges::imports() {
        let mut manifest = String::from("[package]\nversion.workspace = true\n[dependencies]\n");
        for import in imports {
            manifest.push_str(&format!("settee-{import}.workspace = true\n"));
        }
        tree.insert(&format!("crates/{name}/Cargo.toml"), &manifest);
        tree.insert(&format!("crates/{name}/src/lib.rs"), "//! A crate.\n");
        limits.push_str(&format!("{name} 0 0 250\n"));
        let cell = match name {
            "server" => "everything".to_owned(),
            _ if imports.is_empty() => "-".to_owned(),
            _ => imports.join(", "),
        };
        architecture.push_str(&format!("| `{name}` | something | {cell} |\n"));
    }
    tree.insert("ARCHITECTURE.md", &architecture);
    tree.insert(language::FILE, &limits);
    tree
}

#[track_caller]
fn check_with(changes: &[(&str, &str)], expected: &[&str]) {
    let mut tree = sound();
    for (path, text) in changes {
        tree.insert(path, text);
    }
    let found: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
    let agree = found.len() == expected.len()
        && found.iter().zip(expected).all(|(finding, expectation)| finding.starts_with(expectation));
    assert!(agree, "expected {expected:#?}, found {found:#?}");
}

#[test]
fn a_sound_tree_has_no_findings() {
    check_with(&[], &[]);
}

#[test]
fn a_new_edge_is_found() {
    let manifest = "[dependencies]\nsettee-model.workspace = true\nsettee-views = { path = \"../views\" }\n";
    check_with(
        &[("crates/design/Cargo.toml", manifest)],
        &["error[edge] crates/design/Cargo.toml:3: `design` must not import `views`. Move the code"],
    );
    let renamed = "[dependencies]\nv = { package = \"settee-views\", path = \"../views\" }\n";
    check_with(&[("crates/design/Cargo.toml", renamed)], &["error[edge] crates/design/Cargo.toml:2: `design`"]);
}

#[test]
fn tests_may_import_the_crates_of_their_column() {
    let tests = "[dependencies]\n[dev-dependencies]\nsettee-js.workspace = true\n";
    check_with(&[("crates/views/Cargo.toml", tests)], &[]);
    let product = "[dependencies]\nsettee-js.workspace = true\n";
    check_with(&[("crates/views/Cargo.toml", product)], &["error[edge] crates/views/Cargo.toml:2: `views`"]);
    check_with(&[("crates/model/Cargo.toml", tests)], &["error[edge] crates/model/Cargo.toml:3: `model`"]);
}

#[test]
fn a_new_crate_is_found() {
    check_with(
        &[("crates/novel/Cargo.toml", "[package]\n"), ("crates/novel/src/lib.rs", "//! Novel.\n")],
        &["error[edge] crates/novel/Cargo.toml: `novel` is a new crate. Add a row for it"],
    );
}

#[test]
fn the_architecture_page_is_compared() {
    let page = sound().text("ARCHITECTURE.md").unwrap_or_default().replacen(
        "| model, design, native, threads |",
        "| model |",
        1,
    );
    check_with(&[("ARCHITECTURE.md", &page)], &["error[edge] ARCHITECTURE.md:16: says that `js` imports model,"]);
    let page = page.replace("| `js` | something | model |\n", "");
    check_with(&[("ARCHITECTURE.md", &page)], &["error[edge] ARCHITECTURE.md: has no line about the crate `js`"]);
}

#[test]
fn cycles_of_files_are_found() {
    let cycle = |modules: &[(&str, &str)], expected: &[&str]| {
        let files: Vec<(String, String)> = modules
            .iter()
            .map(|(name, uses)| (format!("crates/model/src/{name}.rs"), format!("//! A module.\n{uses}\n")))
            .collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        check_with(&files, expected);
    };
    let three =
        [("a", "use crate::b::B;"), ("b", "use crate::{Error, c::{D, E}};"), ("c/inner", "fn f() { crate::a::f() }")];
    cycle(&three, &[]);
    let found =
        "error[import-cycle] crates/model/src: 4 files import each other in a cycle, at most 3 may: a, b, c, d.";
    let d = ("d", "use super::a::A;");
    cycle(&[three[0], three[1], ("c", "use crate::d;"), d], &[found]);
    cycle(&[three[0], three[1], ("c", "#[cfg(test)]\nmod tests { use crate::d; }"), d], &[]);
    cycle(&[three[0], three[1], ("c", "// crate::d"), ("c/tests", "use crate::d;"), d], &[]);
    cycle(&[three[0], three[1], ("c", ""), ("c/inner", "use super::d;"), d], &[]);
    let root = ("lib", "mod d;\npub use d::Shared;");
    cycle(&[three[0], three[1], ("c", "use crate::Shared;"), d, root], &[found]);
}

#[test]
fn forbidden_packages_are_found() {
    let cases: &[(&str, &str, Option<&str>)] = &[
        ("views", "[dependencies]\nrocksdb = \"1\"\n", Some("key-value-library")),
        ("storage-rocksdb", "[dependencies]\nrocksdb = \"1\"\n", None),
        ("views", "[dependencies.rquickjs]\nversion = \"1\"\n", Some("javascript-engine")),
        ("js", "[dependencies]\nrquickjs = \"1\"\n", None),
        ("server", "[dependencies]\nhyper = \"1\"\n", Some("http")),
        ("bench", "[dependencies]\nhyper = \"1\"\n", None),
        ("database", "[dependencies]\ntokio = { version = \"1\" }\n", Some("async")),
        ("api", "[dependencies]\ntokio = { version = \"1\" }\n", None),
        ("api", "[dependencies]\nserde_json = \"1\"\n", Some("serde-json")),
        ("api", "[dev-dependencies]\nserde_json = \"1\"\n", None),
        ("model", "[target.'cfg(unix)'.dependencies]\ngetrandom = \"1\"\n", Some("entropy")),
    ];
    for (name, manifest, rule) in cases {
        let path = format!("crates/{name}/Cargo.toml");
        let expected = rule.map(|rule| format!("error[{rule}] {path}"));
        check_with(&[(&path, manifest)], &expected.as_deref().into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn forbidden_names_are_found() {
    let cases: &[(&str, &str, Option<&str>)] = &[
        ("views/src/a.rs", "use rocksdb::DB;", Some("key-value-library")),
        ("server/src/a.rs", "use settee_storage_rocksdb::open;", None),
        ("views/src/a.rs", "// as rocksdb does\nconst A: &str = \"rocksdb\";", None),
        ("database/src/a.rs", "async fn f() {}", Some("async")),
        ("api/src/a.rs", "async fn f() {}", None),
        ("views/src/a.rs", "fn f() { let t = std::time::Instant::now(); }", Some("clock")),
        ("views/src/a.rs", "fn f() { SystemTime :: now(); }", Some("clock")),
        ("server/src/a.rs", "fn f() { Instant::now(); }", None),
        ("views/tests/it/main.rs", "fn f() { Instant::now(); }", None),
        ("views/examples/a.rs", "fn f() { Instant::now(); }", None),
        ("views/src/a/tests.rs", "fn f() { Instant::now(); }", None),
        ("views/src/a.rs", "#[cfg(test)]\n#[expect(x)]\nmod tests { fn f() { Instant::now(); } }", None),
        ("views/src/a.rs", "#[cfg(not(test))]\nfn f() { Instant::now(); }", Some("clock")),
        ("views/src/a.rs", "#[cfg(test)] use a::B; fn f() { Instant::now(); }", Some("clock")),
        ("views/src/a.rs", "use std::{env, fs}; fn f() { env::var(\"A\"); }", Some("environment")),
        ("views/src/a.rs", "const A: &str = env!(\"CARGO_PKG_VERSION\");", None),
        ("database/src/a.rs", "fn f(s: StatusCode) {}", Some("http")),
        ("model/src/a.rs", "#[cfg(test)] mod t { fn f() { serde_json::json!(1); } }", None),
        ("model/src/a.rs", "fn f() { serde_json::json!(1); }", Some("serde-json")),
        ("server/src/a.rs", "fn f() { todo!() }", Some("unfinished")),
        ("server/src/a.rs", "#[cfg(test)] mod t { #[ignore] fn f() {} }", Some("ignored-test")),
        ("server/src/a.rs", "#[cfg(test)] mod t { #[ignore = \"slow disks\"] fn f() {} }", None),
    ];
    for (path, code, rule) in cases {
        let path = format!("crates/{path}");
        let expected = rule.map(|rule| format!("error[{rule}] {path}"));
        check_with(&[(&path, &format!("//! Head.\n{code}\n"))], &expected.as_deref().into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn a_module_declared_for_tests_only_is_test_code() {
    let naive = ("crates/model/src/rev_tree/naive.rs", "//! Head.\nfn f() { Instant::now(); }\n");
    check_with(&[naive, ("crates/model/src/rev_tree.rs", "//! Head.\n#[cfg(test)]\nmod naive;\n")], &[]);
    check_with(
        &[naive, ("crates/model/src/rev_tree.rs", "//! Head.\nmod naive;\n")],
        &["error[clock] crates/model/src/rev_tree/naive.rs:2: uses `Instant::now`; only `server` and"],
    );
}

#[test]
fn long_files_are_found() {
    let lines = |count: usize| format!("//! Head.\n{}", "\n".repeat(count - 1));
    let path = "crates/model/src/a.rs";
    check_with(&[(path, &lines(600))], &[]);
    check_with(&[(path, &lines(601))], &["warning[file-length] crates/model/src/a.rs: 601 lines"]);
    check_with(&[(path, &lines(901))], &["error[file-length] crates/model/src/a.rs: 901 lines"]);
    check_with(&[("crates/model/src/a/tests.rs", &lines(700))], &[]);
    check_with(&[("crates/model/tests/it/main.rs", &lines(901))], &["error[file-length]"]);
}

#[test]
fn files_start_with_their_purpose() {
    check_with(
        &[("crates/model/src/a.rs", "fn f() {}\n")],
        &["error[module-head] crates/model/src/a.rs:1: must start"],
    );
    check_with(&[("crates/model/build.rs", "fn main() {}\n")], &[]);
}

#[test]
fn exceptions_need_a_reason_and_a_use() {
    let clock = ("crates/js/src/worker/run.rs", "//! Head.\nfn f() { Instant::now(); }\n");
    let exact = "clock crates/js/src/worker/run.rs the deadline is kept inside the worker\n";
    let below = "# Workers.\n\nclock crates/js/src/worker/ the deadline is kept inside the worker\n";
    check_with(&[clock, (allowed::FILE, exact)], &[]);
    check_with(&[clock, (allowed::FILE, below)], &[]);
    check_with(
        &[clock, (allowed::FILE, "clock crates/js/src/worker/run.rs\n")],
        &["error[clock]", "error[exception] crates/xtask/tidy-allow.txt:1: a line must be"],
    );
    check_with(&[(allowed::FILE, exact)], &["error[exception] crates/xtask/tidy-allow.txt:1: this exception"]);
}

#[test]
fn named_tests_exist() {
    let source = ("crates/model/src/a/tests.rs", "//! Tests.\nfn it_holds() {}\n");
    let page = |text| ("docs/page.md", text);
    check_with(&[source, page("`a/tests.rs::it_holds`, `tests.rs::it_holds`\n")], &[]);
    let expected = "error[test-reference] docs/page.md:2: a/tests.rs has no test it_held";
    check_with(&[source, page("\n`a/tests.rs::it_held`\n")], &[expected]);
    let expected = "error[test-reference] docs/page.md:1: b/tests.rs has no test it_holds";
    check_with(&[source, page("`b/tests.rs::it_holds`\n")], &[expected]);
}

#[test]
fn links_lead_to_pages_and_headings() {
    let other = ("docs/sub/other.md", "# The `a` & b\n\n## Twice\n\n## Twice\n\n```\n# code\n```\n");
    let page = |text| ("docs/page.md", text);
    let valid =
        "[a](sub/other.md) [b](sub/other.md#the-a--b) [c](sub/other.md#twice-1) [d](https://host/x.md#y) [e](x.png)\n";
    check_with(&[other, page(valid)], &[]);
    check_with(&[other, page("[a](other.md)\n")], &["error[link] docs/page.md:1: docs/other.md does not exist"]);
    let expected = "error[link] docs/page.md:2: docs/sub/other.md has no heading #code";
    check_with(&[other, page("\n[a](sub/other.md#code)\n")], &[expected]);
    let summary = ("docs/SUMMARY.md", "- [Page](page.md)\n");
    check_with(&[other, page("Text\n"), summary], &["error[link] docs/sub/other.md: docs/SUMMARY.md must list"]);
}

#[test]
fn only_errors_fail() {
    let mut tree = sound();
    tree.insert("crates/model/src/a.rs", &format!("//! Head.\n{}", "\n".repeat(700)));
    assert!(holds(&check(&tree)));
    tree.insert("crates/model/src/b.rs", "fn f() {}\n");
    assert!(!holds(&check(&tree)));
}

#[test]
fn manifests_are_read() {
    let text = "[package]\nname = \"x\"\n[dependencies]\na.workspace = true\nb = { version = \"1\", package = \"c\" }\n\
                # d = \"1\"\n[dev-dependencies]\ne = \"1\"\n[build-dependencies]\nf = \"1\"\n\
                [dependencies.g]\nversion = \"1\"\nfeatures = [\"x\"]\n[target.'cfg(unix)'.dev-dependencies]\nh = \"1\"\n\
                [lints]\nworkspace = true\n";
    let found: Vec<_> = manifest::dependencies(text).into_iter().map(|found| (found.name, found.kind)).collect();
    let expected = [
        ("a", Kind::Normal),
        ("c", Kind::Normal),
        ("e", Kind::Dev),
        ("f", Kind::Normal),
        ("g", Kind::Normal),
        ("h", Kind::Dev),
    ];
    assert_eq!(found, expected.map(|(name, kind)| (name.to_owned(), kind)));
}

#[test]
fn sources_are_split_into_tokens() {
    let cases: &[(&str, &[&str])] = &[
        ("a::b_1", &["a", "::", "b_1"]),
        ("x /* y /* z */ */ w // v", &["x", "w"]),
        ("f(\"a \\\" b\", r#\"c \" d\"#, b\"e\")", &["f", "(", "\"", ",", "\"", ",", "\"", ")"]),
        ("fn f<'a>(c: &'a str) { '\"' }", &["fn", "f", "<", "a", ">", "(", "c", ":", "&", "a", "str", ")", "{", "}"]),
        ("['\\'', '\\\\', '\\u{1F600}', 'é']", &["[", ",", ",", ",", "]"]),
        ("r#type", &["r", "#", "type"]),
    ];
    for (source, expected) in cases {
        let found: Vec<&str> = tokens::tokens(source).iter().map(|token| token.text).collect();
        assert_eq!(&found, expected, "{source}");
    }
    let lines: Vec<usize> = tokens::tokens("a\n\"b\nc\"\nd /*\n*/ e").iter().map(|token| token.line).collect();
    assert_eq!(lines, [1, 2, 4, 5]);
}
