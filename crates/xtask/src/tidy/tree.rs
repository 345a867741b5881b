//! [`Tree`]: the checked files, with the text of each in memory.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

#[derive(Debug, Default)]
pub(super) struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    pub(super) fn read(root: &Path, others: &[&str]) -> Result<Self> {
        let mut tree = Self::default();
        tree.read_folder(root, "crates")?;
        tree.read_folder(root, "docs")?;
        let pages = ["ARCHITECTURE.md", "COMPAT.md", "CONTRIBUTING.md", "README.md"];
        for path in pages.iter().chain(others) {
            let file = root.join(path);
            if file.is_file() {
                let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
                tree.insert(path, &text);
            }
        }
        Ok(tree)
    }

    fn read_folder(&mut self, root: &Path, folder: &str) -> Result<()> {
        let entries = fs::read_dir(root.join(folder)).with_context(|| format!("cannot list {folder}"))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot list {folder}"))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{folder}/{name}");
            if entry.file_type().with_context(|| format!("cannot read the type of {path}"))?.is_dir() {
                if name != "target" {
                    self.read_folder(root, &path)?;
                }
            } else if is_source(&path) || is_page(&path) || name == "Cargo.toml" {
                let text = fs::read_to_string(entry.path()).with_context(|| format!("cannot read {path}"))?;
                self.insert(&path, &text);
            }
        }
        Ok(())
    }

    pub(super) fn insert(&mut self, path: &str, text: &str) {
        self.files.insert(path.to_owned(), text.to_owned());
    }

    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    pub(super) fn manifests(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, text)| {
            let name = path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
            (!name.contains('/')).then_some((name, text.as_str()))
        })
    }

    /// Path and text of pages that are kept up to date. Records of history are excluded.
    pub(super) fn pages(&self) -> impl Iterator<Item = (&str, &str)> {
        let is_current = |path: &str| is_page(path) && !path.contains("/history/") && !path.starts_with("crates/");
        self.files.iter().filter(move |(path, _)| is_current(path)).map(|(path, text)| (path.as_str(), text.as_str()))
    }

    pub(super) fn sources(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.files.iter().filter(|(path, _)| is_source(path)).filter_map(|(path, text)| {
            let (name, _) = path.strip_prefix("crates/")?.split_once('/')?;
            Some((name, path.as_str(), text.as_str()))
        })
    }
}

pub(super) fn is_page(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "md")
}

fn is_source(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "rs")
}

/// Tests, benchmarks and examples, according to the name of the file.
pub(super) fn is_test_file(path: &str) -> bool {
    let folders = ["/tests/", "/benches/", "/examples/"];
    path.ends_with("/tests.rs") || folders.iter().any(|folder| path.contains(folder))
}
