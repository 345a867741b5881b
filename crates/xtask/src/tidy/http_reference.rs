//! [`check`]: the page [`PAGE`] names exactly the routes and query parameters of `api`, with their permissions.
//! The routes are those of [`ROUTES`], which a test of `api` compares with the router. The parameters are the names in
//! the sources of `api` ([`read_parameters`]). [`SECTIONS`] assigns large groups of parameters to sections of the page.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::{Finding, Severity};
use super::tokens::{self, Token};
use super::tree::{Tree, is_test_file};

pub(super) const PAGE: &str = "docs/http.md";
/// Table of routes: lines with a path, each followed by indented lines `METHOD PERMISSION BODY`.
pub(super) const ROUTES: &str = "crates/api/src/tests/routes.txt";
const SOURCES: &str = "crates/api/src/";

const SECTIONS: &[(&str, &str)] = &[
    ("params/view.rs", "Parameters of lists and views"),
    ("params/document.rs", "Parameters of documents"),
    ("params/attachments.rs", "Parameters of documents"),
    ("params/changes.rs", "Parameters of changes"),
    ("params/filter.rs", "Parameters of changes"),
    ("params/search/clouseau.rs", "Parameters of searches"),
    ("params/search/nouveau.rs", "Parameters of searches"),
];

const PERMISSIONS: &[(&str, &str)] = &[
    ("Anyone", "any"),
    ("Member", "member"),
    ("Document", "document"),
    ("DatabaseAdmin", "database admin"),
    ("Maintenance", "database admin"),
    ("ListDatabases", "list"),
    ("Metrics", "metrics"),
    ("ServerAdmin", "server admin"),
];

/// Methods of `query` whose literal argument is the name of a parameter.
const METHODS: &[&str] = &["get", "is_true"];
/// Functions whose literal argument is the name of a parameter.
const FUNCTIONS: &[&str] = &["get", "number", "optional", "positive", "redirected"];

/// Replaces all unnamed methods, in the table and on the page.
const OTHERS: &str = "*";

type Methods = BTreeMap<String, String>;

#[derive(Default)]
struct Page<'a> {
    routes: BTreeMap<&'a str, (Methods, usize)>,
    /// With section and line. Parameters of resources have no section.
    parameters: Vec<(&'a str, Option<&'a str>, usize)>,
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let page = Page::parse(tree.text(PAGE).unwrap_or_default());
    let mut findings = Vec::new();
    let served = served(tree.text(ROUTES).unwrap_or_default());
    for (path, methods) in served.iter().filter(|(path, _)| !path.ends_with("/{*rest}")) {
        match page.routes.get(path) {
            Some((documented, line)) => {
                let unlike = differences(path, methods, documented);
                findings.extend(unlike.into_iter().map(|message| finding(PAGE, *line, message)));
            }
            None => findings.push(finding(PAGE, 0, format!("does not name the resource {path}"))),
        }
    }
    for (path, (_, line)) in page.routes.iter().filter(|(path, _)| !served.contains_key(*path)) {
        findings.push(finding(PAGE, *line, format!("names the resource {path}, which {ROUTES} does not")));
    }
    findings.extend(check_parameters(tree, &page));
    findings
}

fn check_parameters(tree: &Tree, page: &Page<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut read: BTreeSet<(String, Option<&str>)> = BTreeSet::new();
    let sources = tree.sources().filter(|(_, path, _)| path.starts_with(SOURCES) && !is_test_file(path));
    for (_, path, text) in sources {
        let section = SECTIONS.iter().find(|(file, _)| path.strip_prefix(SOURCES) == Some(file));
        let section = section.map(|(_, section)| *section);
        for (name, line) in read_parameters(text) {
            let mut documented = page.parameters.iter().filter(|(listed, ..)| *listed == name);
            if !documented.any(|(_, at, _)| section.is_none() || *at == section) {
                let place = section.map_or_else(String::new, |section| format!(" in `{section}`"));
                findings.push(finding(path, line, format!("reads the parameter `{name}`: {PAGE} lacks it{place}")));
            }
            read.insert((name, section));
        }
    }
    for (name, section, line) in &page.parameters {
        let is_assigned = SECTIONS.iter().any(|(_, assigned)| Some(*assigned) == *section);
        let is_read = read.iter().any(|(other, of)| other == name && (!is_assigned || of == section));
        if !is_read {
            findings.push(finding(
                PAGE,
                *line,
                format!("names the parameter `{name}`, which no source of `api` reads"),
            ));
        }
    }
    findings
}

