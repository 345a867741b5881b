//! The file `databases` in a data directory: a copy of which shard is which database. The engine has all names in one small
//! place, so a single damaged block may cost all of them; [`crate::salvage`] finds them here then. Nobody else reads it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use settee_database::Layout;
use settee_database::verify::names;
use settee_storage::Engine;
use settee_storage::durable::{self, Readers};
use sha2::{Digest as _, Sha256};

/// The name of the file.
pub(crate) const FILE: &str = "databases";

/// Names and layouts by the numbers of shards.
pub(crate) type Names = BTreeMap<u64, (String, Layout)>;

/// Writes the copy anew. One that is not written is missed only when the engine is damaged.
pub(crate) fn write(data: &Path, engine: &dyn Engine) {
    // If they cannot be read, what is there knows more.
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
        tracing::warn!(%error, "the copy of the names of databases is not written");
    }
}

/// The text of the copy; `None` if it is damaged, nothing if there is none.
pub(crate) fn read(data: &Path) -> Option<Names> {
    let Ok(bytes) = fs::read(data.join(FILE)) else { return Some(Names::new()) };
    let text = String::from_utf8(bytes).ok()?;
    let (rest, told) = text.trim_end().rsplit_once("sha256 ")?;
    if digest(rest) != told {
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
