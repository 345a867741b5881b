//! The table of settings against the source: what is read stands in the table, what stands in the table is read.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::config::{defaults, guide};

/// How settings are read: the method, then section and key as literals.
const READERS: [&str; 5] = [".get(", ".number(", ".switch(", ".effective(", ".get_u64("];

/// The crates that read settings.
const CRATES: [&str; 3] = ["http", "server", "replication"];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            sources(&path, found);
        } else if name.ends_with(".rs") && !["tests.rs", "defaults.rs", "guide.rs"].contains(&name.as_str()) {
            found.push(path);
        }
    }
}

/// The text of all crates that read settings, without tests and without the table itself.
fn text() -> String {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    CRATES.iter().for_each(|name| sources(&crates.join(name).join("src"), &mut found));
    assert!(found.len() > 50, "{found:?}");
    let without_tests = |path: PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned()
    };
    found.into_iter().map(without_tests).collect()
}

/// A literal at the beginning of `text`, and what follows it.
fn literal(text: &str) -> Option<(&str, &str)> {
    text.trim_start().strip_prefix('"')?.split_once('"')
}

#[test]
fn every_setting_that_is_read_stands_in_the_table_and_the_other_way_round() {
    let text = text();
    let mut read = BTreeSet::new();
    for reader in READERS {
        for (place, _) in text.match_indices(reader) {
            let pair = literal(&text[place + reader.len()..])
                .and_then(|(section, rest)| Some((section, literal(rest.strip_prefix(',')?)?.0)));
            read.extend(pair);
        }
    }
    assert!(read.len() > 20, "{read:?}");
    for (section, key) in &read {
        assert!(defaults::find(section, key).is_some(), "[{section}] {key} is read but stands not in defaults.rs");
    }
    for setting in defaults::SETTINGS {
        let name = (setting.section, setting.key);
        let is_read =
            read.contains(&name) || text.contains(&format!("\"{}\"", setting.key)) && !guide::KEPT.contains(&name);
        let is_kept = guide::KEPT.contains(&name);
        assert!(is_read || is_kept, "{name:?} is read by nothing: remove it, or add it to KEPT in guide.rs");
        assert!(!(read.contains(&name) && is_kept), "{name:?} is read now: remove it from KEPT in guide.rs");
    }
    for name in guide::KEPT {
        assert!(defaults::find(name.0, name.1).is_some(), "{name:?} of KEPT stands not in the table");
    }
}