fn finding(path: &str, line: usize, message: String) -> Finding {
    Finding { severity: Severity::Error, rule: "http-reference", path: path.to_owned(), line, message }
}

fn served(text: &str) -> BTreeMap<&str, Methods> {
    let mut routes: BTreeMap<&str, Methods> = BTreeMap::new();
    let mut path = "";
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        if line.starts_with('/') {
            path = first;
            routes.entry(path).or_default();
        } else if let Some(methods) = routes.get_mut(path) {
            let permission = words.next().unwrap_or_default();
            let shown = PERMISSIONS.iter().find(|(code, _)| *code == permission).map_or(permission, |(_, shown)| shown);
            methods.insert(first.to_owned(), shown.to_owned());
        }
    }
    routes
}

/// Describes the methods whose permission differs, or that only one side names.
fn differences(path: &str, served: &Methods, documented: &Methods) -> Vec<String> {
    let mut found = Vec::new();
    for (method, permission) in served {
        match documented.get(method).or_else(|| documented.get(OTHERS)) {
            Some(shown) if shown == permission => {}
            Some(shown) => found.push(format!("{method} {path} requires `{permission}`, not `{shown}`")),
            None => found.push(format!("lacks the method {method} of {path}")),
        }
    }
    let is_served = |method: &String| served.contains_key(method) || served.contains_key(OTHERS);
    found.extend(documented.keys().filter(|method| !is_served(method)).map(|method| {
        let method = if method == OTHERS { "all methods" } else { method };
        format!("names {method} of {path}, which {ROUTES} does not")
    }));
    found
}

impl<'a> Page<'a> {
    fn parse(text: &'a str) -> Self {
        let mut page = Self::default();
        let (mut section, mut table) = ("", "");
        for (line, row) in text.lines().enumerate().map(|(index, row)| (index + 1, row)) {
            if let Some(title) = row.strip_prefix("## ") {
                section = title;
            }
            let cells: Vec<&str> = row.split('|').skip(1).map(str::trim).collect();
            match cells.first() {
                None => table = "",
                Some(first @ (&"resource" | &"parameter" | &"permission" | &"status")) => table = first,
                Some(first) if first.starts_with("---") => {}
                Some(_) if table == "resource" => page.add_resources(&cells, line),
                Some(names) if table == "parameter" => {
                    page.parameters.extend(codes(names).map(|name| (name, Some(section), line)));
                }
                Some(_) => {}
            }
        }
        page
    }

