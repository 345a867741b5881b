//! Checks the table of settings against the sources: every setting of the table is read by some code.

use std::fs;
use std::path::{Path, PathBuf};

use settee_settings::{Applies, SETTINGS};

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() && !["tests", "settings"].contains(&name.as_str()) {
            sources(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            found.push(path);
        }
    }
}

fn text() -> String {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    sources(crates, &mut found);
    assert!(found.len() > 50, "{found:?}");
    let without_tests = |path: PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned()
    };
    found.into_iter().map(without_tests).collect()
}

#[test]
fn every_setting_of_the_table_is_read() {
    let text = text();
    for setting in SETTINGS {
        let module = setting.section.replace('.', "_");
        let key = format!("{module}::{}", setting.key.to_uppercase().replace('-', "_"));
        let is_read = text.match_indices(&key).any(|(at, _)| {
            let after = text[at + key.len()..].chars().next();
            !after.is_some_and(|letter| letter.is_alphanumeric() || letter == '_')
        });
        let is_kept = setting.applies == Applies::Nowhere;
        assert!(is_read || is_kept, "{key} is read by nothing: remove it, or say `.kept()` in the table");
        assert!(!(is_read && is_kept), "{key} is read now: remove `.kept()` from the table");
    }
}
