//! Files of segments, stored in pieces in the shard of an index. [`FileStore`] writes them before the commit that
//! publishes them; [`Files`] is the directory for `tantivy`, whose `meta.json` is in memory only.

use std::collections::HashMap;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use settee_storage::{
    Batch, CommitToken, Direction, Durability, Engine, Expect, KeyRange, Keyspace, Purpose, Shard, ShardState,
    Snapshot, commit_once,
};
use tantivy::HasLen;
use tantivy::directory::error::{DeleteError, LockError, OpenReadError, OpenWriteError};
use tantivy::directory::{
    AntiCallToken, Directory, DirectoryLock, FileHandle, Lock, ManagedDirectory, OwnedBytes, RamDirectory,
    TerminatingWrite, WatchCallback, WatchHandle, WritePtr,
};

use super::cache::Part;
use super::record::{Found, Record};
use super::{Caches, FileRecord, keys};
use crate::error::{Error, Result};

/// A compromise between the number and the size of reads.
const PIECE_BYTES: usize = if cfg!(test) { 1_000 } else { 128 << 10 };

const BATCH_BYTES: usize = 4 << 20;

const REMOVED_PER_COMMIT: usize = 1_000;

/// Generates commit tokens that are unique among processes.
pub type NewToken = Arc<dyn Fn() -> CommitToken + Send + Sync>;

pub(crate) struct FileStore {
    engine: Arc<dyn Engine>,
    shard: Shard,
    new_token: NewToken,
    caches: Arc<Caches>,
    /// The commit that the next one follows; set by the writer.
    state: Mutex<ShardState>,
    next_file: Mutex<u64>,
    /// Last error of the store, because `tantivy` keeps only the text of some errors.
    last_error: Mutex<Option<Error>>,
}

impl FileStore {
    pub(crate) fn new(engine: Arc<dyn Engine>, shard: Shard, new_token: NewToken, caches: Arc<Caches>) -> Self {
        Self {
            engine,
            shard,
            new_token,
            caches,
            state: Mutex::default(),
            next_file: Mutex::default(),
            last_error: Mutex::default(),
        }
    }

    pub(crate) fn shard(&self) -> Shard {
        self.shard
    }

    pub(crate) fn find(&self) -> Result<Found> {
        Found::read(&*self.engine.snapshot(self.shard)?)
    }

    pub(crate) fn approximate_size(&self) -> u64 {
        self.engine.approximate_size(self.shard)
    }

    pub(crate) fn reclaim(&self) -> Result<()> {
        Ok(self.engine.reclaim(self.shard)?)
    }

    pub(crate) fn begin(&self, state: ShardState, next_file: u64) {
        *self.state.lock() = state;
        *self.next_file.lock() = next_file;
    }

    pub(crate) fn state(&self) -> ShardState {
        *self.state.lock()
    }

    pub(crate) fn next_file(&self) -> u64 {
        *self.next_file.lock()
    }

    fn new_file(&self) -> u64 {
        let mut next = self.next_file.lock();
        *next += 1;
        *next - 1
    }

    /// Replaces the record. Not synced: data lost in a crash can be indexed again.
    pub(crate) fn publish(&self, record: &Record, was_entry: bool) -> Result<bool> {
        let bytes = record.encode();
        let mut batch = Batch::new();
        let is_entry = !Record::fits_head(&bytes);
        if is_entry {
            batch.set_head(&[]);
            batch.put(Keyspace::Catalog, keys::RECORD, &bytes);
        } else {
            batch.set_head(&bytes);
            if was_entry {
                batch.delete(Keyspace::Catalog, keys::RECORD);
            }
        }
        self.commit(batch)?;
        Ok(is_entry)
    }

    pub(crate) fn with_store_error<T>(&self, outcome: Result<T>) -> Result<T> {
        match outcome {
            Err(Error::Corrupt(reason)) => Err(self.last_error.lock().take().unwrap_or(Error::Corrupt(reason))),
            outcome => outcome,
        }
    }

