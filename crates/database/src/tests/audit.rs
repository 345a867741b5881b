//! [`audit`]: checks the consistency of the stored data of a database by an independent count.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use md5::{Digest, Md5};
use settee_storage::codec::Reader;
use settee_storage::{Direction, KeyRange, Keyspace};
use sha2::Sha256;

use crate::attachment::{Attachment, ContentRecord, Form};
use crate::meta::Meta;
use crate::rank::{Counts, table};
use crate::record::{DocRecord, Head, SequenceEntry};
use crate::update::load_writer;
use crate::{ReadView, keys, pieces};

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// Panics unless counters, sequence entries, bodies and ranks match the documents.
pub(crate) fn audit(view: &ReadView<'_>) {
    let documents = entries(view, Keyspace::Documents);
    let sequence = entries(view, Keyspace::Sequence);
    let bodies = entries(view, Keyspace::Bodies);
    let mut counted = Meta::default();
    let mut chunks = BTreeSet::new();
    let mut attachments = Vec::new();
    let mut piece_keys = BTreeSet::new();
    for (id, bytes) in &documents {
        let whole = pieces::whole(view.snapshot().as_ref(), id, bytes).unwrap();
        let record = DocRecord::decode(&whole).unwrap();
        let count = pieces::count(bytes).unwrap();
        piece_keys.extend((0..count as u32).map(|number| keys::piece(id, number)));
        let head = Head::decode(bytes).unwrap();
        assert_eq!(record.head().as_ref(), Some(&head));
        assert_eq!(Head::is_deleted(bytes), head.stored.deleted);
        if head.stored.deleted {
            counted.doc_del_count += 1;
        } else {
            counted.doc_count += 1;
        }
        counted.update_seq = counted.update_seq.max(head.seq);
        if id.starts_with(b"_design/") {
            counted.design_seq = counted.design_seq.max(head.seq);
        }
        let entry = sequence.get(keys::sequence(head.seq).as_slice()).expect("a document has its sequence entry");
        let entry = SequenceEntry::decode(head.seq, entry).unwrap();
        assert_eq!(entry.id.as_bytes(), id);
        assert_eq!((entry.rev, entry.stored, entry.has_conflicts), (head.rev, head.stored, head.has_conflicts));
        for (index, node) in (0..).zip(record.tree.nodes()) {
            let Some(stored) = node.value else { continue };
            assert!(keys::writer_of_body(stored.body_seq) <= head.seq);
            let size = u64::from(stored.size);
            counted.body_bytes += size;
            counted.attachment_bytes += stored.attachments_length;
            if record.tree.is_leaf(index) {
                counted.leaf_bytes += size;
                counted.leaf_attachment_bytes += stored.attachments_length;
            }
            let own = (0..stored.total_bytes().div_ceil(keys::BODY_CHUNK_BYTES))
                .map(|chunk| keys::body(stored.body_seq, chunk as u16));
            let read: usize = own.clone().map(|chunk| bodies[chunk.as_slice()].len()).sum();
            assert_eq!(read, stored.total_bytes(), "the body of {} is there", node.rev);
            attachments.extend(view.revision(stored).unwrap().expect("it is there").attachments);
            for chunk in own {
                assert!(chunks.insert(chunk.to_vec()), "no body belongs to two revisions");
            }
        }
    }
    let mut catalog = entries(view, Keyspace::Catalog);
    catalog.retain(|key, _| key.starts_with(keys::PIECES));
    assert!(catalog.keys().eq(&piece_keys), "no piece of a record is left behind");
    assert_eq!(sequence.len(), documents.len(), "one sequence entry for each document");
    assert!(bodies.keys().eq(&chunks), "no body is left behind");
    let contents: BTreeMap<_, u64> =
        attachments.iter().map(|attachment| (attachment.content.0, attachment.stored_length)).collect();
    counted.content_bytes = contents.into_values().sum();
    let (_, meta) = Meta::read_with_state(view.snapshot().as_ref()).unwrap();
    assert!(meta.update_seq >= counted.update_seq && meta.design_seq >= counted.design_seq);
    let Meta { update_seq, design_seq, purge_seq, purges_forgotten, .. } = meta;
    assert_eq!(meta, Meta { update_seq, design_seq, purge_seq, purges_forgotten, ..counted });
    let mut purges = Vec::new();
    view.purges(0, |number, _| purges.push(number)).unwrap();
    assert!(purges.into_iter().eq(purges_forgotten + 1..=purge_seq), "purges are remembered without gaps");
    audit_ranks(view, &documents, &sequence);
    audit_attachments(view, attachments);
}

