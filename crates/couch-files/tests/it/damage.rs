//! A damaged chunk loses only the data that it contains.

use std::collections::{BTreeMap, BTreeSet};

use settee_couch_files::{Database, DocumentError, FileError, Lost};

use crate::builder::{Builder, atom, bin, chain, int, list, root, tuple};
use crate::support::{documents, file};

fn build(ids: &[&str]) -> (Builder, Vec<u64>) {
    let mut builder = Builder::default();
    let mut leaves = Vec::new();
    let mut changes = Vec::new();
    for (id, seq) in ids.iter().zip(1..) {
        let body = builder.term(&tuple(&[tuple(&[list(&[])]), list(&[])]));
        let record = |first: Vec<u8>| tuple(&[first, int(0), tuple(&[int(1), int(1)]), chain(b"ab", body)]);
        leaves.push(builder.leaf(&[(bin(id), record(int(seq)))]));
        changes.push((int(seq), record(bin(id))));
    }
    let children: Vec<_> = ids.iter().zip(&leaves).map(|(id, leaf)| (bin(id), *leaf)).collect();
    let by_id = builder.inner(&children);
    let by_seq = builder.leaf(&changes);
    let nil = || atom("nil");
    let elements = [int(8), int(9), int(0), root(by_id), root(by_seq), nil(), nil(), nil(), nil(), int(1000)];
    builder.header(&elements);
    (builder, leaves)
}

fn ids(found: impl Iterator<Item = Result<settee_couch_files::DocInfo, Lost>>) -> (Vec<String>, Vec<String>) {
    let (mut ids, mut lost) = (Vec::new(), Vec::new());
    for found in found {
        match found {
            Ok(document) => ids.push(document.id),
            Err(error) => lost.push(error.to_string()),
        }
    }
    (ids, lost)
}

#[test]
fn a_damaged_leaf_loses_its_documents_only() {
    let names = ["a", "b", "c", "d"];
    for damaged in 0..names.len() {
        let (mut builder, leaves) = build(&names);
        builder.file[leaves[damaged] as usize + 4] ^= 0xff;
        let database = Database::new(Box::new(builder.file)).unwrap();
        let (found, lost) = ids(database.documents(None));
        let rest: Vec<&str> = names.iter().copied().filter(|name| *name != names[damaged]).collect();
        assert_eq!(found, rest);
        assert_eq!(lost.len(), 1);
        let range = match damaged {
            0 => "the entries up to a: ".to_owned(),
            _ => format!("the entries after {} up to {}: ", names[damaged - 1], names[damaged]),
        };
        assert!(lost[0].starts_with(&range), "{lost:?}");
        let (found, lost) = ids(database.recover());
        assert_eq!((found, lost), (vec![names[damaged].to_owned()], Vec::new()));
    }
}

#[test]
fn nodes_that_refer_to_each_other_end_a_walk() {
    let (mut builder, leaves) = build(&["a", "b"]);
    let nil = || atom("nil");
    let header = |builder: &mut Builder, by_id: u64| {
        builder.header(&[int(8), int(9), int(0), root(by_id), nil(), nil(), nil(), nil(), nil(), int(1000)]);
    };
    let mut node = leaves[1];
    for level in 0..40_u64 {
        let children: Vec<_> = (0..50).map(|child| (bin(format!("c{level:02}{child:02}")), node)).collect();
        node = builder.inner(&children);
    }
    header(&mut builder, node);
    let database = Database::new(Box::new(builder.file)).unwrap();
    let (found, lost) = ids(database.documents(None));
    assert_eq!(found, ["b"]);
    assert!(lost.len() < 10_000, "{}", lost.len());

    let (mut builder, _) = build(&["a"]);
    let next = builder.file.len() as u64;
    let own = builder.inner(&[(bin("x"), next), (bin("y"), next + 500)]);
    assert_eq!(own, next);
    header(&mut builder, own);
    let database = Database::new(Box::new(builder.file)).unwrap();
    let (found, lost) = ids(database.documents(None));
    assert_eq!((found.len(), lost.len()), (0, 2), "{lost:?}");
}

#[test]
fn a_root_behind_the_header_is_lost() {
    let mut builder = Builder::default();
    let nil = || atom("nil");
    builder.header(&[int(8), int(9), int(0), root(1 << 40), nil(), nil(), nil(), nil(), nil(), int(1000)]);
    let database = Database::new(Box::new(builder.file)).unwrap();
    let (found, lost) = ids(database.documents(None));
    assert_eq!((found.len(), lost.len()), (0, 1));
    assert!(lost[0].starts_with("all entries: "), "{lost:?}");
}

#[test]
fn a_damaged_body_loses_one_leaf() {
    let mut whole = file("shards/00000000-ffffffff/fx_none.1795752227.couch");
    let database = Database::new(Box::new(whole.clone())).unwrap();
    let all = documents(&database);
    let mut damaged = 0;
    for at in (0..whole.len() - 200).filter(|at| at % 3 == 0) {
        if whole[at..].starts_with(&[131, 104, 2, 109]) {
            whole[at + 12] ^= 1;
            damaged += 1;
        }
    }
    assert!(damaged > 10, "{damaged}");
    let database = Database::new(Box::new(whole)).unwrap();
    let (mut lost, mut kept) = (BTreeSet::new(), BTreeMap::new());
    for document in database.documents(None) {
        let document = document.unwrap();
        for leaf in document.leaves() {
            match database.contents(leaf) {
                Ok(_) => *kept.entry(document.id.clone()).or_insert(0) += 1,
                Err(DocumentError::File(FileError::Checksum { .. })) => {
                    lost.insert((document.id.clone(), leaf.rev.clone()));
                }
                Err(error) => panic!("{}: {error}", document.id),
            }
        }
    }
    assert!(!lost.is_empty());
    let leaves: usize = all.values().map(Vec::len).sum();
    assert_eq!(lost.len() + kept.values().sum::<usize>(), leaves);
}

#[test]
fn a_damaged_attachment_is_noticed() {
    let whole = file("shards/00000000-ffffffff/fx_none.1795752227.couch");
    let database = Database::new(Box::new(whole.clone())).unwrap();
    let found: Vec<_> = database.documents(None).map(Result::unwrap).collect();
    let mut checked = 0;
    for document in &found {
        for leaf in document.leaves() {
            for attachment in database.contents(leaf).unwrap().attachments {
                let mut data = Vec::new();
                let read: Result<(), DocumentError> = database.attachment(&attachment, |chunk| {
                    data.extend(chunk);
                    Ok(())
                });
                read.unwrap();
                let window = data.get(..64).and_then(|start| whole.windows(64).position(|window| window == start));
                let Some(position) = window.filter(|_| checked < 3) else { continue };
                let mut hurt = whole.clone();
                hurt[position] ^= 1;
                let hurt = Database::new(Box::new(hurt)).unwrap();
                let read: Result<(), DocumentError> = hurt.attachment(&attachment, |_| Ok(()));
                assert!(matches!(read, Err(DocumentError::AttachmentDigest(_))), "{read:?}");
                checked += 1;
            }
        }
    }
    assert_eq!(checked, 3);
}
