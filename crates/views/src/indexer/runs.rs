//! [`RunDirectory`]: the sorted runs of one index that lie on disk while it is built.
//!
//! A run is written once, from start to end, and named by a number. Which of them count is not said here but by the
//! checkpoint in the index itself: a file that no checkpoint names is left over from something that ended early.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use settee_storage::Shard;

use super::merge::Source;
use super::sorter::decode;
use crate::error::{Result, ViewError};
use crate::tree::apply::Change;

/// Buffers of files that are written or read from start to end.
const FILE_BUFFER_BYTES: usize = 256 << 10;
/// The file that tells to which database the index belongs.
const OWNER: &str = "database";

/// Where the runs of one index lie.
#[derive(Debug, Default)]
pub(crate) struct RunDirectory {
    path: PathBuf,
    /// The least number that no run of this pass had.
    next: AtomicU64,
}

/// A run on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunFile {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    pub(crate) checksum: u32,
}

impl RunDirectory {
    /// The directory of the index in `shard`. Numbers of shards are never used again, so it is nobody else's.
    pub(crate) fn new(base: &Path, shard: Shard) -> Self {
        Self { path: base.join(shard.0.to_string()), next: AtomicU64::new(0) }
    }

    /// Begins a run.
    pub(crate) fn create(&self) -> Result<RunWriter> {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            match OpenOptions::new().write(true).create_new(true).open(self.file(number)) {
                Ok(file) => {
                    let out = BufWriter::with_capacity(FILE_BUFFER_BYTES, file);
                    return Ok(RunWriter { number, bytes: 0, checksum: crc32fast::Hasher::new(), out });
                }
                // One of before a crash, which a checkpoint may name.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => fs::create_dir_all(&self.path)?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads a run from its start.
    pub(crate) fn read(&self, run: &RunFile) -> Result<SpilledRows> {
        let input = BufReader::with_capacity(FILE_BUFFER_BYTES, File::open(self.file(run.number))?);
        let mut rows = SpilledRows { input, row: Vec::new(), key_len: 0, is_removal: false, is_at_end: false };
        rows.advance()?;
        Ok(rows)
    }

    /// Whether a run is on disk as it was written. Reads it.
    pub(crate) fn is_whole(&self, run: &RunFile) -> bool {
        let check = || {
            let mut file = File::open(self.file(run.number))?;
            if file.metadata()?.len() != run.bytes {
                return Ok(false);
            }
            let mut checksum = crc32fast::Hasher::new();
            let mut buffer = vec![0; FILE_BUFFER_BYTES];
            loop {
                match file.read(&mut buffer)? {
                    0 => return Ok::<_, io::Error>(checksum.finalize() == run.checksum),
                    len => checksum.update(&buffer[..len]),
                }
            }
        };
        check().unwrap_or(false)
    }

    /// Makes runs durable, with the name of the database that they belong to.
    pub(crate) fn sync<'r>(&self, runs: impl IntoIterator<Item = &'r RunFile>, database: &str) -> Result<()> {
        for run in runs {
            File::open(self.file(run.number))?.sync_all()?;
        }
        let owner = self.path.join(OWNER);
        if !owner.exists() {
            fs::create_dir_all(&self.path)?;
            fs::write(owner, database)?;
            self.path.parent().map_or(Ok(()), |base| File::open(base)?.sync_all())?;
        }
        Ok(File::open(&self.path)?.sync_all()?)
    }

    /// Removes everything.
    pub(crate) fn remove(&self) -> Result<()> {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn file(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number}.run"))
    }
}

/// The directories below `base`: the shards of their indexes, and the databases of those that have a checkpoint.
pub(crate) fn directories(base: &Path) -> Result<Vec<(Shard, Option<String>)>> {
    let mut found = Vec::new();
    let entries = match fs::read_dir(base) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if let Ok(shard) = entry.file_name().to_string_lossy().parse() {
            found.push((Shard(shard), fs::read_to_string(entry.path().join(OWNER)).ok()));
        }
    }
    Ok(found)
}

/// A run that is being written.
pub(crate) struct RunWriter {
    number: u64,
    bytes: u64,
    checksum: crc32fast::Hasher,
    out: BufWriter<File>,
}

impl RunWriter {
    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes += bytes.len() as u64;
        self.checksum.update(bytes);
        Ok(self.out.write_all(bytes)?)
    }

    pub(crate) fn finish(mut self) -> Result<RunFile> {
        self.out.flush()?;
        Ok(RunFile { number: self.number, bytes: self.bytes, checksum: self.checksum.finalize() })
    }
}

/// The rows of a [`RunFile`].
#[derive(Debug)]
pub(crate) struct SpilledRows {
    input: BufReader<File>,
    row: Vec<u8>,
    key_len: usize,
    is_removal: bool,
    is_at_end: bool,
}

impl SpilledRows {
    /// `None` at the end of the file, if that is where a row may end.
    fn number(&mut self) -> Result<Option<u64>> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let mut byte = [0];
            if self.input.read(&mut byte)? == 0 {
                return if shift == 0 { Ok(None) } else { Err(ViewError::Corrupt("sorted run")) };
            }
            number |= u64::from(byte[0] & 0x7f) << shift;
            if byte[0] < 0x80 {
                break;
            }
        }
        Ok(Some(number))
    }
}

impl Source for SpilledRows {
    fn row_key(&self) -> Option<&[u8]> {
        (!self.is_at_end).then(|| &self.row[..self.key_len])
    }

    fn change(&self) -> Result<Change<'_>> {
        let (row_key, payload) = self.row.split_at(self.key_len);
        decode(row_key, (!self.is_removal).then_some(payload))
    }

    fn advance(&mut self) -> Result<()> {
        let Some(key_len) = self.number()? else {
            self.is_at_end = true;
            return Ok(());
        };
        let payload_len = self.number()?.ok_or(ViewError::Corrupt("sorted run"))?;
        self.is_removal = payload_len == 0;
        self.key_len = usize::try_from(key_len).map_err(|_| ViewError::Corrupt("sorted run"))?;
        let len =
            usize::try_from(key_len + payload_len.saturating_sub(1)).map_err(|_| ViewError::Corrupt("sorted run"))?;
        self.row.resize(len, 0);
        self.input.read_exact(&mut self.row)?;
        Ok(())
    }
}
