//! [`Answer`] and [`Refusal`], and their encoding.

use settee_storage::codec::{Reader, put_bytes, put_varint};
use settee_storage::members::{Claim, Node, NodeId};
use settee_storage::{CommitToken, Outcome, Page, Reply, Result, Shard, ShardState, StorageError, Version};

use super::{
    Cursor, Decoded, SnapshotId, all, claim, commit, corrupt, cursor, option, put_all, put_claim, put_commit,
    put_cursor, put_option, put_text, put_u128, u128,
};

/// Commits of other processes after a [`Cursor`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Commits {
    pub(crate) cursor: Cursor,
    /// True if commits are missing: the receiver must assume that everything has changed.
    pub(crate) has_gap: bool,
    pub(crate) commits: Vec<(Shard, Version)>,
}

/// The coordinator's answer to a [`Beat`](super::Beat).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BeatAnswer {
    /// Number of renewals of the coordinator's lease.
    pub(crate) beat: u64,
    pub(crate) live: Vec<Node>,
    pub(crate) writers: Vec<(Claim, NodeId)>,
    /// Claims of the sender. It has lost all others.
    pub(crate) held: Vec<Claim>,
    /// Claims of the sender for which other processes wait.
    pub(crate) awaited: Vec<String>,
    pub(crate) commits: Commits,
}

/// Reason why a process does not answer.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// It is not the coordinator, or not the owner of the shard. Nothing was done.
    NotHere,
    Storage(StorageError),
}

/// The content of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Done,
    Beat(Box<BeatAnswer>),
    Claimed(Option<u64>),
    IsGone(bool),
    Commits(Commits),
    Replies(SnapshotId, Vec<Reply>),
    Outcome(Outcome),
    Number(u64),
    Id(NodeId),
}

impl Answer {
    pub(crate) fn encode(result: &Result<Self, Refusal>) -> Vec<u8> {
        let mut out = Vec::new();
        match result {
            Ok(answer) => {
                out.push(0);
                answer.put(&mut out);
            }
            Err(Refusal::NotHere) => out.push(1),
            Err(Refusal::Storage(error)) => put_error(&mut out, error),
        }
        out
    }

    /// Invalid bytes are an error of the network.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Refusal> {
        let failed = |_| Refusal::Storage(StorageError::Unreached("a node sent an invalid answer".to_owned()));
        let mut reader = Reader::new(bytes, "answer of a node");
        match reader.byte().map_err(failed)? {
            0 => Self::read(&mut reader).map_err(failed),
            1 => Err(Refusal::NotHere),
            code => Err(Refusal::Storage(error(code, reader.text().map_err(failed)?))),
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Done => out.push(0),
            Self::Beat(answer) => {
                out.push(1);
                put_beat_answer(out, answer);
            }
            Self::Claimed(epoch) => {
                out.push(2);
                put_option(out, *epoch, put_varint);
            }
            Self::IsGone(is_gone) => out.extend([3, u8::from(*is_gone)]),
            Self::Commits(commits) => {
                out.push(4);
                put_commits(out, commits);
            }
            Self::Replies(snapshot, replies) => {
                out.push(5);
                put_varint(out, *snapshot);
                put_all(out, replies, put_reply);
            }
            Self::Outcome(outcome) => match outcome {
                Outcome::Committed(version) => {
                    out.extend([6, 0]);
                    put_varint(out, version.0);
                }
                Outcome::Conflict(version) => {
                    out.extend([6, 1]);
                    put_varint(out, version.0);
                }
                Outcome::Unknown => out.extend([6, 2]),
            },
            Self::Number(number) => {
                out.push(7);
                put_varint(out, *number);
            }
            Self::Id(node) => {
                out.push(8);
                put_u128(out, node.0);
            }
        }
    }

    fn read(reader: &mut Reader<'_>) -> Decoded<Self> {
        Ok(match reader.byte()? {
            0 => Self::Done,
            1 => Self::Beat(Box::new(beat_answer(reader)?)),
            2 => Self::Claimed(option(reader, Reader::varint)?),
            3 => Self::IsGone(reader.byte()? != 0),
            4 => Self::Commits(commits(reader)?),
            5 => Self::Replies(reader.varint()?, all(reader, reply)?),
            6 => Self::Outcome(match reader.byte()? {
                0 => Outcome::Committed(Version(reader.varint()?)),
                1 => Outcome::Conflict(Version(reader.varint()?)),
                _ => Outcome::Unknown,
            }),
            7 => Self::Number(reader.varint()?),
            8 => Self::Id(NodeId(u128(reader)?)),
            _ => return Err(corrupt()),
        })
    }
}

