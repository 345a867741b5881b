//! [`copy`]: copies all entries from one store to another. Each shard is written in pieces that are no commits. The
//! last piece sets the version, token and head of the original, so that update sequences stay valid. Progress is stored
//! in a separate shard of the target, [`JOURNAL`]: a server refuses to start while that shard has entries, and a second
//! run resumes after the last piece.

use anyhow::{Context as _, bail, ensure};
use settee_database::verify::shards;
use settee_storage::codec::{Reader, put_varint};
use settee_storage::{
    Batch, CommitToken, Cursor, Direction, Engine, Expect, KeyRange, Keyspace, Shard, ShardState, Snapshot,
    StorageError, Version,
};

use crate::verify::Progress;

/// Contains the progress of a copy. No database ever uses this shard.
const JOURNAL: Shard = Shard(u64::MAX);

/// Key of the last written piece, and prefix of the keys of completed shards.
const AT: &[u8] = b"at";
const DONE: &[u8] = b"done/";

/// The catalog refers to all other shards, so it is copied last.
const CATALOG: Shard = Shard(0);

pub(super) const PIECE_ROWS: usize = 5_000;
const PIECE_BYTES: usize = 4 << 20;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Copied {
    pub(super) shards: u64,
    pub(super) entries: u64,
    pub(super) bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct CopyPosition {
    shard: Shard,
    version: Version,
    space: Keyspace,
    key: Vec<u8>,
}

pub fn refuse_unfinished(engine: &dyn Engine) -> anyhow::Result<()> {
    if is_started(engine)? {
        bail!(
            "these data are an unfinished copy.\n\
             `settee storage copy FROM TO --resume` continues it; or start again in an empty location."
        );
    }
    Ok(())
}

fn is_started(engine: &dyn Engine) -> Result<bool, StorageError> {
    Ok(engine.snapshot(JOURNAL)?.state()?.version > Version(0))
}

pub(super) fn copy(from: &dyn Engine, to: &dyn Engine, resume: bool) -> anyhow::Result<Copied> {
    refuse_unfinished(from)?;
    match (is_started(to)?, resume) {
        (true, false) => bail!("an earlier copy to this location was not finished: --resume continues it"),
        (false, true) => bail!("there is no unfinished copy at this location"),
        (true, true) => {}
        (false, false) => {
            let is_empty = to.snapshot(CATALOG)?.state()? == ShardState::default();
            ensure!(is_empty, "the target contains data: a copy requires an empty location");
            note(to, Batch::new())?;
        }
    }
    let all = shards(from).context("the databases cannot be listed")?;
    let progress = Progress::new(None);
    let mut copying = Copying { from, to, copied: Copied::default(), progress, may_exist: resume };
    let mut versions = Vec::new();
    for shard in all.iter().copied().filter(|shard| *shard != CATALOG).chain([CATALOG]) {
        let version = copying.shard(shard)?;
        versions.push((shard, version));
    }
    copying.progress.end();
    to.sync()?;
    for (shard, version) in versions {
        let now = version_of(from, shard)?;
        ensure!(now == version, "shard {} was written to while it was copied: stop all servers first", shard.0);
    }
    Ok(copying.copied)
}

/// Servers accept the copy from now on.
pub(super) fn finish(to: &dyn Engine) -> anyhow::Result<()> {
    let mut batch = Batch::new();
    let snapshot = to.snapshot(JOURNAL)?;
    let mut cursor = scan(snapshot.as_ref(), Keyspace::Local, None)?;
    while let Some((key, _)) = cursor.next()? {
        batch.delete(Keyspace::Local, key);
    }
    drop(cursor);
    drop(snapshot);
    to.restore(JOURNAL, ShardState::default(), batch)?;
    to.sync()?;
    Ok(())
}

struct Copying<'a> {
    from: &'a dyn Engine,
    to: &'a dyn Engine,
    copied: Copied,
    progress: Progress,
    /// An earlier run may have written the next piece, and been interrupted before it recorded the piece.
    may_exist: bool,
}

