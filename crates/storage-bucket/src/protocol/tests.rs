//! Tests of the encoding of [`Message`] and [`Answer`].

use settee_storage::members::Node;
use settee_storage::{Outcome, Page, Reply, Result, StorageError};

use super::*;

fn claim(number: u64) -> Claim {
    Claim { key: format!("work/{number}"), epoch: number << 33 }
}

fn sample_batch() -> Batch {
    let mut batch = Batch::of(Purpose::Room);
    batch.set_head(b"head");
    batch.set_claim(claim(3));
    batch.put(Keyspace::Documents, b"key", b"value");
    batch.insert(Keyspace::IndexEntries, b"", &[0xff; 300]);
    batch.delete(Keyspace::Catalog, b"gone");
    batch
}

fn messages() -> Vec<Message<'static>> {
    let beat = Beat {
        announced: Some(("a node".to_owned(), "http://host/".to_owned())),
        started_ms: 7,
        claims: vec![claim(1), claim(2)],
        is_fresh: true,
        commits: vec![(Shard(5), Version(u64::MAX))],
        cursor: Cursor { coordinator: u128::MAX, number: 9 },
    };
    let range = KeyRange { start: Some(b"a"), end: None };
    let page = PageRange { space: Keyspace::Bodies, range, direction: Direction::Backward, rows: 8 };
    let requests = vec![
        Request::State,
        Request::Head,
        Request::Token(Version(4)),
        Request::Get(Keyspace::Local, b"key"),
        Request::MultiGet(Keyspace::Sequence, &[b"one", b""]),
        Request::Page(page),
    ];
    let (shard, expected, token) = (Shard(u64::MAX), Version(3), CommitToken(8));
    vec![
        Message::Beat(beat),
        Message::Beat(Beat::default()),
        Message::Leave,
        Message::Claim("key"),
        Message::Release(claim(1)),
        Message::AnnounceWait("key"),
        Message::IsGone(NodeId(3)),
        Message::CatchUp(Cursor::default()),
        Message::Read { shard, snapshot: Some(4), requests: requests.clone() },
        Message::Read { shard, snapshot: None, requests },
        Message::Close(4),
        Message::Commit { shard, expected, token, durability: Durability::Buffered, batch: sample_batch() },
        Message::Restore { shard, state: ShardState { version: expected, token }, batch: sample_batch() },
        Message::Drop(shard),
        Message::Reclaim(shard),
        Message::Size(shard),
        Message::Ping,
        Message::Observe(vec![(shard, expected)]),
    ]
}

fn answers() -> Vec<Result<Answer, Refusal>> {
    let node = Node { id: NodeId(2), name: "b".to_owned(), address: "http://b/".to_owned(), started_ms: 5 };
    let commits =
        Commits { cursor: Cursor { coordinator: 2, number: 3 }, has_gap: true, commits: vec![(Shard(1), Version(2))] };
    let beat = BeatAnswer {
        beat: 4,
        live: vec![node],
        writers: vec![(claim(5), NodeId(2))],
        held: vec![claim(1)],
        awaited: vec!["work".to_owned()],
        commits: commits.clone(),
    };
    let replies = vec![
        Reply::State(ShardState { version: Version(4), token: CommitToken(u128::MAX) }),
        Reply::Value(None),
        Reply::Values(vec![Some(vec![1]), None]),
        Reply::Page(Page { rows: vec![(vec![1], vec![]), (vec![], vec![2; 400])], is_last: true }),
    ];
    let failed = |error| Err(Refusal::Storage(error));
    vec![
        Ok(Answer::Done),
        Ok(Answer::Beat(Box::new(beat))),
        Ok(Answer::Claimed(Some(9))),
        Ok(Answer::Claimed(None)),
        Ok(Answer::IsGone(true)),
        Ok(Answer::Commits(commits)),
        Ok(Answer::Replies(3, replies)),
        Ok(Answer::Outcome(Outcome::Committed(Version(3)))),
        Ok(Answer::Outcome(Outcome::Conflict(Version(4)))),
        Ok(Answer::Outcome(Outcome::Unknown)),
        Ok(Answer::Number(u64::MAX)),
        Ok(Answer::Id(NodeId(7))),
        Err(Refusal::NotHere),
        failed(StorageError::Io("text".to_owned())),
        failed(StorageError::Unreached("text".to_owned())),
        failed(StorageError::InDoubt("text".to_owned())),
        failed(StorageError::Corrupt("text".to_owned())),
        failed(StorageError::Interrupted("text".to_owned())),
        failed(StorageError::Poisoned("text".to_owned())),
        failed(StorageError::Full("text".to_owned())),
        failed(StorageError::Present("text".to_owned())),
        failed(StorageError::TooLarge("text".to_owned())),
        failed(StorageError::Deposed),
        failed(StorageError::Dropped),
    ]
}

/// Encodes a decoded message again.
fn again(received: &Received<'_>) -> Vec<u8> {
    match &received.message {
        Message::Read { shard, snapshot, .. } => {
            let requests = received.requests.iter().map(OwnedRequest::request).collect();
            Message::Read { shard: *shard, snapshot: *snapshot, requests }.encode(received.sender)
        }
        message => message.encode(received.sender),
    }
}

#[test]
fn messages_are_decoded_as_they_were_encoded() {
    for message in messages() {
        let bytes = message.encode(NodeId(11));
        let received = Received::decode(&bytes).expect("it was encoded");
        assert_eq!(received.sender, NodeId(11));
        assert_eq!(again(&received), bytes, "{message:?}");
        let is_with_io = matches!(
            message,
            Message::Claim(_)
                | Message::Read { .. }
                | Message::Commit { .. }
                | Message::Restore { .. }
                | Message::Drop(_)
                | Message::Reclaim(_)
                | Message::Size(_)
        );
        assert_eq!(needs_io(&bytes), is_with_io, "{message:?}");
    }
    for answer in answers() {
        let bytes = Answer::encode(&answer);
        assert_eq!(format!("{:?}", Answer::decode(&bytes)), format!("{answer:?}"));
    }
}

/// No part of a message and no changed byte causes a panic or a large allocation.
#[test]
fn damaged_messages_are_refused_or_decoded() {
    let messages = messages().into_iter().map(|message| message.encode(NodeId(1)));
    for bytes in messages {
        for end in 0..bytes.len() {
            assert!(Received::decode(&bytes[..end]).is_err(), "{end} of {} bytes", bytes.len());
        }
        for at in 0..bytes.len() {
            for change in [1, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                let _ = Received::decode(&changed);
            }
        }
    }
    for bytes in answers().iter().map(Answer::encode) {
        for at in 0..bytes.len() {
            let _ = Answer::decode(&bytes[..at]);
            let mut changed = bytes.clone();
            changed[at] ^= 0xff;
            let _ = Answer::decode(&changed);
        }
    }
}
