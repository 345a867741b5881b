//! [`RunDirectory`]: the sorted runs of one index on disk during a build, each in a numbered file. Only the runs in a
//! checkpoint are valid.

use std::cell::{OnceCell, RefCell};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use settee_storage::Shard;
use settee_storage::codec::{Reader, put_len, put_varint};
use settee_storage::durable::{self, Readers};

use super::merge::{Merge, Ranked, Source};
use crate::error::{Result, ViewError};
use crate::index::RunFile;
use crate::leaf::Row;
use crate::tree::apply::Change;

const FILE_BUFFER_BYTES: usize = 256 << 10;
const OWNER: &str = "database";

#[derive(Debug, Default)]
pub(crate) struct RunDirectory {
    path: PathBuf,
    next: AtomicU64,
}

impl RunDirectory {
    /// The path is unique because shard numbers are never reused.
    pub(crate) fn new(base: &Path, shard: Shard) -> Self {
        Self { path: base.join(shard.0.to_string()), next: AtomicU64::new(0) }
    }

    pub(crate) fn create(&self) -> Result<RunWriter> {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            match OpenOptions::new().write(true).create_new(true).open(self.file(number)) {
                Ok(file) => {
                    let out = BufWriter::with_capacity(FILE_BUFFER_BYTES, file);
                    let (lengths, parts) = Default::default();
                    return Ok(RunWriter { number, bytes: 0, checksum: crc32fast::Hasher::new(), out, lengths, parts });
                }
                // A checkpoint may refer to this run of an interrupted build.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => durable::create_directories(&self.path)?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(crate) fn read(&self, run: &RunFile) -> Result<SpilledRows> {
        SpilledRows::open(File::open(self.file(run.number))?)
    }

    /// Reads the whole file to verify its checksum.
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

    pub(crate) fn sync<'r>(&self, runs: impl IntoIterator<Item = &'r RunFile>, database: &str) -> Result<()> {
        for run in runs {
            File::open(self.file(run.number))?.sync_all()?;
        }
        let owner = self.path.join(OWNER);
        if !owner.exists() {
            durable::write(&owner, Readers::Default, database.as_bytes())?;
        }
        Ok(durable::sync_directory(&self.path)?)
    }

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

/// Each open run needs a buffer, a row and a file.
const MERGE_FAN_IN: usize = if cfg!(test) { 3 } else { 64 };

/// Merges many runs into longer ones before opening them. Merged runs remain, because a checkpoint may refer to them.
pub(super) fn open(directory: &RunDirectory, mut runs: Vec<RunFile>) -> Result<Vec<Ranked<'static>>> {
    while runs.len() > MERGE_FAN_IN {
        let later = runs.split_off(MERGE_FAN_IN);
        let few = std::mem::replace(&mut runs, later);
        let mut out = directory.create()?;
        Merge::new(sources(directory, &few)?).for_each(|change| {
            out.push(change)?;
            Ok(ControlFlow::Continue(()))
        })?;
        runs.push(out.finish()?);
    }
    sources(directory, &runs)
}

fn sources(directory: &RunDirectory, runs: &[RunFile]) -> Result<Vec<Ranked<'static>>> {
    runs.iter().map(|run| Ok(Ranked::new(directory.read(run)?, 0))).collect()
}

pub(crate) struct RunWriter {
    number: u64,
    bytes: u64,
    checksum: crc32fast::Hasher,
    out: BufWriter<File>,
    lengths: Vec<u8>,
    parts: Vec<u8>,
}

impl RunWriter {
    pub(super) fn push(&mut self, change: Change<'_>) -> Result<()> {
        let Change { row_key, row } = change;
        let (mut lengths, mut parts) = (std::mem::take(&mut self.lengths), std::mem::take(&mut self.parts));
        parts.clear();
        let (mut key, mut value): (&[u8], &[u8]) = (&[], &[]);
        if let Some(row) = row {
            put_len(&mut parts, row.sort_len);
            put_len(&mut parts, row.key.len());
            (key, value) = (row.key, row.value);
        }
        lengths.clear();
        put_len(&mut lengths, row_key.len());
        put_varint(&mut lengths, row.map_or(0, |_| (parts.len() + key.len() + value.len()) as u64 + 1));
        [&lengths, row_key, &parts, key, value].into_iter().try_for_each(|bytes| self.write_all(bytes))?;
        (self.lengths, self.parts) = (lengths, parts);
        Ok(())
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes += bytes.len() as u64;
        self.checksum.update(bytes);
        Ok(self.out.write_all(bytes)?)
    }