    fn add_resources(&mut self, cells: &[&'a str], line: usize) {
        let [paths, methods, permission, parameters, ..] = cells else { return };
        for path in codes(paths) {
            let (documented, _) = self.routes.entry(path).or_insert_with(|| (Methods::new(), line));
            for method in codes(methods) {
                documented.insert(method.to_owned(), permission.trim_matches('`').to_owned());
            }
        }
        let names = codes(parameters).map(|code| code.split('=').next().unwrap_or(code));
        self.parameters.extend(names.map(|name| (name, None, line)));
    }
}

fn codes(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Returns the parameters that a source reads: literal arguments of [`METHODS`] and [`FUNCTIONS`], and the patterns of
/// a `match` on `name`.
fn read_parameters(source: &str) -> Vec<(String, usize)> {
    let tokens = tokens::without_tests(&tokens::with_strings(source)).0;
    let mut found = BTreeMap::new();
    let iterates = |at: usize| {
        let rest = &tokens[at..];
        tokens::starts_with(rest, &[".", "pairs", "("]) || tokens::starts_with(rest, &[".", "raw", "("])
    };
    let iterates = (0..tokens.len()).any(iterates);
    for at in 0..tokens.len() {
        let names = match tokens[at].text {
            "match" if iterates => patterns(&tokens, at),
            _ => argument(&tokens, at).into_iter().collect(),
        };
        for token in names {
            found.entry(token.text.trim_matches('"').to_owned()).or_insert(token.line);
        }
    }
    found.into_iter().collect()
}

fn is_string(token: &Token<'_>) -> bool {
    token.text.starts_with('"')
}

/// Returns the literal argument of the call at `at`, if it reads a parameter. Only variables may precede the literal.
fn argument<'a, 'b>(tokens: &'b [Token<'a>], at: usize) -> Option<&'b Token<'a>> {
    let previous = |back: usize| at.checked_sub(back).map_or("", |index| tokens[index].text);
    let name = tokens[at].text;
    let is_reader = match previous(1) {
        "." => previous(2) == "query" && METHODS.contains(&name),
        "fn" => false,
        _ => FUNCTIONS.contains(&name),
    };
    if !is_reader || tokens.get(at + 1)?.text != "(" {
        return None;
    }
    let is_variable = |token: &&Token<'_>| token.text.chars().all(|c| "&.,_".contains(c) || c.is_alphanumeric());
    tokens[at + 2..].iter().find(|token| !is_variable(token)).filter(|token| is_string(token))
}

/// Returns the literals in the patterns of the `match` at `at` on `name` or on a tuple that starts with it.
fn patterns<'a, 'b>(tokens: &'b [Token<'a>], at: usize) -> Vec<&'b Token<'a>> {
    let rest = &tokens[at + 1..];
    let is_tuple = match rest {
        [first, second, ..] if first.text == "name" && second.text == "{" => false,
        [first, second, ..] if first.text == "(" && second.text == "name" => true,
        _ => return Vec::new(),
    };
    let Some(open) = tokens[at..].iter().position(|token| token.text == "{").map(|found| at + found) else {
        return Vec::new();
    };
    let end = tokens::closing(tokens, open);
    let (mut found, mut index) = (Vec::new(), open + 1);
    while index < end {
        let chain = alternatives(&tokens[index..end]);
        let starts_arm = ["{", "}", ","].contains(&tokens[index - 1].text);
        match tokens[index].text {
            _ if !is_tuple && starts_arm && !chain.is_empty() => found.extend(chain),
            "(" if is_tuple && starts_arm => found.extend(alternatives(&tokens[index + 1..end])),
            _ => {}
        }
        let is_group = ["(", "[", "{"].contains(&tokens[index].text);
        index = if is_group { tokens::closing(tokens, index) + 1 } else { index + 1 };
    }
    found
}