    fn record_error<T>(&self, outcome: Result<T>) -> Result<T> {
        if let Err(error) = &outcome {
            *self.last_error.lock() = Some(error.clone());
        }
        outcome
    }

    fn commit(&self, batch: Batch) -> Result<()> {
        self.record_error(self.try_commit(batch))
    }

    fn try_commit(&self, batch: Batch) -> Result<()> {
        let mut state = self.state.lock();
        let token = (self.new_token)();
        let engine = self.engine.as_ref();
        let committed = commit_once(engine, self.shard, state.version, token, batch, Durability::Buffered)?;
        // Only another process can have committed at this version.
        *state = ShardState { version: committed.ok_or(Error::Contended)?, token };
        Ok(())
    }

    pub(crate) fn remove(&self, files: Range<u64>) -> Result<()> {
        let (start, end) = (keys::piece(files.start, 0), keys::piece(files.end, 0));
        let range = KeyRange { start: Some(&start), end: Some(&end) };
        let snapshot = self.engine.snapshot(self.shard)?;
        let mut pieces = snapshot.scan(Keyspace::IndexNodes, range, Direction::Forward, Expect::Few)?;
        let mut batch = Batch::of(Purpose::Room);
        while let Some((key, _)) = pieces.next()? {
            batch.delete(Keyspace::IndexNodes, key);
            if batch.len() == REMOVED_PER_COMMIT {
                self.commit(std::mem::replace(&mut batch, Batch::of(Purpose::Room)))?;
            }
        }
        if batch.is_empty() { Ok(()) } else { self.commit(batch) }
    }

    pub(crate) fn remove_files(&self, files: &[FileRecord]) -> Result<()> {
        let mut batch = Batch::of(Purpose::Room);
        for file in files {
            let pieces = file.bytes.div_ceil(PIECE_BYTES as u64);
            for piece in 0..u32::try_from(pieces).unwrap_or(u32::MAX) {
                batch.delete(Keyspace::IndexNodes, &keys::piece(file.number, piece));
                if batch.len() == REMOVED_PER_COMMIT {
                    self.commit(std::mem::replace(&mut batch, Batch::of(Purpose::Room)))?;
                }
            }
        }
        if batch.is_empty() { Ok(()) } else { self.commit(batch) }
    }

    #[cfg(test)]
    pub(crate) fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    pub(crate) fn longest_vectors(&self) -> usize {
        self.caches.longest_vectors()
    }

    #[cfg(test)]
    pub(crate) fn stored_files(&self) -> Vec<u64> {
        let snapshot = self.engine.snapshot(self.shard).expect("a snapshot");
        let mut cursor = snapshot
            .scan(Keyspace::IndexNodes, KeyRange::default(), Direction::Forward, Expect::All)
            .expect("a cursor");
        let mut files = Vec::new();
        while let Some((key, _)) = cursor.next().expect("an entry") {
            files.extend(keys::file_of(key));
        }
        files.dedup();
        files
    }

    fn read(&self, file: &FileRecord, range: Range<usize>, through_cache: bool) -> Result<OwnedBytes> {
        if range.is_empty() {
            return Ok(OwnedBytes::empty());
        }
        let (first, last) = (range.start / PIECE_BYTES, (range.end - 1) / PIECE_BYTES);
        // A read within a piece caches the piece; a longer one caches the requested range.
        let part = if first == last {
            first * PIECE_BYTES..((first + 1) * PIECE_BYTES).min(usize::try_from(file.bytes).unwrap_or(usize::MAX))
        } else {
            range.clone()
        };
        let cache = self.caches.of(&file.name, first != last);
        let key = Part { shard: self.shard, file: file.number, start: part.start as u64, end: part.end as u64 };
        if through_cache && let Some(bytes) = cache.get(key) {
            return Ok(bytes.slice(range.start - part.start..range.end - part.start));
        }
        let bytes = OwnedBytes::new(pieces(&*self.engine.snapshot(self.shard)?, file, part.clone())?);
        if through_cache {
            cache.put(key, &bytes);
        }
        Ok(bytes.slice(range.start - part.start..range.end - part.start))
    }
}

