//! [`open`]: opens a file or the standard input, decompresses it and counts the bytes read.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;
use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;

pub(super) const HEAD_BYTES: usize = 256 << 10;

pub(super) struct Input {
    pub(super) content: Box<dyn BufRead + Send>,
    pub(super) read: Arc<AtomicU64>,
    pub(super) length: Option<u64>,
    /// Bytes of content since the last row. The reader of rows resets it to 0.
    pub(super) since_row: Arc<AtomicU64>,
}

/// Maximum number of bytes that are read for one row, so that gigabytes of blanks end with an error.
const WITHOUT_ROW_BYTES: u64 = 128 << 20;

struct Bounded<R> {
    input: R,
    since_row: Arc<AtomicU64>,
}

impl<R: BufRead> Read for Bounded<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let length = self.fill_buf()?.read(out)?;
        self.consume(length);
        Ok(length)
    }
}

impl<R: BufRead> BufRead for Bounded<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.since_row.load(Ordering::Relaxed) > WITHOUT_ROW_BYTES {
            let most = WITHOUT_ROW_BYTES >> 20;
            return Err(io::Error::other(format!(
                "more than {most} MiB follow each other without a row that can be written"
            )));
        }
        self.input.fill_buf()
    }

    fn consume(&mut self, length: usize) {
        self.since_row.fetch_add(length as u64, Ordering::Relaxed);
        self.input.consume(length);
    }
}

pub(super) fn open(path: &Path) -> anyhow::Result<Input> {
    let read = Arc::new(AtomicU64::new(0));
    let (raw, length): (Box<dyn Read + Send>, _) = if path == Path::new("-") {
        (Box::new(io::stdin()), None)
    } else {
        let file = File::open(path).with_context(|| format!("{} cannot be read", path.display()))?;
        let metadata = file.metadata()?;
        (Box::new(file), metadata.is_file().then_some(metadata.len()))
    };
    let counted = Counted { input: raw, read: Arc::clone(&read) };
    let mut raw = BufReader::with_capacity(HEAD_BYTES, counted);
    let head = fill(&mut raw).with_context(|| format!("{} cannot be read", path.display()))?;
    let content: Box<dyn BufRead + Send> = if head.starts_with(&[0x1f, 0x8b]) {
        Box::new(BufReader::with_capacity(HEAD_BYTES, MultiGzDecoder::new(raw)))
    } else if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        Box::new(BufReader::with_capacity(HEAD_BYTES, Frames { raw: Some(raw), frame: None }))
    } else {
        Box::new(raw)
    };
    let since_row = Arc::new(AtomicU64::new(0));
    let content = Box::new(Bounded { input: content, since_row: Arc::clone(&since_row) });
    Ok(Input { content, read, length, since_row })
}

/// A pipe returns little data per read, so this may be shorter than [`HEAD_BYTES`].
pub(super) fn fill(input: &mut dyn BufRead) -> io::Result<&[u8]> {
    loop {
        match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(_) => break,
        }
    }
    input.fill_buf()
}

struct Frames<R: BufRead> {
    raw: Option<R>,
    frame: Option<Box<StreamingDecoder<R, ruzstd::decoding::FrameDecoder>>>,
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.frame {
                let length = frame.read(out)?;
                if length > 0 || out.is_empty() {
                    return Ok(length);
                }
                self.raw = self.frame.take().map(|frame| frame.into_inner());
            }
            let Some(mut raw) = self.raw.take() else { return Ok(0) };
            if raw.fill_buf()?.is_empty() {
                return Ok(0);
            }
            let frame = StreamingDecoder::new(raw).map_err(|error| io::Error::other(error.to_string()))?;
            self.frame = Some(Box::new(frame));
        }
    }
}

struct Counted<R> {
    input: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let length = self.input.read(out)?;
        self.read.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }
}
