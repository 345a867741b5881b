//! Stored records survive encoding, and damaged ones are rejected without a panic.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fmt::Debug;

use settee_model::json::Json;

use super::*;
use crate::LocalDocument;
use crate::meta::Meta;
use crate::tests::Random;

fn random_rev(random: &mut Random, generation: u64) -> Rev {
    let hash = if random.one_in(3) { random.bytes(40) } else { random.next().to_be_bytes().repeat(2) };
    Rev { generation, hash: RevHash::from_bytes(&hash) }
}

fn random_stored(random: &mut Random) -> Stored {
    let attachments_size = if random.one_in(3) { random.number() as u32 } else { 0 };
    Stored {
        deleted: random.one_in(3),
        body_seq: random.number(),
        size: random.number() as u32,
        attachments_size,
        attachments_length: if attachments_size > 0 { random.number() } else { 0 },
        access: if random.one_in(3) { random.next() as u32 } else { 0 },
    }
}

fn random_record(random: &mut Random) -> DocRecord {
    let mut tree = RevTree::new();
    for _ in 0..=random.below(4) {
        let newest = 1 + random.number() % (1 << 40);
        let nodes = tree.nodes();
        let base: Option<Rev> = if nodes.is_empty() || random.one_in(3) {
            None
        } else {
            Some(nodes[random.below(nodes.len())].rev.clone())
        };
        let start = base.as_ref().map_or(newest, |rev| rev.generation);
        let mut path: Vec<Rev> = base.into_iter().collect();
        for up in 1..=1 + random.below(4) as u64 {
            path.insert(0, random_rev(random, start + up));
        }
        tree.merge(&path, random_stored(random));
    }
    DocRecord { seq: random.number(), tree }
}

fn encoded(record: &DocRecord) -> Vec<u8> {
    let mut out = Vec::new();
    record.encode(&record.head().unwrap(), &mut out);
    out
}

fn check_prefixes<T: Debug>(bytes: &[u8], decode: impl Fn(&[u8]) -> Result<T>) {
    decode(bytes).unwrap();
    for len in 0..bytes.len() {
        let error = decode(&bytes[..len]).expect_err("a part is not the whole");
        assert!(matches!(error, DatabaseError::Corrupt(_)), "{error}");
    }
}

#[test]
fn document_records_round_trip() {
    let mut random = Random::new();
    for _ in 0..300 {
        let record = random_record(&mut random);
        let bytes = encoded(&record);
        let read = DocRecord::decode(&bytes).unwrap();
        assert_eq!((read.seq, &read.tree), (record.seq, &record.tree));
        assert_eq!(Head::decode(&bytes).unwrap(), record.head().unwrap());
        assert_eq!(Head::is_deleted(&bytes), record.head().unwrap().stored.deleted);
        check_prefixes(&bytes, DocRecord::decode);
    }
}

#[test]
fn sequence_entries_round_trip() {
    let mut random = Random::new();
    for round in 0..300 {
        let generation = random.number();
        let stored = random_stored(&mut random);
        let seq = if round % 2 == 0 { stored.body_seq } else { random.number() };
        let head = Head { seq, rev: random_rev(&mut random, generation), stored, has_conflicts: random.one_in(2) };
        let id: String = (0..random.below(200)).map(|_| random.pick(&['a', '/', 'é', '😀', '\0'])).collect();
        let mut bytes = Vec::new();
        SequenceEntry::encode(&mut bytes, &id, &head);
        let read = SequenceEntry::decode(seq, &bytes).unwrap();
        assert_eq!(read.id, id);
        assert_eq!((read.rev, read.stored, read.has_conflicts), (head.rev, head.stored, head.has_conflicts));
        check_prefixes(&bytes, |bytes| SequenceEntry::decode(seq, bytes).map(|_| ()));
    }
}

#[test]
fn counters_and_local_documents_round_trip() {
    let mut random = Random::new();
    for _ in 0..300 {
        let meta = Meta {
            update_seq: random.number(),
            doc_count: random.number(),
            doc_del_count: random.number(),
            leaf_bytes: random.number(),
            leaf_attachment_bytes: random.number(),
            attachment_bytes: random.number(),
            content_bytes: random.number(),
            body_bytes: u64::MAX,
            design_seq: random.number(),
            purge_seq: random.number(),
            purges_forgotten: random.number(),
            attached_seq: random.number(),
            time_interval: random.number(),
            access_lists: if random.one_in(2) { random.number() } else { 0 },
        };
        let mut bytes = Vec::new();
        meta.encode(&mut bytes);
        assert_eq!(Meta::decode(&bytes).unwrap(), meta);
        let older = Meta { time_interval: 0, access_lists: 0, ..meta };
        for (fields, older) in [(1, older), (2, Meta { attached_seq: 0, ..older })] {
            bytes.clear();
            older.encode(&mut bytes);
            bytes.truncate(bytes.len() - fields);
            assert_eq!(Meta::decode(&bytes).unwrap(), older);
        }
        check_prefixes(&bytes, Meta::decode);

        let local = LocalDocument { rev: random.number(), body: Json::trusted(random.body(50).into_bytes()) };
        let mut bytes = Vec::new();
        local.encode(&mut bytes);
        assert_eq!(LocalDocument::decode(&bytes).unwrap(), local);
        LocalDocument::decode(&[]).expect_err("there is no number");
    }
}

#[test]
fn random_bytes_never_panic() {
    let mut random = Random::new();
    for _ in 0..20_000 {
        let bytes = random.bytes(60);
        // Decoding may succeed by chance; the test requires only that it returns.
        let _ = DocRecord::decode(&bytes);
        let _ = Head::decode(&bytes);
        let _ = SequenceEntry::decode(random.number(), &bytes);
        let _ = LocalDocument::decode(&bytes);
        let _ = Meta::decode(&bytes);
        Head::is_deleted(&bytes);
    }
}

#[test]
fn damaged_records_never_panic() {
    let mut random = Random::new();
    for _ in 0..500 {
        let mut bytes = encoded(&random_record(&mut random));
        for _ in 0..20 {
            let at = random.below(bytes.len());
            bytes[at] = random.next() as u8;
            let _ = DocRecord::decode(&bytes);
        }
    }
}

#[test]
fn a_generation_beyond_all_numbers_is_corrupt() {
    let mut bytes = vec![0, 1];
    put_rev(&mut bytes, &Rev { generation: 1, hash: RevHash::from_bytes(b"x") });
    bytes.extend_from_slice(&[1, 2, 2, 0, 0]);
    put_varint(&mut bytes, u64::MAX);
    put_bytes(&mut bytes, b"a");
    bytes.extend_from_slice(&[HAS_VALUE, 1]);
    put_bytes(&mut bytes, b"b");
    bytes.extend_from_slice(&[1, 2]);
    let error = DocRecord::decode(&bytes).expect_err("there is no such generation");
    assert!(matches!(error, DatabaseError::Corrupt("revision tree")), "{error}");
}
