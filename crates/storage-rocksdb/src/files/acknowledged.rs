//! [`Acknowledged`]: a lower bound of the durable state of a store, in a separate file. It reveals a missing, truncated
//! or replaced log, which RocksDB cannot detect. A line is written when the store is opened, then at most once per call
//! of [`Engine::maintain`](settee_storage::Engine::maintain), and at the end. The state in it was durable before, so
//! lines need no sync, and the last complete line is used.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use settee_storage::durable::{self, Readers};

use super::directory::{identity, newest_log};

pub(crate) const FILE: &str = "ACKNOWLEDGED";

/// A log is identified by the checksum of this many bytes at its end.
const TAIL_BYTES: u64 = 4096;

const FILE_BYTES_MAX: u64 = 64 << 10;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    pub(crate) manifest: u64,
    pub(crate) log: u64,
    pub(crate) length: u64,
    crc: u32,
    pub(crate) sequence: u64,
    /// Empty if the store has no identity.
    pub(crate) identity: String,
}

impl Acknowledged {
    pub(crate) fn load(store: &Path) -> Option<Self> {
        let bytes = fs::read(store.join(FILE)).ok()?;
        bytes.split(|byte| *byte == b'\n').filter_map(|line| Self::parse(std::str::from_utf8(line).ok()?)).next_back()
    }

    fn line(&self) -> String {
        let Self { manifest, log, length, crc, sequence, identity } = self;
        let text = format!("manifest {manifest} log {log} {length} {crc:08x} sequence {sequence} store {identity}");
        format!("{text} crc32c {:08x}\n", crc32c::crc32c(text.as_bytes()))
    }

    fn parse(line: &str) -> Option<Self> {
        let (text, sum) = line.rsplit_once(" crc32c ")?;
        if u32::from_str_radix(sum, 16).ok()? != crc32c::crc32c(text.as_bytes()) {
            return None;
        }
        let words: Vec<&str> = text.split(' ').collect();
        let ["manifest", manifest, "log", log, length, crc, "sequence", sequence, "store", identity] = words[..] else {
            return None;
        };
        Some(Self {
            manifest: manifest.parse().ok()?,
            log: log.parse().ok()?,
            length: length.parse().ok()?,
            crc: u32::from_str_radix(crc, 16).ok()?,
            sequence: sequence.parse().ok()?,
            identity: identity.to_owned(),
        })
    }

    /// Returns a description if the log is missing, too short or another one.
    pub(crate) fn check_log(&self, path: &Path) -> Result<(), String> {
        let file = File::open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => "is missing".to_owned(),
            _ => format!("cannot be read: {error}"),
        })?;
        let there = file.metadata().map_or(0, |metadata| metadata.len());
        if there < self.length {
            return Err(format!("has {there} bytes, and {} of it were acknowledged", self.length));
        }
        match tail(&file, self.length) {
            Ok(crc) if crc == self.crc => Ok(()),
            Ok(_) => Err(format!("is damaged or of another store: the bytes before {} differ", self.length)),
            Err(error) => Err(format!("cannot be read: {error}")),
        }
    }
}

fn tail(file: &File, length: u64) -> io::Result<u32> {
    let count = length.min(TAIL_BYTES);
    let mut bytes = vec![0; count as usize];
    file.read_exact_at(&mut bytes, length - count)?;
    Ok(crc32c::crc32c(&bytes))
}

#[derive(Debug)]
pub(crate) struct Recorder {
    store: PathBuf,
    identity: String,
    written: Mutex<(u64, u64)>,
}

impl Recorder {
    pub(crate) fn new(store: &Path) -> Self {
        let identity = identity(store).unwrap_or_default();
        Self { store: store.to_owned(), identity, written: Mutex::new((u64::MAX, u64::MAX)) }
    }

    /// Records the state that is durable after `sync`. `sequence` must be the sequence number of a write that was
    /// completed before this call. A failure to write the line is ignored, because the previous line stays valid.
    pub(crate) fn note<E>(&self, sequence: u64, sync: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let mut written = self.written.lock();
        let (last, bytes) = *written;
        if last == sequence {
            return Ok(());
        }
        let newest = newest_log(&self.store);
        sync()?;
        if let Ok(Some((manifest, log, path, length))) = newest
            && let Ok(length) =
                self.write(bytes, &path, &Acknowledged { manifest, log, length, sequence, ..Acknowledged::default() })
        {
            *written = (sequence, length);
        }
        Ok(())
    }

    fn write(&self, bytes: u64, log: &Path, state: &Acknowledged) -> io::Result<u64> {
        let crc = tail(&File::open(log)?, state.length)?;
        let line = Acknowledged { crc, identity: self.identity.clone(), ..state.clone() }.line();
        let path = self.store.join(FILE);
        if bytes > FILE_BYTES_MAX {
            durable::write(&path, Readers::Owner, line.as_bytes())?;
            return Ok(line.len() as u64);
        }
        OpenOptions::new().append(true).open(&path)?.write_all(line.as_bytes())?;
        Ok(bytes + line.len() as u64)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_line_counts() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(Acknowledged::load(directory.path()), None);
        let state =
            |sequence| Acknowledged { manifest: 5, log: 4, length: 10, crc: 7, sequence, identity: "a-b".to_owned() };
        let write = |text: &str| fs::write(directory.path().join(FILE), text).unwrap();
        let (one, two) = (state(1).line(), state(2).line());
        write(&format!("{one}{two}"));
        assert_eq!(Acknowledged::load(directory.path()), Some(state(2)));
        for torn in [&two[..two.len() - 2], &two.replace("sequence 2", "sequence 9"), "\0\0\0"] {
            write(&format!("{one}{torn}"));
            assert_eq!(Acknowledged::load(directory.path()), Some(state(1)), "{torn}");
        }
        write("\0\0\0\n");
        assert_eq!(Acknowledged::load(directory.path()), None);
    }
}
