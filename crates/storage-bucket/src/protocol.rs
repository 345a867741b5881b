//! [`Message`] and [`Answer`]: what the processes of a store send to each other. The encoding is that of
//! `settee_storage::codec`: numbers have a variable length, texts and keys follow their length. A message starts with
//! its tag; an answer starts with 0, or with the code of an error and its text.

mod answer;

use settee_storage::codec::{self, Reader, put_bytes, put_varint};
use settee_storage::members::{Claim, NodeId};
use settee_storage::{
    Batch, CommitToken, Direction, Durability, KeyRange, Keyspace, Operation, PageRange, Purpose, Request, Shard,
    ShardState, Version,
};

pub(crate) use answer::{Answer, BeatAnswer, Commits, Refusal};

/// Maximum number of parts of a message, so that a length is never allocated before it is checked.
const PARTS_MAX: usize = 1 << 20;

/// Messages of different versions of the program have different numbers.
const VERSION: u8 = 1;

/// Number of a snapshot at its owner.
pub(crate) type SnapshotId = u64;

/// A heartbeat of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beat {
    /// `None` before the process has announced itself.
    pub(crate) announced: Option<(String, String)>,
    pub(crate) started_ms: u64,
    pub(crate) claims: Vec<Claim>,
    /// True if the sender relies on its claims.
    pub(crate) is_fresh: bool,
    /// Commits of the process since its last answered heartbeat.
    pub(crate) commits: Vec<(Shard, Version)>,
    pub(crate) cursor: Cursor,
}

/// Position in the commits that a coordinator has observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) coordinator: u128,
    pub(crate) number: u64,
}

#[derive(Debug)]
pub(crate) enum Message<'a> {
    Beat(Beat),
    Leave,
    Claim(&'a str),
    Release(Claim),
    AnnounceWait(&'a str),
    IsGone(NodeId),
    CatchUp(Cursor),
    /// Opens a snapshot if there is none.
    Read {
        shard: Shard,
        snapshot: Option<SnapshotId>,
        requests: Vec<Request<'a>>,
    },
    Close(SnapshotId),
    Commit {
        shard: Shard,
        expected: Version,
        token: CommitToken,
        durability: Durability,
        batch: Batch,
    },
    Restore {
        shard: Shard,
        state: ShardState,
        batch: Batch,
    },
    Drop(Shard),
    Reclaim(Shard),
    Size(Shard),
    /// Answered by every running process with its id.
    Ping,
    /// Commits to the coordinator's group, which the receiver must observe before they are acknowledged.
    Observe(Vec<(Shard, Version)>),
}

type Decoded<T> = codec::Result<T>;

fn put_u128(out: &mut Vec<u8>, value: u128) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn u128(reader: &mut Reader<'_>) -> Decoded<u128> {
    Ok(u128::from_be_bytes(reader.array()?))
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

fn corrupt() -> codec::Corrupt {
    codec::Corrupt("message of a node")
}

fn put_all<T>(out: &mut Vec<u8>, values: &[T], mut put: impl FnMut(&mut Vec<u8>, &T)) {
    put_varint(out, values.len() as u64);
    values.iter().for_each(|value| put(out, value));
}

fn all<'a, T>(reader: &mut Reader<'a>, mut one: impl FnMut(&mut Reader<'a>) -> Decoded<T>) -> Decoded<Vec<T>> {
    let count = reader.length()?;
    if count > PARTS_MAX {
        return Err(corrupt());
    }
    (0..count).map(|_| one(reader)).collect()
}

fn put_claim(out: &mut Vec<u8>, claim: &Claim) {
    put_text(out, &claim.key);
    put_varint(out, claim.epoch);
}

fn claim(reader: &mut Reader<'_>) -> Decoded<Claim> {
    Ok(Claim { key: reader.text()?.to_owned(), epoch: reader.varint()? })
}

fn put_commit(out: &mut Vec<u8>, commit: &(Shard, Version)) {
    put_varint(out, commit.0.0);
    put_varint(out, commit.1.0);
}

fn commit(reader: &mut Reader<'_>) -> Decoded<(Shard, Version)> {
    Ok((Shard(reader.varint()?), Version(reader.varint()?)))
}

fn put_cursor(out: &mut Vec<u8>, cursor: Cursor) {
    put_u128(out, cursor.coordinator);
    put_varint(out, cursor.number);
}

fn cursor(reader: &mut Reader<'_>) -> Decoded<Cursor> {
    Ok(Cursor { coordinator: u128(reader)?, number: reader.varint()? })
}

fn put_option<T>(out: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put(out, value);
    }
}

fn option<'a, T>(reader: &mut Reader<'a>, one: impl FnOnce(&mut Reader<'a>) -> Decoded<T>) -> Decoded<Option<T>> {
    match reader.byte()? {
        0 => Ok(None),
        1 => one(reader).map(Some),
        _ => Err(corrupt()),
    }
}

fn space(reader: &mut Reader<'_>) -> Decoded<Keyspace> {
    Keyspace::ALL.get(usize::from(reader.byte()?)).copied().ok_or_else(corrupt)
}

fn put_request(out: &mut Vec<u8>, request: &Request<'_>) {
    match *request {
        Request::State => out.push(0),
        Request::Head => out.push(1),
        Request::Token(version) => {
            out.push(2);
            put_varint(out, version.0);
        }
        Request::Get(space, key) => {
            out.extend([3, space as u8]);
            put_bytes(out, key);
        }
        Request::MultiGet(space, keys) => {
            out.extend([4, space as u8]);
            put_all(out, keys, |out, key| put_bytes(out, key));
        }
        Request::Page(page) => {
            out.extend([5, page.space as u8, u8::from(page.direction == Direction::Backward)]);
            put_option(out, page.range.start, put_bytes);
            put_option(out, page.range.end, put_bytes);
            put_varint(out, page.rows as u64);
        }
    }
}

/// A decoded [`Request`], which owns the list of its keys.
#[derive(Debug)]
pub(crate) enum OwnedRequest<'a> {
    Plain(Request<'a>),
    MultiGet(Keyspace, Vec<&'a [u8]>),
}

impl OwnedRequest<'_> {
    pub(crate) fn request(&self) -> Request<'_> {
        match self {
            Self::Plain(request) => *request,
            Self::MultiGet(space, keys) => Request::MultiGet(*space, keys),
        }
    }
}