fn put_beat_answer(out: &mut Vec<u8>, answer: &BeatAnswer) {
    put_varint(out, answer.beat);
    put_all(out, &answer.live, |out, node| {
        put_u128(out, node.id.0);
        put_text(out, &node.name);
        put_text(out, &node.address);
        put_varint(out, node.started_ms);
    });
    put_all(out, &answer.writers, |out, (claim, node)| {
        put_claim(out, claim);
        put_u128(out, node.0);
    });
    put_all(out, &answer.held, put_claim);
    put_all(out, &answer.awaited, |out, key| put_text(out, key));
    put_commits(out, &answer.commits);
}

fn beat_answer(reader: &mut Reader<'_>) -> Decoded<BeatAnswer> {
    let beat = reader.varint()?;
    let live = all(reader, |reader| {
        let id = NodeId(u128(reader)?);
        let (name, address) = (reader.text()?.to_owned(), reader.text()?.to_owned());
        Ok(Node { id, name, address, started_ms: reader.varint()? })
    })?;
    let writers = all(reader, |reader| Ok((claim(reader)?, NodeId(u128(reader)?))))?;
    let held = all(reader, claim)?;
    let awaited = all(reader, |reader| Ok(reader.text()?.to_owned()))?;
    Ok(BeatAnswer { beat, live, writers, held, awaited, commits: commits(reader)? })
}

fn put_commits(out: &mut Vec<u8>, commits: &Commits) {
    put_cursor(out, commits.cursor);
    out.push(u8::from(commits.has_gap));
    put_all(out, &commits.commits, put_commit);
}

fn commits(reader: &mut Reader<'_>) -> Decoded<Commits> {
    Ok(Commits { cursor: cursor(reader)?, has_gap: reader.byte()? != 0, commits: all(reader, commit)? })
}

fn put_value(out: &mut Vec<u8>, value: &Option<Vec<u8>>) {
    put_option(out, value.as_deref(), put_bytes);
}

fn value(reader: &mut Reader<'_>) -> Decoded<Option<Vec<u8>>> {
    option(reader, |reader| Ok(reader.bytes()?.to_vec()))
}

fn put_reply(out: &mut Vec<u8>, reply: &Reply) {
    match reply {
        Reply::State(state) => {
            out.push(0);
            put_varint(out, state.version.0);
            put_u128(out, state.token.0);
        }
        Reply::Value(value) => {
            out.push(1);
            put_value(out, value);
        }
        Reply::Values(values) => {
            out.push(2);
            put_all(out, values, put_value);
        }
        Reply::Page(page) => {
            out.extend([3, u8::from(page.is_last)]);
            put_all(out, &page.rows, |out, (key, value)| {
                put_bytes(out, key);
                put_bytes(out, value);
            });
        }
    }
}

fn reply(reader: &mut Reader<'_>) -> Decoded<Reply> {
    Ok(match reader.byte()? {
        0 => Reply::State(ShardState { version: Version(reader.varint()?), token: CommitToken(u128(reader)?) }),
        1 => Reply::Value(value(reader)?),
        2 => Reply::Values(all(reader, value)?),
        3 => {
            let is_last = reader.byte()? != 0;
            Reply::Page(Page {
                is_last,
                rows: all(reader, |reader| Ok((reader.bytes()?.to_vec(), reader.bytes()?.to_vec())))?,
            })
        }
        _ => return Err(corrupt()),
    })
}

fn put_error(out: &mut Vec<u8>, error: &StorageError) {
    let (code, text) = match error {
        StorageError::Io(text) => (2, text.as_str()),
        StorageError::Unreached(text) => (3, text.as_str()),
        StorageError::InDoubt(text) => (4, text.as_str()),
        StorageError::Corrupt(text) => (5, text.as_str()),
        StorageError::Interrupted(text) => (6, text.as_str()),
        StorageError::Poisoned(text) => (7, text.as_str()),
        StorageError::Full(text) => (8, text.as_str()),
        StorageError::Present(text) => (9, text.as_str()),
        StorageError::TooLarge(text) => (10, text.as_str()),
        StorageError::Deposed => (11, ""),
        StorageError::Dropped => (12, ""),
        StorageError::WouldBlock => (13, ""),
    };
    out.push(code);
    put_text(out, text);
}

fn error(code: u8, text: &str) -> StorageError {
    let text = text.to_owned();
    match code {
        2 => StorageError::Io(text),
        4 => StorageError::InDoubt(text),
        5 => StorageError::Corrupt(text),
        6 => StorageError::Interrupted(text),
        7 => StorageError::Poisoned(text),
        8 => StorageError::Full(text),
        9 => StorageError::Present(text),
        10 => StorageError::TooLarge(text),
        11 => StorageError::Deposed,
        12 => StorageError::Dropped,
        _ => StorageError::Unreached(text),
    }
}
