//! [`salvage`]: creates a new store from all readable data of another one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;

use rocksdb::{WriteBatch, WriteOptions};
use settee_storage::{Keyspace, Result, StorageError};

use super::batch::Writes;
use super::blob::BlobFiles;
use super::check::Versions;
use super::directory::{Directory, read_file, table_path};
use super::entry::{Entry, Kind};
use super::log::{Item, Log, is_cut};
use super::manifest::Manifest;
use super::merge::{LostKeys, Merge, Ranges, Source, UnopenedFile};
use super::table::Table;
use crate::damage::DamagedFiles;
use crate::error::translate;
use crate::keys::shard as shard_of;
use crate::options::{self, Tuned};
use crate::{Database, Options};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    pub entries: u64,
    pub bytes: u64,
    pub damaged: Vec<RangeInclusive<u64>>,
    /// True if the log has lost writes of unknown shards.
    pub lost_writes: bool,
    pub shards: BTreeSet<u64>,
}

const BATCH_BYTES: usize = 4 << 20;

/// Creates a store in `to`, which must not exist, from the readable data of the store in `from`, which is not changed.
/// `progress` receives the size of each written batch.
pub fn salvage(from: &Path, to: &Path, options: &Options, progress: &mut dyn FnMut(u64)) -> Result<Salvaged> {
    let found = Found::read(from).map_err(|error| StorageError::Io(format!("{}: {error}", from.display())))?;
    let Tuned { database: opened_with, columns, .. } = Tuned::new(options);
    let database = Database::open_cf_descriptors(&opened_with, to, columns).map_err(translate)?;
    let mut salvaged = Salvaged { lost_writes: found.lost_writes, ..Salvaged::default() };
    let mut damaged: BTreeSet<(u64, u64)> = found.gaps.iter().map(|shard| (*shard, *shard)).collect();
    // An earlier version emptied damaged blocks and listed their keys in this file.
    if DamagedFiles::load(from).is_err() {
        damaged.insert((0, u64::MAX));
    }
    let names = Keyspace::ALL.iter().map(|space| space.name()).chain([options::STATE]);
    let Found { directory, columns, mut logged, mut ranges, mut unopened, .. } = found;
    let mut blobs = BlobFiles::new(directory.path.clone());
    for name in names {
        let Some(number) = columns.iter().find(|(_, known)| *known == name).map(|(number, _)| *number) else {
            continue;
        };
        let mut writes = logged.remove(&number).unwrap_or_default();
        writes.sort_by(|a, b| (&a.key, b.seq).cmp(&(&b.key, a.seq)));
        let logged = Source {
            bytes: Vec::new(),
            checksum: 0,
            base: 0,
            data_ranges: VecDeque::new(),
            entries: writes.into(),
            last: Vec::new(),
        };
        let column = database.cf_handle(name).expect("it was opened with all of them");
        let merge = Merge::new(
            unopened.remove(&number).unwrap_or_default(),
            logged,
            ranges.remove(&number).unwrap_or_default(),
        );
        let lost = copy(merge, &mut blobs, &mut salvaged, &mut |batch, bytes| {
            let batch = batch.into_iter().fold(WriteBatch::default(), |mut all, (key, value)| {
                all.put_cf(column, key, value);
                all
            });
            let mut unlogged = WriteOptions::default();
            unlogged.disable_wal(true);
            progress(bytes as u64);
            database.write_opt(batch, &unlogged).map_err(translate)
        })?;
        damaged.extend(lost.iter().map(|LostKeys { after, through }| (shard_of(after), shard_of(through))));
        database.flush_cf(column).map_err(translate)?;
    }
    salvaged.damaged = damaged.into_iter().map(|(from, through)| from..=through).collect();
    Ok(salvaged)
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn copy(
    mut merge: Merge,
    blobs: &mut BlobFiles,
    salvaged: &mut Salvaged,
    write: &mut dyn FnMut(Pairs, usize) -> Result<()>,
) -> Result<Vec<LostKeys>> {
    let (mut batch, mut bytes, mut lost) = (Pairs::new(), 0, Vec::new());
    while let Some(Entry { key, kind, value, .. }) = merge.next() {
        let value = match kind {
            Kind::Blob => blobs.read(&key, &value),
            _ => Some(value),
        };
        let Some(value) = value else {
            lost.push(LostKeys { after: key.clone(), through: key });
            continue;
        };
        bytes += key.len() + value.len();
        let shard = shard_of(&key);
        if salvaged.shards.last() != Some(&shard) {
            salvaged.shards.insert(shard);
        }
        salvaged.entries += 1;
        salvaged.bytes += (key.len() + value.len()) as u64;
        batch.push((key, value));
        if bytes >= BATCH_BYTES {
            write(std::mem::take(&mut batch), bytes)?;
            bytes = 0;
        }
    }
    write(batch, bytes)?;
    lost.append(&mut merge.lost);
    Ok(lost)
}

struct Found {
    directory: Directory,
    columns: BTreeMap<u32, String>,
    logged: BTreeMap<u32, Vec<Entry>>,
    ranges: BTreeMap<u32, Ranges>,
    unopened: BTreeMap<u32, Vec<UnopenedFile>>,
    gaps: BTreeSet<u64>,
    lost_writes: bool,
}

impl Found {
    fn read(from: &Path) -> io::Result<Self> {
        let directory = Directory::read_regular(from)?;
        let manifest = directory.manifest()?.unwrap_or_default();
        let mut columns = manifest.columns.clone();
        if !manifest.damage.is_empty() || columns.len() <= Keyspace::ALL.len() {
            columns = usual_columns();
        }
        let mut found = Self {
            columns,
            logged: BTreeMap::new(),
            ranges: BTreeMap::new(),
            unopened: BTreeMap::new(),
            gaps: BTreeSet::new(),
            lost_writes: false,
            directory,
        };
        found.read_tables(&manifest);
        found.read_logs(&manifest);
        Ok(found)
    }

    fn read_tables(&mut self, manifest: &Manifest) {
        let mut numbers: BTreeSet<u64> = manifest.tables.keys().copied().collect();
        if !manifest.damage.is_empty() || manifest.tables.is_empty() {
            numbers.extend(self.directory.tables.keys().filter(|number| !manifest.gone.contains(number)));
        }
        for number in numbers {
            let path = table_path(&self.directory.path, number);
            let known = manifest.tables.get(&number);
            let Ok(bytes) = read_file(&path) else {
                if let Some(known) = known {
                    self.unopened.entry(known.column).or_default().push(UnopenedFile {
                        smallest: known.smallest.clone(),
                        largest: known.largest.clone(),
                        open: Box::new(|| None),
                    });
                }
                continue;
            };
            let table = Table::open(&bytes);
            let column = known.map(|known| known.column).or(table.column());
            // A file without readable properties may belong to any column family and is skipped.
            let Some(column) = column else { continue };
            let (_, _, data_ranges, ranges) = table.into_parts();
            for range in &ranges {
                self.ranges.entry(column).or_default().add(range);
            }
            let smallest = known.map(|known| known.smallest.clone());
            let largest = known.map(|known| known.largest.clone());
            let last = data_ranges.iter().rev().find_map(|stretch| stretch.through.clone());
            let unopened = UnopenedFile {
                smallest: smallest.unwrap_or_default(),
                largest: largest.or(last).unwrap_or_default(),
                open: Box::new(move || source(&path)),
            };
            self.unopened.entry(column).or_default().push(unopened);
        }
    }

    fn read_logs(&mut self, manifest: &Manifest) {
        let state = self.columns.iter().find(|(_, name)| *name == options::STATE).map(|(number, _)| *number);
        let mut versions = Versions::new(state);
        let last = self.directory.logs.keys().next_back().copied();
        for (number, path) in &self.directory.logs {
            if *number < manifest.min_log && manifest.damage.is_empty() {
                continue;
            }
            let Ok(bytes) = read_file(path) else {
                self.lost_writes = true;
                continue;
            };
            for item in Log::new(&bytes) {
                let writes = match item {
                    Item::Record(_, record) => Writes::decode(&record),
                    Item::Damage { is_last: true, offset, .. } if Some(*number) == last && is_cut(&bytes, offset) => {
                        continue;
                    }
                    Item::Damage { .. } => None,
                };
                let Some(writes) = writes else {
                    self.lost_writes = true;
                    continue;
                };
                versions.note(&writes);
                for write in writes.writes {
                    if write.entry.kind == Kind::RangeDeletion {
                        self.ranges.entry(write.column).or_default().add(&write.entry);
                    } else {
                        self.logged.entry(write.column).or_default().push(write.entry);
                    }
                }
            }
        }
        self.gaps = versions.take_gaps();
    }
}

fn source(path: &Path) -> Option<Source> {
    let bytes = read_file(path).ok()?;
    let (checksum, base, data_ranges, _) = Table::open(&bytes).into_parts();
    Some(Source { bytes, checksum, base, data_ranges: data_ranges.into(), entries: VecDeque::new(), last: Vec::new() })
}

/// Numbers of column families in a new store, in the order in which they are opened.
fn usual_columns() -> BTreeMap<u32, String> {
    let names = Keyspace::ALL.iter().map(|space| space.name()).chain([options::STATE]);
    std::iter::once("default").chain(names).map(str::to_owned).zip(0..).map(|(name, number)| (number, name)).collect()
}