impl Copying<'_> {
    fn shard(&mut self, shard: Shard) -> anyhow::Result<Version> {
        let snapshot = self.from.snapshot(shard)?;
        let state = match snapshot.state() {
            Err(StorageError::Dropped) => {
                self.to.drop_shard(shard)?;
                return Ok(Version(0));
            }
            state => state?,
        };
        let (done, at) = noted(self.to, shard)?;
        let at = at.filter(|at| at.shard == shard);
        for version in done.into_iter().chain(at.as_ref().map(|at| at.version)) {
            ensure!(
                version == state.version,
                "shard {} was written to since the copy started: start again in an empty location",
                shard.0
            );
        }
        if done.is_some() {
            return Ok(state.version);
        }
        self.entries(snapshot.as_ref(), shard, state.version, at.as_ref())?;
        let mut last = Batch::new();
        if let Some(head) = snapshot.head()? {
            last.set_head(&head);
        }
        self.to.restore(shard, state, last)?;
        let mut batch = Batch::new();
        batch.put(Keyspace::Local, &done_key(shard), &CopyPosition::number(state.version.0));
        note(self.to, batch)?;
        self.copied.shards += 1;
        self.may_exist = false;
        Ok(state.version)
    }

    fn entries(
        &mut self,
        snapshot: &dyn Snapshot,
        shard: Shard,
        version: Version,
        at: Option<&CopyPosition>,
    ) -> anyhow::Result<()> {
        let first = at.map_or(Keyspace::Catalog, |at| at.space);
        for space in Keyspace::ALL.into_iter().filter(|space| *space >= first) {
            let start = at.filter(|at| at.space == space).map(|at| [&at.key[..], &[0]].concat());
            let mut cursor = scan(snapshot, space, start.as_deref())?;
            let (mut batch, mut last) = (Batch::new(), Vec::new());
            loop {
                let entry = cursor.next()?;
                let size = entry.map_or(0, |(key, value)| key.len() + value.len());
                let is_full = batch.len() >= PIECE_ROWS || batch.size_bytes() + size > PIECE_BYTES;
                if !batch.is_empty() && (is_full || entry.is_none()) {
                    let at = CopyPosition { shard, version, space, key: std::mem::take(&mut last) };
                    self.piece(std::mem::take(&mut batch), &at)?;
                }
                let Some((key, value)) = entry else { break };
                match self.may_exist {
                    true => batch.put(space, key, value),
                    false => batch.insert(space, key, value),
                }
                last.clear();
                last.extend_from_slice(key);
            }
        }
        Ok(())
    }

    fn piece(&mut self, batch: Batch, at: &CopyPosition) -> anyhow::Result<()> {
        let (entries, bytes) = (batch.len() as u64, batch.size_bytes() as u64);
        self.to.restore(at.shard, ShardState::default(), batch).context("the copy cannot be written")?;
        let mut batch = Batch::new();
        batch.put(Keyspace::Local, AT, &at.encode());
        note(self.to, batch)?;
        self.copied.entries += entries;
        self.copied.bytes += bytes;
        self.progress.read(bytes, 0);
        Ok(())
    }
}

/// `None` is the start of the keyspace.
pub(super) fn scan<'a>(
    snapshot: &'a dyn Snapshot,
    space: Keyspace,
    start: Option<&[u8]>,
) -> Result<Box<dyn Cursor + 'a>, StorageError> {
    snapshot.scan(space, KeyRange { start, end: None }, Direction::Forward, Expect::All)
}

fn version_of(engine: &dyn Engine, shard: Shard) -> Result<Version, StorageError> {
    match engine.snapshot(shard)?.state() {
        Err(StorageError::Dropped) => Ok(Version(0)),
        state => Ok(state?.version),
    }
}

/// The version of the journal is that of its format.
fn note(to: &dyn Engine, batch: Batch) -> Result<(), StorageError> {
    to.restore(JOURNAL, ShardState { version: Version(1), token: CommitToken(0) }, batch)
}

/// Returns the version of a completely copied shard, and the last piece of any shard.
fn noted(to: &dyn Engine, shard: Shard) -> anyhow::Result<(Option<Version>, Option<CopyPosition>)> {
    let snapshot = to.snapshot(JOURNAL)?;
    let key = done_key(shard);
    let found = snapshot.multi_get(Keyspace::Local, &[&key, AT])?;
    let [done, at] = <[_; 2]>::try_from(found).map_err(|_| anyhow::anyhow!("two keys have two values"))?;
    let done = done.map(|bytes| Reader::new(&bytes, "a finished shard").varint()).transpose()?;
    Ok((done.map(Version), at.map(|bytes| CopyPosition::decode(&bytes)).transpose()?))
}

fn done_key(shard: Shard) -> Vec<u8> {
    [DONE, &shard.0.to_be_bytes()].concat()
}

impl CopyPosition {
    fn number(number: u64) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, number);
        out
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [self.shard.0, self.version.0, self.space as u64] {
            put_varint(&mut out, number);
        }
        out.extend_from_slice(&self.key);
        out
    }

    fn decode(bytes: &[u8]) -> anyhow::Result<Self> {
        let mut reader = Reader::new(bytes, "the position of a copy");
        let (shard, version, space) = (reader.varint()?, reader.varint()?, reader.varint()?);
        let space = usize::try_from(space).ok().and_then(|space| Keyspace::ALL.get(space).copied());
        let space = space.context("the position of a copy has no keyspace")?;
        Ok(Self { shard: Shard(shard), version: Version(version), space, key: reader.rest().to_vec() })
    }
}
