//! Permitted imports between crates ([`ROWS`]), equal to the layer diagram of ARCHITECTURE.md.

use super::finding::{Finding, Severity};
use super::manifest::{self, Dependency, Kind};
use super::tree::Tree;

const RULE: &str = "edge";
const HERE: &str = "crates/xtask/src/tidy/edges.rs";
const ARCHITECTURE: &str = "ARCHITECTURE.md";
const PREFIX: &str = "settee-";

struct Row {
    name: &'static str,
    imports: &'static [&'static str],
    /// Additional permitted imports of the tests, for example an engine to run on.
    tests_import: &'static [&'static str],
}

const fn row(name: &'static str, imports: &'static [&'static str]) -> Row {
    Row { name, imports, tests_import: &[] }
}

const NO_PRODUCT: [&str; 4] = ["xtask", "e2e", "storage-testing", "bench"];

/// The only place that admits a new crate or a new edge.
const ROWS: &[Row] = &[
    row("model", &[]),
    Row { name: "wire", imports: &[], tests_import: &["model"] },
    row("tls", &[]),
    row("storage", &[]),
    row("cluster", &["storage"]),
    row("storage-rocksdb", &["storage"]),
    row("storage-postgres", &["storage", "cluster", "tls"]),
    row("storage-bucket", &["storage", "cluster"]),
    row("storage-testing", &["storage", "storage-postgres"]),
    row("settings", &[]),
    row("threads", &[]),
    row("auth", &["model"]),
    row("console", &[]),
    row("design", &["model", "threads"]),
    row("native", &["model"]),
    row("js", &["model", "design", "native", "threads"]),
    row("wasm", &["model", "design"]),
    row("process", &["model", "design", "threads"]),
    Row { name: "database", imports: &["model", "storage", "cluster", "design"], tests_import: &["storage-testing"] },
    Row {
        name: "views",
        imports: &["model", "storage", "design", "database"],
        tests_import: &["js", "storage-testing"],
    },
    Row {
        name: "search",
        imports: &["model", "storage", "design", "database", "views"],
        tests_import: &["storage-rocksdb", "storage-testing"],
    },
    Row {
        name: "mango",
        imports: &["model", "design", "database", "views", "search"],
        tests_import: &["storage", "storage-testing"],
    },
    row("edge", &["wire", "settings", "threads"]),
    Row {
        name: "api",
        imports: &[
            "edge",
            "model",
            "wire",
            "tls",
            "auth",
            "settings",
            "threads",
            "console",
            "design",
            "cluster",
            "database",
            "views",
            "mango",
            "replication",
            "search",
            "service",
        ],
        tests_import: &["storage", "js"],
    },
    row("replication", &["model", "wire", "tls"]),
    Row {
        name: "service",
        imports: &["model", "auth", "settings", "threads", "design", "database", "views", "replication"],
        tests_import: &["storage", "mango"],
    },
    row("couch-files", &["model"]),
    row("bench", &["storage-rocksdb"]),
    row(
        "admin",
        &[
            "model",
            "wire",
            "storage",
            "storage-rocksdb",
            "storage-bucket",
            "storage-postgres",
            "auth",
            "settings",
            "database",
            "views",
            "replication",
            "search",
            "api",
            "tls",
            "couch-files",
        ],
    ),
    row(
        "server",
        &[
            "model",
            "wire",
            "tls",
            "storage",
            "cluster",
            "storage-rocksdb",
            "storage-bucket",
            "storage-postgres",
            "auth",
            "settings",
            "threads",
            "console",
            "design",
            "native",
            "js",
            "wasm",
            "process",
            "database",
            "views",
            "mango",
            "replication",
            "search",
            "service",
            "edge",
            "api",
            "couch-files",
            "admin",
        ],
    ),
    row("e2e", &[]),
    row("xtask", &["e2e"]),
];

#[cfg(test)]
pub(super) fn imports() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    ROWS.iter().map(|row| (row.name, row.imports))
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, manifest) in tree.manifests() {
        let path = format!("crates/{name}/Cargo.toml");
        match ROWS.iter().find(|row| row.name == name) {
            Some(row) => {
                let dependencies = manifest::dependencies(manifest);
                findings.extend(dependencies.iter().filter_map(|dependency| forbidden(row, dependency, &path)));
                findings.extend(undocumented(row, tree.text(ARCHITECTURE)));
            }
            None => findings.push(error(
                &path,
                0,
                format!(
                    "`{name}` is a new crate. Add a row for it to {HERE} and to the table of {ARCHITECTURE}, \
                         and say in docs/adr why it is not a module of an existing crate"
                ),
            )),
        }
    }
    for row in ROWS.iter().filter(|row| tree.manifests().all(|(name, _)| name != row.name)) {
        findings.push(error(HERE, 0, format!("there is no crate `{}`: delete its row", row.name)));
    }
    findings
}

fn forbidden(row: &Row, dependency: &Dependency, path: &str) -> Option<Finding> {
    let target = dependency.name.strip_prefix(PREFIX)?;
    let for_tests = dependency.kind == Kind::Dev && row.tests_import.contains(&target);
    if row.imports.contains(&target) || for_tests {
        return None;
    }
    let message = format!(
        "`{}` must not import `{target}`. Move the code to a crate that may, or, if the layers should really \
         change, write an ADR and add the edge to {HERE} and to the table of {ARCHITECTURE}",
        row.name
    );
    Some(error(path, dependency.line, message))
}

/// The line of ARCHITECTURE.md starts with the crate's name in backticks and ends with its imports.
fn undocumented(row: &Row, architecture: Option<&str>) -> Option<Finding> {
    let start = format!("| `{}` |", row.name);
    let Some((index, line)) =
        architecture.unwrap_or_default().lines().enumerate().find(|(_, line)| line.starts_with(&start))
    else {
        return Some(error(ARCHITECTURE, 0, format!("has no line about the crate `{}`: add one", row.name)));
    };
    let cell = line.trim().trim_end_matches('|').rsplit('|').next().unwrap_or_default().trim();
    let mut written: Vec<&str> =
        cell.split(',').map(|name| name.trim().trim_matches('`')).filter(|name| !["", "-"].contains(name)).collect();
    let mut allowed = row.imports.to_vec();
    written.sort_unstable();
    allowed.sort_unstable();
    let everything = cell == "everything"
        && ROWS.iter().all(|other| {
            other.name == row.name || NO_PRODUCT.contains(&other.name) || row.imports.contains(&other.name)
        });
    let message = format!("says that `{}` imports {cell}, but {HERE} says {}", row.name, allowed.join(", "));
    (written != allowed && !everything).then(|| error(ARCHITECTURE, index + 1, message))
}

fn error(path: &str, line: usize, message: String) -> Finding {
    Finding { severity: Severity::Error, rule: RULE, path: path.to_owned(), line, message }
}
