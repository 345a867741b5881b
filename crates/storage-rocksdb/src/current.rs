//! [`heal`]: a store whose `CURRENT` names a manifest that a power loss took, or cut. Nothing else is looked at or repaired.
//!
//! RocksDB writes a new manifest, names it in `CURRENT`, and syncs the directory after that. A file system that keeps
//! names in any order may have kept the second and lost the first. The manifest before it is removed only when both
//! are durable, and so are the logs that it needs: nothing that was acknowledged depends on the new one. If it is the
//! very first one, the store was still being made, and is made anew.

use std::path::Path;
use std::{fs, io};

use settee_storage::durable::{self, Readers};

use crate::files;

const PREFIX: &str = "MANIFEST-";

/// The manifest that is in use only until a store that is being made is opened for the first time.
const FIRST: &str = "MANIFEST-000001";

/// Lets `CURRENT` name the newest manifest there is, if the one that it names is not there, and cuts off what a power loss left of
/// the last records.
pub(crate) fn heal(store: &Path) -> io::Result<()> {
    let current = store.join("CURRENT");
    let Ok(named) = fs::read_to_string(&current) else { return Ok(()) };
    let named = named.trim_end();
    let manifest = store.join(named);
    if let Ok(bytes) = fs::read(&manifest) {
        // RocksDB takes a record that ends with the file for cut, and one with pages of zeros in it for damage.
        return match files::cut_manifest(store, &bytes)? {
            Some(whole) => durable::write(&manifest, Readers::Owner, whole),
            None => Ok(()),
        };
    }
    let mut newest: Option<(u64, String)> = None;
    let mut has_data = false;
    for entry in fs::read_dir(store)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        has_data |= name.ends_with(".sst") || name.ends_with(".blob");
        if let Some(number) = name.strip_prefix(PREFIX).and_then(|number| number.parse().ok()) {
            newest = newest.max(Some((number, name)));
        }
    }
    match newest {
        Some((_, name)) => durable::write(&current, Readers::Owner, format!("{name}\n").as_bytes()),
        None if named == FIRST && !has_data => fs::remove_file(&current),
        None => Ok(()),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::{Options, RocksEngine};

    #[test]
    fn the_newest_manifest_that_is_there_becomes_current() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let current = || fs::read_to_string(path("CURRENT")).unwrap();
        heal(directory.path()).unwrap();
        fs::write(path("CURRENT"), "MANIFEST-000017\n").unwrap();
        heal(directory.path()).unwrap();
        assert_eq!(current(), "MANIFEST-000017\n", "there is no other");
        for name in ["MANIFEST-000009", "MANIFEST-000012", "MANIFEST-x", "000013.log"] {
            fs::write(path(name), "").unwrap();
        }
        heal(directory.path()).unwrap();
        assert_eq!(current(), "MANIFEST-000012\n");
        fs::write(path("MANIFEST-000020"), "").unwrap();
        heal(directory.path()).unwrap();
        assert_eq!(current(), "MANIFEST-000012\n", "what is named is there");
    }

    #[test]
    fn a_store_that_a_power_loss_took_while_it_was_made_is_made_anew() {
        for (named, others, is_new) in [
            (FIRST, &[][..], true),
            (FIRST, &["000004.log", "IDENTITY", "LOCK"], true),
            (FIRST, &["000009.sst"], false),
            (FIRST, &["000010.blob"], false),
            ("MANIFEST-000005", &[], false),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let path = |name: &str| directory.path().join(name);
            fs::write(path("CURRENT"), format!("{named}\n")).unwrap();
            for name in others {
                fs::write(path(name), "").unwrap();
            }
            heal(directory.path()).unwrap();
            assert_eq!(!path("CURRENT").exists(), is_new, "{named} {others:?}");
            assert_eq!(RocksEngine::open(directory.path(), &Options::default()).is_ok(), is_new, "{named} {others:?}");
        }
    }
}
