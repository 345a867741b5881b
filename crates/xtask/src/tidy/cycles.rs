//! Import cycles between the modules of a crate ([`check`]). A module is a file or folder at the top of `src`.
//!
//! The modules of a cycle can only be understood together, so cycles must stay small. [`GROWN`] lists the crates with
//! larger cycles: these numbers may only decrease.

use std::collections::{BTreeMap, BTreeSet};

use super::tokens::{self, Token};
use super::tree::{Tree, is_test_file};
use super::{Finding, Severity};

const RULE: &str = "import-cycle";
const HERE: &str = "crates/xtask/src/tidy/cycles.rs";

const MODULES_MAX: usize = 3;

/// Crates with a larger cycle, with its number of modules.
const GROWN: &[(&str, usize)] = &[("mango", 4), ("storage-rocksdb", 5)];

type Imports<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Imports<'_>> = BTreeMap::new();
    for (name, path, text) in tree.sources() {
        let Some(inside) = path.split_once("/src/").map(|(_, inside)| inside) else { continue };
        let module = inside.split('/').next().unwrap_or_default().trim_end_matches(".rs");
        if is_test_file(path) || ["lib", "main", "bin", "testing", "tests"].contains(&module) {
            continue;
        }
        let (product, _) = tokens::without_tests(&tokens::tokens(text));
        let imports = imported(&product, inside);
        crates.entry(name).or_default().entry(module).or_default().extend(imports);
    }
    crates.iter().flat_map(|(name, imports)| finding(name, imports)).collect()
}

fn finding(name: &str, imports: &Imports<'_>) -> Option<Finding> {
    let circle = largest_circle(imports);
    let grown = GROWN.iter().find(|(grown, _)| *grown == name);
    let most = grown.map_or(MODULES_MAX, |(_, most)| *most);
    let modules = circle.join(", ");
    if circle.len() > most {
        let message = format!(
            "{} modules import each other in a circle, at most {most} may: {modules}. Move what they share into a \
             module that imports none of them",
            circle.len()
        );
        return Some(Finding {
            severity: Severity::Error,
            rule: RULE,
            path: format!("crates/{name}/src"),
            line: 0,
            message,
        });
    }
    if grown.is_some() && circle.len() < most && imports.len() >= most {
        let message = format!("the largest circle of `{name}` has {} modules now: lower its number", circle.len());
        return Some(Finding { severity: Severity::Warning, rule: RULE, path: HERE.to_owned(), line: 0, message });
    }
    None
}

/// The modules at the top of the crate that a file names by `crate::`, or by `super::` in a file at the top itself.
fn imported<'a>(tokens: &[Token<'a>], inside: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    for at in 0..tokens.len() {
        let is_root = tokens[at].text == "crate" || tokens[at].text == "super" && !inside.contains('/');
        if is_root && text(tokens, at + 1) == "::" {
            match text(tokens, at + 2) {
                "{" => found.extend(first_segments(&tokens[at + 3..])),
                module => drop(found.insert(module)),
            }
        }
    }
    found
}

/// The first segment of each path up to the brace that closes the group.
fn first_segments<'a>(tokens: &[Token<'a>]) -> Vec<&'a str> {
    let (mut found, mut depth, mut is_first) = (Vec::new(), 0_usize, true);
    for token in tokens {
        match token.text {
            "{" => depth += 1,
            "}" if depth == 0 => break,
            "}" => depth -= 1,
            "," if depth == 0 => is_first = true,
            segment => {
                if std::mem::take(&mut is_first) {
                    found.push(segment);
                }
            }
        }
    }
    found
}

fn text<'a>(tokens: &[Token<'a>], at: usize) -> &'a str {
    tokens.get(at).map_or("", |token| token.text)
}

/// The largest set of modules each of which reaches all others.
fn largest_circle<'a>(imports: &Imports<'a>) -> Vec<&'a str> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|module| (*module, reach(imports, module))).collect();
    let circle_of = |module: &str| -> Vec<&'a str> {
        let others =
            imports.keys().filter(|other| reached[module].contains(**other) && reached[**other].contains(module));
        others.copied().collect()
    };
    imports.keys().map(|module| circle_of(module)).max_by_key(Vec::len).unwrap_or_default()
}

/// The modules that are imported by `from`, or by those.
fn reach<'a>(imports: &Imports<'a>, from: &str) -> BTreeSet<&'a str> {
    let (mut reached, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(module) = left.pop() {
        for next in imports.get(module).into_iter().flatten() {
            if reached.insert(*next) {
                left.push(next);
            }
        }
    }
    reached
}