fn pieces(snapshot: &dyn Snapshot, file: &FileRecord, part: Range<usize>) -> Result<Vec<u8>> {
    if part.is_empty() {
        return Ok(Vec::new());
    }
    let (first, last) = (part.start / PIECE_BYTES, (part.end - 1) / PIECE_BYTES);
    let number = |piece: usize| u32::try_from(piece).map_err(|_| Error::Corrupt("a file is too long".to_owned()));
    let keys: Vec<_> =
        (first..=last).map(|piece| Ok(keys::piece(file.number, number(piece)?))).collect::<Result<_>>()?;
    let keys: Vec<&[u8]> = keys.iter().map(<[u8; 12]>::as_slice).collect();
    let pieces = snapshot.multi_get(Keyspace::IndexNodes, &keys)?;
    let mut out = Vec::with_capacity(part.len());
    for (piece, bytes) in (first..=last).zip(pieces) {
        let bytes = bytes.ok_or_else(|| Error::Corrupt(format!("piece {piece} of {} is missing", file.name)))?;
        let start = part.start.saturating_sub(piece * PIECE_BYTES);
        let end = bytes.len().min(part.end - piece * PIECE_BYTES);
        let wanted = bytes.get(start..end).ok_or_else(|| Error::Corrupt(format!("piece {piece} of {}", file.name)))?;
        out.extend_from_slice(wanted);
    }
    match out.len() == part.len() {
        true => Ok(out),
        false => Err(Error::Corrupt(format!("{} is shorter than it was", file.name))),
    }
}

/// Reads all files of the index in a shard, and verifies their checksums.
pub fn verify(engine: &dyn Engine, shard: Shard) -> Result<()> {
    let snapshot = engine.snapshot(shard)?;
    let record = Found::read(&*snapshot)?.record.unwrap_or_default();
    for file in record.files() {
        let length = usize::try_from(file.bytes).map_err(|_| Error::Corrupt("a file is too long".to_owned()))?;
        let (memory, path) = (RamDirectory::create(), Path::new(&file.name));
        memory.atomic_write(path, &pieces(&*snapshot, file, 0..length)?).map_err(Error::from_io)?;
        let directory = ManagedDirectory::wrap(Box::new(memory))?;
        let is_intact = directory.validate_checksum(path).map_err(|error| Error::Corrupt(error.to_string()))?;
        if !is_intact {
            return Err(Error::Corrupt(format!("file {}", file.name)));
        }
    }
    Ok(())
}

#[derive(Clone)]
pub(crate) struct Files {
    file_store: Arc<FileStore>,
    through_cache: bool,
    known: Arc<RwLock<HashMap<PathBuf, FileRecord>>>,
    meta_files: Arc<Mutex<HashMap<PathBuf, Vec<u8>>>>,
    replacements: Arc<RwLock<HashMap<PathBuf, Arc<dyn FileHandle>>>>,
}

impl Files {
    /// Files that are read once as a whole should bypass the cache.
    pub(crate) fn of(file_store: &Arc<FileStore>, record: &Record, through_cache: bool) -> Self {
        let known = record.files().map(|file| (PathBuf::from(&file.name), file.clone())).collect();
        Self {
            file_store: Arc::clone(file_store),
            through_cache,
            known: Arc::new(RwLock::new(known)),
            meta_files: Arc::default(),
            replacements: Arc::default(),
        }
    }

    pub(crate) fn named(&self, prefix: &str) -> Vec<FileRecord> {
        let mut files: Vec<_> =
            self.known.read().values().filter(|file| file.name.starts_with(prefix)).cloned().collect();
        files.sort_by_key(|file| file.number);
        files
    }

    pub(crate) fn adopt(&self, file: FileRecord) {
        self.known.write().insert(PathBuf::from(&file.name), file);
    }

    pub(crate) fn replace(&self, path: PathBuf, by: Arc<dyn FileHandle>) {
        self.replacements.write().insert(path, by);
    }
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Files").field("shard", &self.file_store.shard).finish_non_exhaustive()
    }
}