fn request<'a>(reader: &mut Reader<'a>) -> Decoded<OwnedRequest<'a>> {
    Ok(OwnedRequest::Plain(match reader.byte()? {
        0 => Request::State,
        1 => Request::Head,
        2 => Request::Token(Version(reader.varint()?)),
        3 => Request::Get(space(reader)?, reader.bytes()?),
        4 => return Ok(OwnedRequest::MultiGet(space(reader)?, all(reader, Reader::bytes)?)),
        5 => {
            let space = space(reader)?;
            let direction = if reader.byte()? == 0 { Direction::Forward } else { Direction::Backward };
            let range = KeyRange { start: option(reader, Reader::bytes)?, end: option(reader, Reader::bytes)? };
            Request::Page(PageRange { space, range, direction, rows: reader.length()?.clamp(1, PARTS_MAX) })
        }
        _ => return Err(corrupt()),
    }))
}

fn put_batch(out: &mut Vec<u8>, batch: &Batch) {
    out.push(u8::from(batch.purpose() == Purpose::Room));
    put_option(out, batch.head(), put_bytes);
    put_option(out, batch.claim(), put_claim);
    put_varint(out, batch.len() as u64);
    for operation in batch.operations() {
        let (tag, space, key, value) = match operation {
            Operation::Put(space, key, value) => (0, space, key, Some(value)),
            Operation::Insert(space, key, value) => (1, space, key, Some(value)),
            Operation::Delete(space, key) => (2, space, key, None),
        };
        out.extend([tag, space as u8]);
        put_bytes(out, key);
        if let Some(value) = value {
            put_bytes(out, value);
        }
    }
}

fn batch(reader: &mut Reader<'_>) -> Decoded<Batch> {
    let purpose = if reader.byte()? == 0 { Purpose::Growth } else { Purpose::Room };
    let mut batch = Batch::of(purpose);
    if let Some(head) = option(reader, Reader::bytes)? {
        if head.len() > settee_storage::MAX_HEAD_BYTES {
            return Err(corrupt());
        }
        batch.set_head(head);
    }
    if let Some(claim) = option(reader, claim)? {
        batch.set_claim(claim);
    }
    for _ in 0..reader.length()? {
        let (tag, space) = (reader.byte()?, space(reader)?);
        let key = reader.bytes()?;
        match tag {
            0 => batch.put(space, key, reader.bytes()?),
            1 => batch.insert(space, key, reader.bytes()?),
            2 => batch.delete(space, key),
            _ => return Err(corrupt()),
        }
    }
    Ok(batch)
}

