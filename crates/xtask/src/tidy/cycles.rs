//! [`check`]: import cycles of more than [`FILES_MAX`] files of a crate. `lib.rs` is not counted: a name that it exports
//! again counts as an import of the file that it names.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::{Finding, Severity};
use super::tokens::{self, Token};
use super::tree::{Tree, is_test_file};

const RULE: &str = "import-cycle";

const FILES_MAX: usize = 3;

/// A file is named by its path in `src`, without `.rs` and `/mod.rs`; `lib.rs` has the empty name.
type Imports<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, BTreeMap<&str, Vec<Token<'_>>>> = BTreeMap::new();
    for (name, path, text) in tree.sources() {
        let Some(inside) = path.split_once("/src/").map(|(_, inside)| inside) else { continue };
        let file = inside.trim_end_matches(".rs").trim_end_matches("/mod");
        let top = file.split('/').next().unwrap_or_default();
        if is_test_file(path) || ["main", "bin", "testing", "tests"].contains(&top) {
            continue;
        }
        let (product, _) = tokens::without_tests(&tokens::tokens(text));
        let file = if file == "lib" { "" } else { file };
        crates.entry(name).or_default().insert(file, product);
    }
    crates.iter().filter_map(|(name, files)| finding(name, &imports(files))).collect()
}

fn finding(name: &str, imports: &Imports<'_>) -> Option<Finding> {
    let cycle = largest_cycle(imports);
    let message = format!(
        "{} files import each other in a cycle, at most {FILES_MAX} may: {}. Move what they share into a file that \
         imports none of them",
        cycle.len(),
        cycle.join(", ")
    );
    let path = format!("crates/{name}/src");
    (cycle.len() > FILES_MAX).then_some(Finding { severity: Severity::Error, rule: RULE, path, line: 0, message })
}

fn imports<'a>(files: &BTreeMap<&'a str, Vec<Token<'_>>>) -> Imports<'a> {
    let resolve = |path: &[&str]| -> &'a str {
        let names = (1..=path.len()).rev().map(|length| path[..length].join("/"));
        names.filter_map(|name| files.get_key_value(name.as_str())).map(|(name, _)| *name).next().unwrap_or("")
    };
    let mut exported: BTreeMap<&str, &'a str> = BTreeMap::new();
    for path in files.get("").map(|tokens| paths(tokens, "")).unwrap_or_default() {
        exported.insert(path[path.len() - 1], resolve(&path));
    }
    let mut imports = Imports::new();
    for (file, tokens) in files.iter().filter(|(file, _)| !file.is_empty()) {
        let named = paths(tokens, file).into_iter().map(|path| match resolve(&path) {
            "" => path.first().and_then(|name| exported.get(name)).copied().unwrap_or(""),
            found => found,
        });
        imports.insert(file, named.filter(|found| !found.is_empty() && found != file).collect());
    }
    imports
}

fn paths<'t>(tokens: &[Token<'t>], file: &'t str) -> Vec<Vec<&'t str>> {
    let here: Vec<&str> = file.split('/').filter(|part| !part.is_empty()).collect();
    let modules: BTreeSet<&str> = tokens
        .windows(3)
        .filter(|near| near[0].text == "mod" && near[2].text == ";")
        .map(|near| near[1].text)
        .collect();
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        if text(tokens, at + 1) != "::" || at > 0 && tokens[at - 1].text == "::" {
            continue;
        }
        let start = match tokens[at].text {
            "crate" => Vec::new(),
            "self" => here.clone(),
            "super" => here[..here.len().saturating_sub(1)].to_vec(),
            module if modules.contains(module) => [&here[..], &[module]].concat(),
            _ => continue,
        };
        expand(tokens, at + 2, start, &mut found);
    }
    found
}

/// Adds the paths that start with `start` and continue at a token. Returns the position after them.
fn expand<'t>(tokens: &[Token<'t>], mut at: usize, mut start: Vec<&'t str>, found: &mut Vec<Vec<&'t str>>) -> usize {
    loop {
        match text(tokens, at) {
            "{" => {
                at += 1;
                while !matches!(text(tokens, at), "}" | "") {
                    at = if text(tokens, at) == "," { at + 1 } else { expand(tokens, at, start.clone(), found) };
                }
                return at + 1;
            }
            "super" => drop(start.pop()),
            "self" => {}
            name => start.push(name),
        }
        at += 1;
        if text(tokens, at) != "::" {
            break;
        }
        at += 1;
    }
    if !start.is_empty() {
        found.push(start);
    }
    if text(tokens, at) == "as" { at + 2 } else { at }
}

fn text<'a>(tokens: &[Token<'a>], at: usize) -> &'a str {
    tokens.get(at).map_or("", |token| token.text)
}

fn largest_cycle<'a>(imports: &Imports<'a>) -> Vec<&'a str> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = imports.keys().map(|file| (*file, reach(imports, file))).collect();
    let cycle_of = |file: &str| -> Vec<&'a str> {
        let others = imports.keys().filter(|other| reached[file].contains(**other) && reached[**other].contains(file));
        others.copied().collect()
    };
    imports.keys().map(|file| cycle_of(file)).max_by_key(Vec::len).unwrap_or_default()
}

fn reach<'a>(imports: &Imports<'a>, from: &str) -> BTreeSet<&'a str> {
    let (mut reached, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(file) = left.pop() {
        for next in imports.get(file).into_iter().flatten() {
            if reached.insert(*next) {
                left.push(next);
            }
        }
    }
    reached
}