struct Stored {
    file_store: Arc<FileStore>,
    file: FileRecord,
    through_cache: bool,
}

impl std::fmt::Debug for Stored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.file)
    }
}

impl HasLen for Stored {
    fn len(&self) -> usize {
        usize::try_from(self.file.bytes).unwrap_or(usize::MAX)
    }
}

impl FileHandle for Stored {
    fn read_bytes(&self, range: Range<usize>) -> io::Result<OwnedBytes> {
        self.file_store
            .record_error(self.file_store.read(&self.file, range, self.through_cache))
            .map_err(io::Error::other)
    }
}

struct Writing {
    files: Files,
    file: FileRecord,
    piece: Vec<u8>,
    pieces: u32,
    batch: Batch,
}

impl Writing {
    fn flush_piece(&mut self) -> Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        self.batch.put(Keyspace::IndexNodes, &keys::piece(self.file.number, self.pieces), &self.piece);
        self.pieces += 1;
        self.piece.clear();
        if self.batch.size_bytes() >= BATCH_BYTES { self.flush_batch() } else { Ok(()) }
    }

    fn flush_batch(&mut self) -> Result<()> {
        if self.batch.is_empty() { Ok(()) } else { self.files.file_store.commit(std::mem::take(&mut self.batch)) }
    }
}

impl Write for Writing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = bytes.len().min(PIECE_BYTES - self.piece.len());
        self.piece.extend_from_slice(&bytes[..length]);
        self.file.bytes += length as u64;
        if self.piece.len() == PIECE_BYTES {
            self.flush_piece().map_err(io::Error::other)?;
        }
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TerminatingWrite for Writing {
    fn terminate_ref(&mut self, _: AntiCallToken) -> io::Result<()> {
        self.flush_piece().and_then(|()| self.flush_batch()).map_err(io::Error::other)?;
        self.files.adopt(self.file.clone());
        Ok(())
    }
}

impl Directory for Files {
    fn get_file_handle(&self, path: &Path) -> Result<Arc<dyn FileHandle>, OpenReadError> {
        if let Some(replacements) = self.replacements.read().get(path) {
            return Ok(Arc::clone(replacements));
        }
        let file = self.known.read().get(path).cloned();
        let file = file.ok_or_else(|| OpenReadError::FileDoesNotExist(path.to_owned()))?;
        Ok(Arc::new(Stored { file_store: Arc::clone(&self.file_store), file, through_cache: self.through_cache }))
    }

    fn delete(&self, path: &Path) -> Result<(), DeleteError> {
        // The next publication removes files without a record.
        let was_known = self.known.write().remove(path).is_some();
        if was_known { Ok(()) } else { Err(DeleteError::FileDoesNotExist(path.to_owned())) }
    }

    fn exists(&self, path: &Path) -> Result<bool, OpenReadError> {
        Ok(self.known.read().contains_key(path) || self.meta_files.lock().contains_key(path))
    }

    fn open_write(&self, path: &Path) -> Result<WritePtr, OpenWriteError> {
        let name = path.to_string_lossy().into_owned();
        let file = FileRecord { name, number: self.file_store.new_file(), bytes: 0 };
        let piece = Vec::new();
        let writing = Writing { files: self.clone(), file, piece, pieces: 0, batch: Batch::new() };
        Ok(WritePtr::with_capacity(PIECE_BYTES.min(8 << 10), Box::new(writing)))
    }

    fn atomic_read(&self, path: &Path) -> Result<Vec<u8>, OpenReadError> {
        self.meta_files.lock().get(path).cloned().ok_or_else(|| OpenReadError::FileDoesNotExist(path.to_owned()))
    }

    fn atomic_write(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        self.meta_files.lock().insert(path.to_owned(), data.to_vec());
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    /// No lock is needed: an index has one writer, and readers see published files only.
    fn acquire_lock(&self, _: &Lock) -> Result<DirectoryLock, LockError> {
        Ok(DirectoryLock::from(Box::new(())))
    }

    fn watch(&self, _: WatchCallback) -> tantivy::Result<WatchHandle> {
        Ok(WatchHandle::empty())
    }
}
