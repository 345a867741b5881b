//! [`zip`]: zip archives for wheels, only of compressed files up to 4 GB.

use std::io::Write as _;

use anyhow::{Context as _, Result};
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

/// The first of January 1980, the first date of the format.
const DATE: u16 = 0x21;
const DEFLATED: u16 = 8;
/// 2.0, the first with compression.
const VERSION: u16 = 20;
/// The upper half of the version of the creator: Unix, so that file modes are applied.
const UNIX: u16 = 3 << 8;
const REGULAR_FILE: u32 = 0o100_000;

pub(crate) fn zip<'a>(files: impl Iterator<Item = (&'a str, u32, &'a [u8])>) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut directory = Vec::new();
    let mut count: u16 = 0;
    for (path, mode, content) in files {
        let offset = small(out.len())?;
        let packed = deflate(content)?;
        let mut about = Vec::new();
        shorts(&mut about, &[VERSION, 0, DEFLATED, 0, DATE]);
        longs(&mut about, &[checksum(content), small(packed.len())?, small(content.len())?]);
        shorts(&mut about, &[u16::try_from(path.len()).context("a path is too long")?, 0]);

        out.extend_from_slice(b"PK\x03\x04");
        out.extend_from_slice(&about);
        out.extend_from_slice(path.as_bytes());
        out.extend_from_slice(&packed);

        directory.extend_from_slice(b"PK\x01\x02");
        shorts(&mut directory, &[UNIX | VERSION]);
        directory.extend_from_slice(&about);
        shorts(&mut directory, &[0, 0, 0]);
        longs(&mut directory, &[(REGULAR_FILE | mode) << 16, offset]);
        directory.extend_from_slice(path.as_bytes());
        count = count.checked_add(1).context("there are too many files")?;
    }
    let (begin, length) = (small(out.len())?, small(directory.len())?);
    out.extend_from_slice(&directory);
    out.extend_from_slice(b"PK\x05\x06");
    shorts(&mut out, &[0, 0, count, count]);
    longs(&mut out, &[length, begin]);
    shorts(&mut out, &[0]);
    Ok(out)
}

fn small(length: usize) -> Result<u32> {
    u32::try_from(length).context("an archive is too large")
}

fn shorts(out: &mut Vec<u8>, numbers: &[u16]) {
    out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}

fn longs(out: &mut Vec<u8>, numbers: &[u32]) {
    out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}

fn checksum(content: &[u8]) -> u32 {
    let mut sum = Crc::new();
    sum.update(content);
    sum.sum()
}

fn deflate(content: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content).context("cannot compress")?;
    encoder.finish().context("cannot compress")
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn python_reads_packed_documents() -> Result<()> {
        let long = "x".repeat(100_000);
        let files = [("a/program", 0o755, long.as_bytes()), ("b.txt", 0o644, "text\n".as_bytes())];
        let archive = zip(files.into_iter())?;
        assert!(archive.len() < 1000, "{}", archive.len());
        let script = "import io, sys, zipfile\n\
             z = zipfile.ZipFile(io.BytesIO(sys.stdin.buffer.read()))\n\
             assert z.testzip() is None\n\
             for i in z.infolist(): print(i.filename, oct(i.external_attr >> 16), i.file_size, z.read(i)[:4])";
        let mut python = Command::new("python3");
        python.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = match python.spawn() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            child => child?,
        };
        child.stdin.take().context("it is piped")?.write_all(&archive)?;
        let printed = String::from_utf8(child.wait_with_output()?.stdout)?;
        assert_eq!(printed, "a/program 0o100755 100000 b'xxxx'\nb.txt 0o100644 5 b'text'\n");
        Ok(())
    }
}
