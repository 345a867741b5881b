//! [`apply`]: removes backups beyond their retention time except the newest, and what no backup needs any more. Recent
//! objects are never removed, even if no manifest names them, because a backup in progress may refer to them.

use std::collections::{BTreeMap, BTreeSet};

use super::{BACKUPS, Store, manifest, names};
use crate::time;

pub(crate) const LOG: &str = "log";

/// Unreferenced objects of this age are removed. A backup takes less time.
const UNREFERENCED_AGE_S: u64 = 86_400;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Removed {
    pub backups: usize,
    pub files: usize,
    pub pieces: usize,
}

pub(crate) fn apply(store: &Store, now_us: u64, keep_s: u64) -> anyhow::Result<Removed> {
    let now_s = now_us / 1_000_000;
    let mut removed = Removed::default();
    // Names are times and sort as such.
    let oldest = time::file_name(now_s.saturating_sub(keep_s).saturating_mul(1_000_000));
    let mut kept = names(store)?;
    let expired = kept.partition_point(|name| *name < oldest).min(kept.len().saturating_sub(1));
    for name in kept.drain(..expired) {
        store.delete(&format!("{BACKUPS}/{name}"))?;
        removed.backups += 1;
    }
    let (mut named, mut positions) = (BTreeSet::new(), BTreeMap::new());
    for name in kept {
        let manifest = manifest(store, &name)?;
        named.extend(manifest.entries.iter().map(|entry| store.name_of(&entry.sha256)));
        if let Some(log) = manifest.log {
            let least = positions.entry(log.stream).or_insert(log.position);
            *least = log.position.min(*least);
        }
    }
    let is_old = |modified_s: u64| modified_s.saturating_add(UNREFERENCED_AGE_S) < now_s;
    for file in store.list("files")? {
        if is_old(file.modified_s) && !named.contains(&file.name) {
            store.delete(&file.name)?;
            removed.files += 1;
        }
    }
    let pieces: Vec<_> = store.list(LOG)?.into_iter().map(|piece| (is_old(piece.modified_s), piece.name)).collect();
    for name in superfluous(&pieces, &positions) {
        store.delete(name)?;
        removed.pieces += 1;
    }
    Ok(removed)
}

/// Returns the pieces of logs that no backup needs: those before the oldest backup of their log, and all old pieces of
/// a log without a backup. The flag of a piece is true if it is old.
fn superfluous<'a>(pieces: &'a [(bool, String)], positions: &BTreeMap<String, u64>) -> Vec<&'a str> {
    let parts = |name: &'a str| -> Option<(&'a str, Option<u64>)> {
        let (stream, position) = name.strip_prefix(LOG)?.strip_prefix('/')?.split_once('/')?;
        Some((stream, position.parse().ok()))
    };
    let mut found = Vec::new();
    for (index, (is_old, name)) in pieces.iter().enumerate() {
        let Some((stream, position)) = parts(name) else { continue };
        let next = pieces.get(index + 1).and_then(|(_, next)| parts(next)).filter(|(other, _)| *other == stream);
        let is_superfluous = match positions.get(stream) {
            None => {
                *is_old
                    && pieces
                        .iter()
                        .all(|(is_old, name)| *is_old || parts(name).is_none_or(|(other, _)| other != stream))
            }
            Some(least) => {
                position.is_some()
                    && next.and_then(|(_, next)| next).is_some_and(|next| next <= least.saturating_add(1))
            }
        };
        if is_superfluous {
            found.push(name.as_str());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_kept_from_its_oldest_backup_on() {
        let pieces = |names: &[&str]| names.iter().map(|name| (true, format!("log/{name}"))).collect::<Vec<_>>();
        let positions = |known: &[(&str, u64)]| {
            known.iter().map(|(stream, position)| ((*stream).to_owned(), *position)).collect::<BTreeMap<_, _>>()
        };
        let all = pieces(&["a/005", "a/010", "a/020", "a/through", "b/001", "b/through"]);
        for (known, expected) in [
            (vec![("a", 4), ("b", 0)], vec![]),
            (vec![("a", 8), ("b", 0)], vec![]),
            (vec![("a", 9), ("b", 0)], vec!["log/a/005"]),
            (vec![("a", 19), ("b", 0)], vec!["log/a/005", "log/a/010"]),
            (vec![("a", 900), ("b", 0)], vec!["log/a/005", "log/a/010"]),
            (vec![("a", 0)], vec!["log/b/001", "log/b/through"]),
        ] {
            assert_eq!(superfluous(&all, &positions(&known)), expected, "{known:?}");
        }
        let young = [(true, "log/a/1".to_owned()), (false, "log/a/2".to_owned())];
        assert!(superfluous(&young, &BTreeMap::new()).is_empty(), "its first backup may be in progress");
    }
}