fn audit_attachments(view: &ReadView<'_>, attachments: Vec<Attachment>) {
    let mut stored = entries(view, Keyspace::Attachments);
    let mut wanted: BTreeMap<Vec<u8>, (Attachment, u64)> = BTreeMap::new();
    for attachment in attachments {
        wanted.entry(keys::content(&attachment.content.0).to_vec()).or_insert((attachment, 0)).1 += 1;
    }
    for (key, (attachment, references)) in wanted {
        let bytes = stored.remove(&key).expect("the content is stored");
        let record = ContentRecord::decode(&bytes).unwrap();
        assert_eq!((record.references, record.length), (references, attachment.stored_length));
        let mut read = Vec::new();
        view.content(&attachment).unwrap().reader(Form::Stored).read_to_end(&mut read).unwrap();
        assert_eq!(<[u8; 32]>::from(Sha256::digest(&read)), attachment.content.0);
        assert_eq!(<[u8; 16]>::from(Md5::digest(&read)), attachment.digest);
        for number in 0..record.chunks() {
            stored.remove(keys::attachment_chunk(record.blob, number).as_slice()).expect("no chunks are shared");
        }
    }
    let is_mark = |key: &Vec<u8>| key.starts_with(keys::UPLOAD);
    let uploads: Vec<Vec<u8>> = stored.keys().filter(|key| is_mark(key)).map(|key| key[1..].to_vec()).collect();
    let is_upload = |key: &Vec<u8>| uploads.iter().any(|blob| key[1..].starts_with(blob));
    assert!(stored.keys().all(is_upload), "no bytes are left behind");
}

fn audit_ranks(view: &ReadView<'_>, documents: &Entries, sequence: &Entries) {
    let live: Vec<&[u8]> =
        documents.iter().filter(|(_, bytes)| !Head::is_deleted(bytes)).map(|(id, _)| id.as_slice()).collect();
    let seqs: Vec<&[u8]> = sequence.keys().map(Vec::as_slice).collect();
    let stored = load_writer(view.snapshot().as_ref()).unwrap();
    let published = view.database().ranks.lock().clone();
    let fitting = published.iter().filter(|ranks| ranks.state == stored.state);
    for ranks in fitting.chain([&stored.ranks]) {
        audit_counts(&ranks.ids, &live);
        assert_eq!(ranks.ids.total_uncounted(), (documents.len() - live.len()) as u64, "deleted documents");
        audit_counts(&ranks.seqs, &seqs);
    }
    let catalog = entries(view, Keyspace::Catalog);
    let logged: Vec<u64> = catalog
        .keys()
        .filter_map(|key| key.strip_prefix(keys::RANK_LOG))
        .map(|key| keys::decode_sequence(key).unwrap())
        .collect();
    assert_eq!(stored.rank_log, logged);
    let table = catalog.get(keys::RANK_TABLE).map(|bytes| table::read(view.snapshot().as_ref(), bytes).unwrap());
    let pieces = catalog.keys().filter(|key| key.starts_with(keys::RANK_PIECE)).count();
    assert_eq!((table.as_ref().map_or(0, |(_, pieces)| *pieces), stored.rank_pieces), (pieces, pieces));
    let table = table.map(|(ranks, _)| ranks.state.version.0);
    assert!(logged.iter().all(|version| Some(*version) > table), "no log record is older than the table");
    if let Some(bytes) = catalog.get(keys::REVS_LIMIT) {
        assert_eq!(stored.revs_limit, Reader::new(bytes, "limit").varint().unwrap());
    }
}

fn audit_counts(counts: &Counts, keys: &[&[u8]]) {
    let mut rank = 0;
    while let Some(bucket) = counts.at(rank) {
        let start = keys.partition_point(|key| *key < bucket.start);
        let end = bucket.end.map_or(keys.len(), |end| keys.partition_point(|key| *key < end));
        assert_eq!((bucket.before, bucket.count), (start as u64, (end - start) as u64), "{bucket:?}");
        rank = bucket.before + bucket.count;
    }
    assert_eq!(rank, keys.len() as u64);
}

pub(crate) fn entries(view: &ReadView<'_>, space: Keyspace) -> Entries {
    let range = KeyRange::default();
    let mut cursor = view.snapshot().scan(space, range, Direction::Forward, settee_storage::Expect::All).unwrap();
    let mut entries = Entries::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        entries.insert(key.to_vec(), value.to_vec());
    }
    entries
}