fn alternatives<'a, 'b>(tokens: &'b [Token<'a>]) -> Vec<&'b Token<'a>> {
    let is_part =
        |(index, token): &(usize, &Token<'_>)| if index % 2 == 0 { is_string(token) } else { token.text == "|" };
    let chain = tokens.iter().enumerate().take_while(is_part);
    chain.filter(|(index, _)| index % 2 == 0).map(|(_, token)| token).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "/  [GET,HEAD]\n    GET Anyone Options\n/_x/{*rest}  [GET]\n    GET Anyone Options\n\
                         /{db}/_x  [GET,POST]\n    GET Member Options\n    * Maintenance Lists\n";
    const HEAD: &str =
        "## Server\n\n| resource | methods | permission | parameters | purpose |\n|---|---|---|---|---|\n";
    const ROWS: &str = "| `/` | `GET` | `any` | `count` | `other` |\n| `/{db}/_x` | `GET` | `member` | `batch=ok` | |\n\
                        | `/{db}/_x` | `*` | `database admin` | | |\n";
    const SOURCE: &str = "//! Head.\nfn f(query: &Query) { query.get(\"count\"); settings.get(\"level\"); \
                          is_batch(query.is_true(\"batch\")) }\n#[cfg(test)]\nmod tests { fn f() { query.get(\"no\"); } }\n";

    #[track_caller]
    fn check_with(page: &str, files: &[(&str, &str)], expected: &[&str]) {
        let mut tree = Tree::default();
        tree.insert(PAGE, page);
        tree.insert(ROUTES, TABLE);
        tree.insert("crates/api/src/a.rs", SOURCE);
        for (path, text) in files {
            tree.insert(&format!("crates/api/src/{path}"), text);
        }
        let found: Vec<String> = check(&tree).into_iter().map(|finding| finding.message).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_complete_page_has_no_findings() {
        check_with(&format!("{HEAD}{ROWS}"), &[], &[]);
    }

    #[test]
    fn missing_and_additional_resources_are_found() {
        let page = format!("{HEAD}{}", ROWS.replace("| `/` |", "| `/_y` |"));
        check_with(
            &page,
            &[],
            &["does not name the resource /", "names the resource /_y, which crates/api/src/tests/routes.txt does not"],
        );
    }

    #[test]
    fn methods_and_permissions_are_compared() {
        let page = format!("{HEAD}{}", ROWS.replace("`GET` | `any`", "`GET`, `PUT` | `member`"));
        check_with(
            &page,
            &[],
            &["GET / requires `any`, not `member`", "names PUT of /, which crates/api/src/tests/routes.txt does not"],
        );
        let page = format!("{HEAD}{}", ROWS.replace("| `*` | `database admin`", "| | "));
        check_with(&page, &[], &["lacks the method * of /{db}/_x"]);
    }

    #[test]
    fn missing_and_additional_parameters_are_found() {
        let page = format!("{HEAD}{}", ROWS.replace("`count`", "`number`"));
        check_with(
            &page,
            &[],
            &[
                "reads the parameter `count`: docs/http.md lacks it",
                "names the parameter `number`, which no source of `api` reads",
            ],
        );
    }

    #[test]
    fn groups_of_parameters_have_their_section() {
        let section = "\n## Parameters of changes\n\n| parameter | meaning |\n|---|---|\n| `feed`, `batch` | |\n";
        let source = "//! Head.\nfn f() { for (name, value) in query.pairs() { match (name, value) { (\"feed\" | \
                      \"count\", \"live\") => a(\"no\"), (\"since\", text) => { number(text, \"limit\"); } _ => {} } } }\n";
        check_with(
            &format!("{HEAD}{ROWS}{section}"),
            &[("params/changes.rs", source)],
            &[
                "reads the parameter `count`: docs/http.md lacks it in `Parameters of changes`",
                "reads the parameter `limit`: docs/http.md lacks it in `Parameters of changes`",
                "reads the parameter `since`: docs/http.md lacks it in `Parameters of changes`",
                "names the parameter `batch`, which no source of `api` reads",
            ],
        );
    }

    #[test]
    fn patterns_are_read_where_a_query_is_iterated() {
        let body = "match name { \"a\" | \"b\" => x(\"c\"), \"d\" if e(\"f\") => { \"g\" } \"h\" => 1, _ => \"i\" }";
        let names = |source: &str| read_parameters(source).into_iter().map(|(name, _)| name).collect::<String>();
        assert_eq!(names(&format!("fn f() {{ query.raw(); {body} }}")), "abdh");
        assert_eq!(names(&format!("fn f() {{ {body} }}")), "");
        assert_eq!(
            names(
                "fn number(x: &str) { positive(\"q\"); body.get(\"z\"); number(&a.query, \"n\", 0); is_true(\"z\") }"
            ),
            "nq"
        );
    }
}
