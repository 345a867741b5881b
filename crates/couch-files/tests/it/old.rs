//! Files of the disk versions 6 and 7, as CouchDB 1.2 to 2 write them.

use settee_couch_files::{Database, DocumentError, FileError, Lost};

use crate::builder::{Builder, atom, bin, chain, int, list, root, tuple, whole};

fn member(name: &str, value: Vec<u8>) -> Vec<u8> {
    tuple(&[bin(name), value])
}

/// A file of version 6 with the records of CouchDB 1.2: no sizes, a tree by sequence without histories.
fn version_6() -> Builder {
    let mut builder = Builder::default();
    let data = builder.chunk(b"hello", false);
    let more = builder.chunk(b" world", false);
    let chunks = list(&[tuple(&[int(data), int(5)]), tuple(&[int(more), int(6)])]);
    let md5 = bin([0x5e, 0xb6, 0x3b, 0xbb, 0xe0, 0x1e, 0xee, 0xd0, 0x93, 0xcb, 0x22, 0xbb, 0x8f, 0x5a, 0xcd, 0xc3]);
    let attachments = list(&[
        tuple(&[bin("a"), bin("text/plain"), chunks, int(11), int(11), int(2), md5, atom("identity")]),
        tuple(&[bin("b"), bin("text/plain"), list(&[int(data)]), int(5), int(1), bin("")]),
        tuple(&[bin("c"), tuple(&[bin("x/y"), list(&[int(more)]), int(6)])]),
    ]);
    let body = tuple(&[list(&[member("n", int(5)), member("s", bin("é"))])]);
    let body = builder.term(&tuple(&[bin(whole(&body)), bin(whole(&attachments))]));
    let by_id = builder.leaf(&[(bin("doc"), tuple(&[int(7), int(0), chain(b"abc", body)]))]);
    let leaf = tuple(&[tuple(&[int(3), bin([b'c'; 16])]), int(7), int(body)]);
    let by_seq = builder.leaf(&[(int(7), tuple(&[bin("doc"), list(&[leaf]), list(&[])]))]);
    let local = builder.leaf(&[(bin("_local/x"), tuple(&[int(4), tuple(&[list(&[member("y", atom("null"))])])]))]);
    let security = builder.term(&list(&[member("admins", tuple(&[list(&[member("names", list(&[bin("ann")]))])]))]));
    let purged = builder.term(&list(&[tuple(&[bin("gone"), list(&[tuple(&[int(1), bin([b'z'; 16])])])])]));
    builder.header(&[
        int(6),
        int(7),
        int(0),
        root(by_id),
        root(by_seq),
        tuple(&[int(local), list(&[])]),
        int(1),
        int(purged),
        int(security),
        int(33),
    ]);
    builder
}

#[test]
fn a_file_of_version_6() {
    let database = Database::new(Box::new(version_6().file)).unwrap();
    assert_eq!((database.header().disk_version, database.header().revs_limit), (6, 33));
    assert_eq!(database.header().doc_count, Some(1));
    let documents: Vec<_> = database.documents(None).map(Result::unwrap).collect();
    let [document] = &documents[..] else { panic!("{documents:?}") };
    let leaf = document.winner().unwrap();
    assert_eq!((document.id.as_str(), document.update_seq, leaf.rev.generation), ("doc", 7, 3));
    let path: String = document.path(leaf).map(|hash| hash.as_bytes()[0] as char).collect();
    assert_eq!(path, "cba");
    let contents = database.contents(leaf).unwrap();
    assert_eq!(String::from_utf8(contents.body).unwrap(), "{\"n\":5,\"s\":\"é\"}");
    let mut found = Vec::new();
    for attachment in &contents.attachments {
        let mut data = Vec::new();
        let read: Result<(), DocumentError> = database.attachment(attachment, |chunk| {
            data.extend(chunk);
            Ok(())
        });
        read.unwrap();
        let text = String::from_utf8(data).unwrap();
        found.push(format!("{} {} {} {text}", attachment.name, attachment.content_type, attachment.revpos));
    }
    assert_eq!(found, ["a text/plain 2 hello world", "b text/plain 1 hello", "c x/y 0  world"]);
    let local: Vec<_> = database.local_documents().map(Result::unwrap).collect();
    assert_eq!((local[0].id.as_str(), local[0].rev, &local[0].body[..]), ("_local/x", 4, &b"{\"y\":null}"[..]));
    assert_eq!(database.security().unwrap().unwrap(), b"{\"admins\":{\"names\":[\"ann\"]}}");
    let purges: Vec<_> = database.purges().unwrap().into_iter().map(Result::unwrap).collect();
    assert_eq!((purges[0].id.as_str(), purges[0].seq, purges[0].revs.len()), ("gone", 1, 1));
    assert!(!database.is_partitioned().unwrap());
}

#[test]
fn a_lost_document_of_version_6_is_named() {
    let mut builder = version_6();
    let key = [bin("doc"), vec![104, 3]].concat();
    let position = builder.file.windows(key.len()).position(|window| window == key).unwrap();
    builder.file[position] = 0;
    let database = Database::new(Box::new(builder.file)).unwrap();
    assert!(matches!(database.documents(None).next(), Some(Err(Lost::Range(_)))));
    let lost: Vec<_> = database.recover().collect();
    let [Err(Lost::Document(lost))] = &lost[..] else { panic!("{lost:?}") };
    assert_eq!(lost.id, "doc");
    assert!(matches!(lost.error, DocumentError::NoHistory));
}

#[test]
fn a_file_of_version_7() {
    let mut builder = Builder::default();
    let nil = || atom("nil");
    let revs = list(&[tuple(&[int(2), bin([b'p'; 16])])]);
    let by_uuid = builder.leaf(&[(bin([9; 16]), tuple(&[int(3), bin("gone"), revs.clone()]))]);
    let by_seq = builder.leaf(&[(int(3), tuple(&[bin([9; 16]), bin("gone"), revs]))]);
    let mut elements = vec![int(7), int(7), int(0), nil(), nil(), nil(), root(by_uuid), root(by_seq), nil(), int(1000)];
    elements.extend([bin("uuid"), list(&[]), int(0), int(55)]);
    builder.header(&elements);
    let database = Database::new(Box::new(builder.file)).unwrap();
    assert_eq!((database.header().disk_version, database.header().purge_infos_limit), (7, 55));
    assert_eq!((database.header().doc_count, database.documents(None).count()), (Some(0), 0));
    assert_eq!(database.security().unwrap(), None);
    let purges: Vec<_> = database.purges().unwrap().into_iter().map(Result::unwrap).collect();
    assert_eq!((purges[0].id.as_str(), purges[0].seq), ("gone", 3));
}

#[test]
fn other_versions_are_refused() {
    for version in [5, 9] {
        let mut builder = Builder::default();
        let nil = || atom("nil");
        builder.header(&[int(version), int(7), int(0), nil(), nil(), nil(), nil(), nil(), nil(), int(1000)]);
        let opened = Database::new(Box::new(builder.file));
        assert!(matches!(opened, Err(FileError::DiskVersion(found)) if found == version));
    }
    assert!(matches!(Database::new(Box::new(Vec::new())), Err(FileError::NoHeader)));
    assert!(matches!(Database::new(Box::new(vec![1; 100_000])), Err(FileError::NoHeader)));
}
