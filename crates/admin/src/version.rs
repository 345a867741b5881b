//! The layout version of a data directory, stored in its file `version`. A server refuses data of a later layout, and
//! marks data of an earlier one before it writes anything. Data without a mark was written when only layout 1 existed
//! and marks were not durable: a power loss then left the file empty, or filled with zeros. Any other unknown mark is
//! an error.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use settee_storage::durable::{self, Readers};

use crate::regular;

/// Incremented when an older program could not read the data of this one.
pub const LAYOUT: u64 = 2;

pub const FILE: &str = "version";

pub const RESTORING: &str = ".restoring";

/// Fails if this program cannot serve the data. Writes nothing: see [`mark`].
pub fn check(data: &Path) -> anyhow::Result<()> {
    regular::check_data(data)?;
    ensure!(
        !data.join(RESTORING).exists(),
        "{} contains an incomplete backup, because the restore was interrupted.\n\
         Empty the directory and run `settee restore` again.",
        data.display()
    );
    match read(data)? {
        Some(layout) if layout > LAYOUT => bail!(
            "the data in {} has layout {layout}, and this program supports {LAYOUT} at most.\n\
             Start the version of Settee that wrote it, or a newer one.",
            data.display()
        ),
        Some(_) | None => Ok(()),
    }
}

/// Marks data with the layout of this program: existing data before the first write, new data once it is complete.
pub fn mark(data: &Path) -> anyhow::Result<()> {
    if read(data)? == Some(LAYOUT) {
        return Ok(());
    }
    let path = data.join(FILE);
    let written = durable::write(&path, Readers::Default, format!("{LAYOUT}\n").as_bytes());
    written.with_context(|| format!("{} cannot be written", path.display()))
}

/// `None` if the directory is new or the mark was lost.
pub fn read(data: &Path) -> anyhow::Result<Option<u64>> {
    let path = data.join(FILE);
    match fs::read_to_string(&path) {
        Ok(text) => {
            let text = text.trim_matches(|letter: char| letter == '\0' || letter.is_whitespace());
            if text.is_empty() {
                return Ok(None);
            }
            let layout = text.parse();
            layout.map(Some).with_context(|| format!("{} contains no number: {text}", path.display()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("{} cannot be read", path.display())),
    }
}