    pub(crate) fn finish(mut self) -> Result<RunFile> {
        self.out.flush()?;
        Ok(RunFile { number: self.number, bytes: self.bytes, checksum: self.checksum.finalize() })
    }
}

/// A longer payload is read lazily, because only one of the merged runs provides the next row.
const LONG_BYTES: usize = if cfg!(test) { 200 } else { 64 << 10 };

#[derive(Debug)]
pub(crate) struct SpilledRows {
    input: RefCell<BufReader<File>>,
    row_key: Vec<u8>,
    payload: OnceCell<Vec<u8>>,
    payload_len: usize,
    is_removal: bool,
    is_at_end: bool,
}

impl SpilledRows {
    fn open(file: File) -> Result<Self> {
        let mut rows = Self {
            input: RefCell::new(BufReader::with_capacity(FILE_BUFFER_BYTES, file)),
            row_key: Vec::new(),
            payload: OnceCell::from(Vec::new()),
            payload_len: 0,
            is_removal: false,
            is_at_end: false,
        };
        rows.advance()?;
        Ok(rows)
    }

    fn payload(&self) -> Result<&[u8]> {
        if let Some(payload) = self.payload.get() {
            return Ok(payload);
        }
        let mut payload = vec![0; self.payload_len];
        self.input.borrow_mut().read_exact(&mut payload)?;
        Ok(self.payload.get_or_init(|| payload))
    }
}

fn read_number(input: &mut BufReader<File>) -> Result<Option<u64>> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let mut byte = [0];
        if input.read(&mut byte)? == 0 {
            return if shift == 0 { Ok(None) } else { Err(ViewError::Corrupt("sorted run")) };
        }
        number |= u64::from(byte[0] & 0x7f) << shift;
        if byte[0] < 0x80 {
            break;
        }
    }
    Ok(Some(number))
}

fn decode<'a>(row_key: &'a [u8], payload: Option<&'a [u8]>) -> Result<Change<'a>> {
    let Some(payload) = payload else {
        return Ok(Change { row_key, row: None });
    };
    let mut reader = Reader::new(payload, "sorted run");
    let sort_len = reader.length()?;
    let key = reader.bytes()?;
    Ok(Change { row_key, row: Some(Row { row_key, sort_len, key, value: &payload[reader.position()..] }) })
}

impl Source for SpilledRows {
    fn row_key(&self) -> Option<&[u8]> {
        (!self.is_at_end).then_some(&self.row_key)
    }

    fn change(&self) -> Result<Change<'_>> {
        let payload = if self.is_removal { None } else { Some(self.payload()?) };
        decode(&self.row_key, payload)
    }

    fn advance(&mut self) -> Result<()> {
        let input = self.input.get_mut();
        let unread = if self.payload.get().is_some() { 0 } else { self.payload_len };
        let mut payload = self.payload.take().unwrap_or_default();
        if unread > 0 {
            input.seek_relative(i64::try_from(unread).map_err(|_| ViewError::Corrupt("sorted run"))?)?;
        }
        let Some(key_len) = read_number(input)? else {
            self.is_at_end = true;
            return Ok(());
        };
        let payload_len = read_number(input)?.ok_or(ViewError::Corrupt("sorted run"))?;
        let narrow = |len: u64| usize::try_from(len).map_err(|_| ViewError::Corrupt("sorted run"));
        self.is_removal = payload_len == 0;
        self.payload_len = narrow(payload_len.saturating_sub(1))?;
        self.row_key.resize(narrow(key_len)?, 0);
        input.read_exact(&mut self.row_key)?;
        if self.payload_len <= LONG_BYTES {
            payload.resize(self.payload_len, 0);
            input.read_exact(&mut payload)?;
            payload.shrink_to(LONG_BYTES);
            self.payload = OnceCell::from(payload);
        }
        Ok(())
    }
}