impl Message<'_> {
    pub(crate) fn encode(&self, sender: NodeId) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_u128(&mut out, sender.0);
        match self {
            Self::Beat(beat) => {
                out.push(0);
                put_beat(&mut out, beat);
            }
            Self::Leave => out.push(1),
            Self::Claim(key) => {
                out.push(2);
                put_text(&mut out, key);
            }
            Self::Release(claim) => {
                out.push(3);
                put_claim(&mut out, claim);
            }
            Self::AnnounceWait(key) => {
                out.push(4);
                put_text(&mut out, key);
            }
            Self::IsGone(node) => {
                out.push(5);
                put_u128(&mut out, node.0);
            }
            Self::CatchUp(cursor) => {
                out.push(6);
                put_cursor(&mut out, *cursor);
            }
            Self::Read { shard, snapshot, requests } => {
                out.push(7);
                put_varint(&mut out, shard.0);
                put_option(&mut out, *snapshot, put_varint);
                put_all(&mut out, requests, put_request);
            }
            Self::Close(snapshot) => {
                out.push(8);
                put_varint(&mut out, *snapshot);
            }
            Self::Commit { shard, expected, token, durability, batch } => {
                out.push(9);
                put_varint(&mut out, shard.0);
                put_varint(&mut out, expected.0);
                put_u128(&mut out, token.0);
                out.push(u8::from(*durability == Durability::Buffered));
                put_batch(&mut out, batch);
            }
            Self::Drop(shard) => {
                out.push(10);
                put_varint(&mut out, shard.0);
            }
            Self::Reclaim(shard) => {
                out.push(11);
                put_varint(&mut out, shard.0);
            }
            Self::Size(shard) => {
                out.push(12);
                put_varint(&mut out, shard.0);
            }
            Self::Ping => out.push(13),
            Self::Observe(commits) => {
                out.push(15);
                put_all(&mut out, commits, put_commit);
            }
            Self::Restore { shard, state, batch } => {
                out.push(14);
                put_varint(&mut out, shard.0);
                put_varint(&mut out, state.version.0);
                put_u128(&mut out, state.token.0);
                put_batch(&mut out, batch);
            }
        }
        out
    }
}

/// A decoded message. Requests of reads own their lists.
#[derive(Debug)]
pub(crate) struct Received<'a> {
    pub(crate) sender: NodeId,
    pub(crate) message: Message<'a>,
    pub(crate) requests: Vec<OwnedRequest<'a>>,
}

/// Tags of messages whose answers need I/O.
const WITH_IO: [u8; 7] = [2, 7, 9, 10, 11, 12, 14];

/// Returns true if the answer to an encoded message needs I/O. The message need not be valid.
pub(crate) fn needs_io(bytes: &[u8]) -> bool {
    const TAG_AT: usize = 1 + size_of::<u128>();
    bytes.get(TAG_AT).is_some_and(|tag| WITH_IO.contains(tag))
}

impl<'a> Received<'a> {
    /// Fails if the message is invalid, or of another version of the program.
    pub(crate) fn decode(bytes: &'a [u8]) -> Decoded<Self> {
        let mut reader = Reader::new(bytes, "message of a node");
        if reader.byte()? != VERSION {
            return Err(codec::Corrupt("message of a node with another version of the program"));
        }
        let sender = NodeId(u128(&mut reader)?);
        let mut requests = Vec::new();
        let message = match reader.byte()? {
            0 => Message::Beat(beat(&mut reader)?),
            1 => Message::Leave,
            2 => Message::Claim(reader.text()?),
            3 => Message::Release(claim(&mut reader)?),
            4 => Message::AnnounceWait(reader.text()?),
            5 => Message::IsGone(NodeId(u128(&mut reader)?)),
            6 => Message::CatchUp(cursor(&mut reader)?),
            7 => {
                let shard = Shard(reader.varint()?);
                let snapshot = option(&mut reader, Reader::varint)?;
                requests = all(&mut reader, request)?;
                Message::Read { shard, snapshot, requests: Vec::new() }
            }
            8 => Message::Close(reader.varint()?),
            9 => {
                let (shard, expected) = (Shard(reader.varint()?), Version(reader.varint()?));
                let token = CommitToken(u128(&mut reader)?);
                let durability = if reader.byte()? == 0 { Durability::Synced } else { Durability::Buffered };
                Message::Commit { shard, expected, token, durability, batch: batch(&mut reader)? }
            }
            10 => Message::Drop(Shard(reader.varint()?)),
            11 => Message::Reclaim(Shard(reader.varint()?)),
            12 => Message::Size(Shard(reader.varint()?)),
            13 => Message::Ping,
            15 => Message::Observe(all(&mut reader, commit)?),
            14 => {
                let shard = Shard(reader.varint()?);
                let version = Version(reader.varint()?);
                let state = ShardState { version, token: CommitToken(u128(&mut reader)?) };
                Message::Restore { shard, state, batch: batch(&mut reader)? }
            }
            _ => return Err(corrupt()),
        };
        if reader.is_at_end() { Ok(Self { sender, message, requests }) } else { Err(corrupt()) }
    }
}

fn put_beat(out: &mut Vec<u8>, beat: &Beat) {
    put_option(out, beat.announced.as_ref(), |out, (name, address)| {
        put_text(out, name);
        put_text(out, address);
    });
    put_varint(out, beat.started_ms);
    put_all(out, &beat.claims, put_claim);
    out.push(u8::from(beat.is_fresh));
    put_all(out, &beat.commits, put_commit);
    put_cursor(out, beat.cursor);
}

fn beat(reader: &mut Reader<'_>) -> Decoded<Beat> {
    let announced = option(reader, |reader| Ok((reader.text()?.to_owned(), reader.text()?.to_owned())))?;
    Ok(Beat {
        announced,
        started_ms: reader.varint()?,
        claims: all(reader, claim)?,
        is_fresh: reader.byte()? != 0,
        commits: all(reader, commit)?,
        cursor: cursor(reader)?,
    })
}

#[cfg(test)]
mod tests;
