//! Blob files: [`check`] verifies the checksum of each value, [`BlobFiles`] reads the value that an entry refers to.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use super::bytes::{Bytes, is_compression, masked_crc, unpack};
use super::directory::{blob_path, open_regular};
use super::table::{Damage, MAX_KEY};

const HEADER: usize = 30;
const FOOTER: usize = 32;
const RECORD_HEADER: usize = 32;
const MAGIC: u32 = 2_395_959;

const KEY_MAX: u64 = 64 << 10;

/// Reads the lengths of the key and value of the record at `offset`, and the checksum of both.
fn record(bytes: &[u8], offset: usize) -> Option<(usize, usize, u32)> {
    let mut rest = Bytes(bytes.get(offset..offset.checked_add(RECORD_HEADER)?)?);
    let (lengths, _) = rest.0.split_at(24);
    let (key, value, expiration) = (rest.fixed64()?, rest.fixed64()?, rest.fixed64()?);
    if expiration != 0 || key > KEY_MAX || value > bytes.len() as u64 || rest.fixed32()? != masked_crc(&[lengths]) {
        return None;
    }
    Some((key as usize, value as usize, rest.fixed32()?))
}

fn is_header(bytes: &[u8]) -> bool {
    let mut rest = Bytes(bytes);
    let begins = rest.fixed32() == Some(MAGIC) && rest.fixed32() == Some(1) && rest.fixed32().is_some();
    // Values with an expiration time are not used.
    begins && rest.byte() == Some(0) && rest.byte().is_some_and(is_compression) && rest.0.iter().all(|byte| *byte == 0)
}

fn is_footer(bytes: &[u8]) -> bool {
    let (checked, crc) = bytes.split_at(FOOTER - 4);
    Bytes(checked).fixed32() == Some(MAGIC) && Bytes(crc).fixed32() == Some(masked_crc(&[checked]))
}

pub(super) fn check(bytes: &[u8], mut progress: impl FnMut(usize)) -> Vec<Damage> {
    let mut damage = Vec::new();
    if bytes.len() < HEADER + FOOTER {
        return vec![Damage::beside_data(0, bytes.len(), "blob file, cut off")];
    }
    if !is_header(&bytes[..HEADER]) {
        damage.push(Damage::beside_data(0, HEADER, "head of a blob file"));
    }
    let end = bytes.len() - FOOTER;
    if !is_footer(&bytes[end..]) {
        damage.push(Damage::beside_data(end, FOOTER, "end of a blob file"));
    }
    let content = &bytes[..end];
    let (mut at, mut before, mut open) = (HEADER, Vec::new(), damage.len());
    while at < end {
        let (next, key) = match record(content, at) {
            None => ((at + 1..end).find(|next| record(content, *next).is_some()).unwrap_or(end), None),
            Some((key, value, crc)) => {
                let start = at + RECORD_HEADER;
                let whole = content.get(start..start + key + value).filter(|whole| masked_crc(&[whole]) == crc);
                ((start + key + value).min(end), whole.map(|whole| whole[..key].to_vec()))
            }
        };
        progress(next - at);
        match key {
            Some(key) => {
                // Blobs are stored in key order, so the keys around the damage bound the lost keys.
                for damage in &mut damage[open..] {
                    damage.keys = Some((before.clone(), key.clone()));
                }
                (open, before) = (damage.len(), key);
            }
            None => damage.push(Damage {
                offset: at,
                length: next - at,
                description: "blob",
                keys: Some((before.clone(), MAX_KEY.to_vec())),
            }),
        }
        at = next;
    }
    damage.sort_by_key(|damage| damage.offset);
    damage
}

pub(super) struct BlobFiles {
    directory: PathBuf,
    files: HashMap<u64, Option<File>>,
}

const OPEN_MAX: usize = 64;

impl BlobFiles {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory, files: HashMap::new() }
    }

    pub(super) fn read(&mut self, key: &[u8], index: &[u8]) -> Option<Vec<u8>> {
        let mut rest = Bytes(index);
        if rest.byte()? != 1 {
            return None;
        }
        let (file, offset, size) = (rest.varint()?, rest.varint()?, rest.length()?);
        let compression = rest.byte()?;
        if self.files.len() >= OPEN_MAX && !self.files.contains_key(&file) {
            self.files.clear();
        }
        let directory = &self.directory;
        let file = self.files.entry(file).or_insert_with(|| open_regular(&blob_path(directory, file)).ok());
        let file = file.as_ref()?;
        let before = (key.len() + 4) as u64;
        if size as u64 > file.metadata().ok()?.len() {
            return None;
        }
        let mut bytes = vec![0; before as usize + size];
        file.read_exact_at(&mut bytes, offset.checked_sub(before)?).ok()?;
        let (crc, content) = bytes.split_at(4);
        if Bytes(crc).fixed32() != Some(masked_crc(&[content])) || !content.starts_with(key) {
            return None;
        }
        unpack(compression, &content[key.len()..])
    }
}
