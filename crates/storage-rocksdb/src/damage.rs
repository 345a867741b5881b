//! [`Holes`]: the key ranges of a store that were in damaged files, so that partial data is never returned as
//! complete. The list is stored in a separate file. Damage is isolated in [`crate::isolate`].

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use settee_storage::durable::{self, Readers};
use settee_storage::{Direction, Shard, StorageError};

use crate::keys;

pub(crate) const FILE: &str = "DAMAGED";

/// Placeholder for a blob file whose name is unknown.
pub(crate) const UNNAMED: &str = "?";

const HEAD: &str = "settee damage 1";

/// A range of stored keys of a column family that may have lost entries, and may have outdated ones.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hole {
    pub(crate) column: String,
    pub(crate) from: Vec<u8>,
    /// Exclusive end.
    pub(crate) to: Vec<u8>,
    pub(crate) file: String,
}

impl Hole {
    pub(crate) fn error(&self) -> StorageError {
        StorageError::Corrupt(format!("{} is damaged, which held a part of this database", self.file))
    }

    pub(crate) fn shards(&self) -> std::ops::RangeInclusive<u64> {
        let first = keys::shard(&self.from);
        let last = keys::shard(&self.to);
        // An end that is the start of a shard excludes this shard.
        let ends_before = self.to.get(keys::PREFIX..).is_none_or(<[u8]>::is_empty) && last > first;
        first..=if ends_before { last - 1 } else { last }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holes {
    holes: BTreeSet<Hole>,
    /// Damaged blob files. A read of a damaged value returns an error; garbage collection of blobs must be off,
    /// because it reads all values.
    blobs: BTreeSet<String>,
}

impl Holes {
    /// Loads the list.
    ///
    /// # Errors
    /// Fails if the file exists and cannot be read.
    pub(crate) fn load(store: &Path) -> Result<Self, StorageError> {
        match fs::read_to_string(store.join(FILE)) {
            Ok(text) => Self::parse(&text).ok_or_else(|| {
                let path = store.join(FILE);
                StorageError::Corrupt(format!("{}, the list of what is damaged, is damaged itself", path.display()))
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(StorageError::Io(error.to_string())),
        }
    }

    /// Stores the list, or removes the file if the list is empty.
    pub(crate) fn save(&self, store: &Path) -> io::Result<()> {
        if self.is_empty() {
            return match fs::remove_file(store.join(FILE)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => durable::sync_directory(store),
            };
        }
        durable::write(&store.join(FILE), Readers::Owner, self.text().as_bytes())
    }

    fn text(&self) -> String {
        let mut text = format!("{HEAD}\n");
        for Hole { column, from, to, file } in &self.holes {
            let _ = writeln!(text, "keys {column} {} {} {file}", hex(from), hex(to));
        }
        for file in &self.blobs {
            let _ = writeln!(text, "values {file}");
        }
        let sum = crc32c::crc32c(text.as_bytes());
        let _ = writeln!(text, "crc32c {sum:08x}");
        text
    }

    fn parse(text: &str) -> Option<Self> {
        let (rest, sum) = text.strip_suffix('\n')?.rsplit_once("crc32c ")?;
        if u32::from_str_radix(sum, 16).ok()? != crc32c::crc32c(rest.as_bytes()) {
            return None;
        }
        let mut holes = Self::default();
        for line in rest.strip_prefix(HEAD)?.lines().skip(1) {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["keys", column, from, to, file] => holes.add(Hole {
                    column: (*column).to_owned(),
                    from: unhex(from)?,
                    to: unhex(to)?,
                    file: (*file).to_owned(),
                }),
                ["values", file] => holes.add_blobs(file),
                _ => return None,
            }
        }
        Some(holes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.holes.is_empty() && self.blobs.is_empty()
    }

    pub(crate) fn has_blobs(&self) -> bool {
        !self.blobs.is_empty()
    }

    pub(crate) fn names(&self, file: &str) -> bool {
        self.blobs.contains(file) || self.holes.iter().any(|hole| hole.file == file)
    }

    pub(crate) fn add(&mut self, hole: Hole) {
        if hole.from < hole.to {
            self.holes.insert(hole);
        }
    }

    pub(crate) fn add_blobs(&mut self, file: &str) {
        self.blobs.insert(file.to_owned());
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Hole> {
        self.holes.iter()
    }

    /// Checks that `key` is not in a damaged range.
    ///
    /// # Errors
    /// Fails if it is.
    pub(crate) fn check(&self, column: &str, key: &[u8]) -> Result<(), StorageError> {
        let is_in = |hole: &&Hole| hole.column == column && hole.from.as_slice() <= key && key < hole.to.as_slice();
        self.holes.iter().find(is_in).map_or(Ok(()), |hole| Err(hole.error()))
    }

    /// Returns the damaged range that a scan of these stored keys reaches first.
    pub(crate) fn first(&self, column: &str, start: &[u8], end: &[u8], direction: Direction) -> Option<&Hole> {
        let meets = |hole: &&Hole| hole.column == column && hole.from.as_slice() < end && start < hole.to.as_slice();
        let met = self.holes.iter().filter(meets);
        match direction {
            Direction::Forward => met.min_by(|a, b| a.from.cmp(&b.from)),
            Direction::Backward => met.max_by(|a, b| a.to.cmp(&b.to)),
        }
    }

    /// Removes the ranges of a dropped shard, and all blob files, whose remaining damage the next compaction finds
    /// again. Returns true if the list has changed.
    pub(crate) fn clear(&mut self, shard: Shard) -> bool {
        let (start, end) = (keys::prefix(shard).to_vec(), keys::end(shard));
        let before = self.clone();
        let holes = std::mem::take(&mut self.holes);
        for hole in holes {
            let (below, above) = (hole.to.clone().min(start.clone()), hole.from.clone().max(end.clone()));
            self.add(Hole { to: below, ..hole.clone() });
            self.add(Hole { from: above, ..hole });
        }
        self.blobs.clear();
        *self != before
    }

    pub(crate) fn describe(&self) -> Option<String> {
        let named = |file: &String| if file == UNNAMED { "a file of large values".to_owned() } else { file.clone() };
        let files: BTreeSet<String> = self.holes.iter().map(|hole| &hole.file).chain(&self.blobs).map(named).collect();
        let files: Vec<String> = files.into_iter().collect();
        match files.as_slice() {
            [] => None,
            [file] => Some(format!("{file} is damaged")),
            files => Some(format!("{} are damaged", files.join(", "))),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn hole(from: &[u8], to: &[u8]) -> Hole {
        Hole { column: "bodies".to_owned(), from: from.to_vec(), to: to.to_vec(), file: "000007.sst".to_owned() }
    }

    fn stored(shard: u64, key: &[u8]) -> Vec<u8> {
        keys::stored(Shard(shard), key)
    }

    #[test]
    fn a_list_comes_back_and_a_damaged_one_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let mut holes = Holes::default();
        holes.add(hole(&stored(1, b"k"), &stored(3, b"")));
        holes.add_blobs("000009.blob");
        holes.save(directory.path()).unwrap();
        assert_eq!(Holes::load(directory.path()).unwrap(), holes);
        let text = fs::read_to_string(directory.path().join(FILE)).unwrap();
        fs::write(directory.path().join(FILE), text.replace("000007", "000008")).unwrap();
        assert!(Holes::load(directory.path()).is_err());
        Holes::default().save(directory.path()).unwrap();
        assert!(Holes::load(directory.path()).unwrap().is_empty());
    }

    #[test]
    fn a_hole_ends_with_the_last_of_its_shards() {
        let mut holes = Holes::default();
        holes.add(hole(&stored(1, b"k"), &stored(3, b"m")));
        assert_eq!(holes.iter().next().unwrap().shards(), 1..=3);
        assert!(holes.check("bodies", &stored(2, b"a")).is_err());
        assert!(holes.check("documents", &stored(2, b"a")).is_ok());
        assert!(holes.clear(Shard(2)));
        assert!(holes.check("bodies", &stored(2, b"a")).is_ok());
        assert!(holes.check("bodies", &stored(1, b"k")).is_err() && holes.check("bodies", &stored(3, b"l")).is_err());
        let (start, end) = (stored(0, b""), stored(9, b""));
        assert_eq!(holes.first("bodies", &start, &end, Direction::Forward).unwrap().shards(), 1..=1);
        assert_eq!(holes.first("bodies", &start, &end, Direction::Backward).unwrap().shards(), 3..=3);
        assert!(!holes.clear(Shard(2)) && holes.clear(Shard(1)) && holes.clear(Shard(3)));
        assert!(holes.is_empty());
    }
}
