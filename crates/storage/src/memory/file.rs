//! Checkpoints of a memory engine: one file with everything.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;

use super::{Contents, Shards};
use crate::{CommitToken, Result, Shard, ShardState, StorageError, Version};

const NAME: &str = "memory";
const MAGIC: &[u8; 8] = b"settee 3";

pub(super) fn write(shards: &Shards, directory: &Path) -> Result<()> {
    fs::create_dir(directory).map_err(io)?;
    let mut file = BufWriter::new(File::create_new(directory.join(NAME)).map_err(io)?);
    write_shards(shards, &mut file).map_err(io)?;
    let file = file.into_inner().map_err(|error| io(error.into_error()))?;
    file.sync_all().map_err(io)
}

fn write_shards(shards: &Shards, file: &mut impl Write) -> std::io::Result<()> {
    file.write_all(MAGIC)?;
    write_number(file, shards.contents.len() as u64)?;
    for (shard, contents) in &shards.contents {
        write_number(file, shard.0)?;
        write_number(file, contents.state.version.0)?;
        write_number(file, contents.is_dropped.into())?;
        file.write_all(&contents.state.token.0.to_be_bytes())?;
        let head = contents.head.as_deref();
        write_number(file, head.map_or(0, |head| head.len() as u64 + 1))?;
        file.write_all(head.unwrap_or_default())?;
        for tree in &contents.spaces {
            write_number(file, tree.entries)?;
            for (key, value) in tree.iter() {
                for bytes in [key, value] {
                    write_number(file, bytes.len() as u64)?;
                    file.write_all(bytes)?;
                }
            }
        }
    }
    Ok(())
}

pub(super) fn read(directory: &Path) -> Result<Shards> {
    let mut file = BufReader::new(File::open(directory.join(NAME)).map_err(io)?);
    let file = &mut file;
    let mut shards = Shards::default();
    if read_array(file)? != *MAGIC {
        return Err(StorageError::Corrupt("not a checkpoint of a memory engine".to_owned()));
    }
    for _ in 0..read_number(file)? {
        let shard = Shard(read_number(file)?);
        let version = Version(read_number(file)?);
        let is_dropped = read_number(file)? == 1;
        let token = CommitToken(u128::from_be_bytes(read_array(file)?));
        // The length plus one, or 0 if the shard has no head.
        let head = match read_number(file)? {
            0 => None,
            len => Some(read_exactly(file, len - 1)?),
        };
        let mut contents = Contents { state: ShardState { version, token }, is_dropped, head, ..Contents::default() };
        for tree in &mut contents.spaces {
            for _ in 0..read_number(file)? {
                let key = read_bytes(file)?;
                let value = read_bytes(file)?;
                tree.put(&key, &value);
            }
        }
        shards.contents.insert(shard, Arc::new(contents));
    }
    Ok(shards)
}

fn write_number(file: &mut impl Write, number: u64) -> std::io::Result<()> {
    file.write_all(&number.to_be_bytes())
}

fn read_number(file: &mut impl Read) -> Result<u64> {
    Ok(u64::from_be_bytes(read_array(file)?))
}

fn read_array<const N: usize>(file: &mut impl Read) -> Result<[u8; N]> {
    let mut array = [0; N];
    file.read_exact(&mut array).map_err(io)?;
    Ok(array)
}

fn read_bytes(file: &mut impl Read) -> Result<Vec<u8>> {
    let len = read_number(file)?;
    read_exactly(file, len)
}

fn read_exactly(file: &mut impl Read, len: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = file.take(len).read_to_end(&mut bytes).map_err(io)?;
    if read as u64 == len { Ok(bytes) } else { Err(StorageError::Corrupt("the checkpoint ends early".to_owned())) }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn io(error: std::io::Error) -> StorageError {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => StorageError::Corrupt("the checkpoint ends early".to_owned()),
        std::io::ErrorKind::StorageFull => StorageError::Full(error.to_string()),
        _ => StorageError::Io(error.to_string()),
    }
}
