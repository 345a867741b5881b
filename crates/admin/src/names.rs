//! The file `databases` in a data directory: a copy of the mapping of shards to databases, for [`crate::salvage`],
//! because a single damaged block of the engine may lose all names.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use settee_database::Layout;
use settee_database::verify::names;
use settee_storage::Engine;
use settee_storage::durable::{self, Readers};
use sha2::{Digest as _, Sha256};

pub const FILE: &str = "databases";

pub type Names = BTreeMap<u64, (String, Layout)>;

/// Errors are ignored, because the copy is needed only if the engine is damaged.
pub fn write(data: &Path, engine: &dyn Engine) {
    // If the names cannot be read, the existing copy is more complete.
    let Ok(names) = names(engine) else { return };
    let mut text = String::new();
    for (name, shard, layout) in names {
        let layout = if layout == Layout::Partitioned { "partitioned" } else { "whole" };
        let _ = writeln!(text, "{} {layout} {name}", shard.0);
    }
    let _ = writeln!(text, "sha256 {}", digest(&text));
    let path = data.join(FILE);
    if fs::read(&path).is_ok_and(|before| before == text.as_bytes()) {
        return;
    }
    if let Err(error) = durable::write(&path, Readers::Owner, text.as_bytes()) {
        tracing::warn!(%error, "the copy of the names of databases cannot be written");
    }
}

/// `None` if the copy is damaged; an empty map if it does not exist.
pub fn read(data: &Path) -> Option<Names> {
    let Ok(bytes) = fs::read(data.join(FILE)) else { return Some(Names::new()) };
    let text = String::from_utf8(bytes).ok()?;
    let (rest, reply) = text.trim_end().rsplit_once("sha256 ")?;
    if digest(rest) != reply {
        return None;
    }
    let name = |line: &str| {
        let (shard, rest) = line.split_once(' ')?;
        let (layout, name) = rest.split_once(' ')?;
        let layout = if layout == "partitioned" { Layout::Partitioned } else { Layout::Whole };
        Some((shard.parse().ok()?, (name.to_owned(), layout)))
    };
    rest.lines().map(name).collect()
}

fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
