//! Attachments: stored metadata, contents that are stored once while a revision refers to them, and crashes.

use std::collections::BTreeMap;
use std::io::Read;
use std::ops::ControlFlow;
use std::sync::Arc;

use settee_model::{Rev, RevHash, RevisionHasher, Revisions, base64};
use settee_storage::counting::{Calls, CountingEngine};
use settee_storage::faulty::{FaultyEngine, SyncFault, WriteFault};
use settee_storage::{Engine, Keyspace, StorageError};

use super::audit::entries;
use super::{Random, audit, create, database, document, edit, engine, new, open, save, saved, write};
use crate::attachment::{Attachment, ContentEncoding, Form};
use crate::tasks::Tasks;
use crate::update::{Compression, NewAttachment, NewAttachments, Upload};
use crate::{Database, DocUpdate, EditMode, EncodingInfo, ParentAttachments, ReadView, Work, keys, write_stubs};

const INTERACTIVE: EditMode = EditMode::Interactive;
const GZIP: Compression = Compression::Gzip { level: 8 };

fn uploaded(database: &Arc<Database>, name: &str, kind: &str, compression: Compression, bytes: &[u8]) -> NewAttachment {
    let mut upload = Upload::new(database, compression);
    bytes.chunks(333).for_each(|piece| upload.write(piece).unwrap());
    NewAttachment::uploaded(name.to_owned(), kind.to_owned(), None, upload.finish().unwrap())
}

fn binary(database: &Arc<Database>, name: &str, bytes: &[u8]) -> NewAttachment {
    uploaded(database, name, "application/octet-stream", Compression::None, bytes)
}

fn with(database: &Arc<Database>, id: &str, parent: Option<&Rev>, body: &str, list: Vec<NewAttachment>) -> DocUpdate {
    let attachments = NewAttachments::new(database, list).unwrap();
    let document = document(parent, false, body);
    let hasher = &mut RevisionHasher::default();
    DocUpdate::prepare_with(id.to_owned(), document, attachments, INTERACTIVE, hasher).unwrap()
}

fn attachments(view: &ReadView<'_>, id: &str, rev: &Rev) -> Vec<Attachment> {
    let record = view.record(id).unwrap().unwrap();
    let stored = record.tree.node(record.tree.find(rev).unwrap()).value.unwrap();
    view.revision(stored).unwrap().unwrap().attachments
}

fn bytes(view: &ReadView<'_>, attachment: &Attachment, form: Form) -> Vec<u8> {
    let mut out = Vec::new();
    view.content(attachment).unwrap().reader(form).read_to_end(&mut out).unwrap();
    out
}

fn counts(database: &Arc<Database>) -> (usize, usize, usize) {
    let keys: Vec<Vec<u8>> = entries(&database.read().unwrap(), Keyspace::Attachments).into_keys().collect();
    let count = |first: u8| keys.iter().filter(|key| key[0] == first).count();
    (count(b'b'), count(b'c'), count(b'u'))
}

fn compact(database: &Arc<Database>) {
    database.compact(&Tasks::new(|| 0), &mut || ControlFlow::Continue(())).unwrap();
}

/// Name, type and data of an attachment, and the revision and digest that CouchDB computed.
struct Recorded<'a>(&'a str, &'a str, &'a [u8], &'a str, &'a str);

#[test]
fn revisions_are_those_of_couchdb() {
    let database = database();
    let jack = b"All work and no play makes Jack a dull boy. ".repeat(30);
    let recorded = [
        Recorded("x", "image/png", &[0, 1, 2], "1-545c4159578fe1a7347b36b641ab7726", "uV9n9h67A2GWIteY9F/C0w=="),
        Recorded("é", "image/png", &[0, 1, 2], "1-5a00546ddf3084ae846364e2f91f9382", "uV9n9h67A2GWIteY9F/C0w=="),
        Recorded("x.txt", "text/plain", &jack, "1-8f49d745f5e245e5a433c97dd12faea4", "GOg9KMlHxQQZDz8MHliT1A=="),
        Recorded("x", "image/png", &[], "1-86c468af30ea4c0d03dccce1ce43f5bb", "1B2M2Y8AsgTpgAmY7PhCfg=="),
        Recorded("x.html", "text/html", b"<b>x</b>", "1-0e9dd501a3bf952c8897984ebe6aa301", "s5vgjpzaIuF9Kx5VCfPTTw=="),
    ];
    for (number, Recorded(name, kind, data, rev, digest)) in recorded.into_iter().enumerate() {
        let id = number.to_string();
        let compression = if kind.starts_with("text/") { GZIP } else { Compression::None };
        let update = with(&database, &id, None, "{}", vec![uploaded(&database, name, kind, compression, data)]);
        assert_eq!(save(&database, update).to_string(), rev, "{name}");
        let view = database.read().unwrap();
        let [attachment] = &attachments(&view, &id, &super::rev(rev))[..] else { panic!("one attachment") };
        assert_eq!(base64::decode(digest.as_bytes()).unwrap(), attachment.digest, "{name}");
        assert_eq!((attachment.revpos, attachment.length), (1, data.len() as u64));
        assert_eq!(bytes(&view, attachment, Form::Identity), data, "{name}");
    }
    audit(&database.read().unwrap());
}

#[test]
fn documents_show_stubs() {
    let database = database();
    let list = vec![binary(&database, "b", &[0, 1, 2]), uploaded(&database, "a", "text/plain", GZIP, b"abc")];
    let rev = save(&database, with(&database, "doc", None, "{\"n\":1}", list));
    let shown = format!(
        r#"{{"_id":"doc","_rev":"{rev}","n":1,"_attachments":{{"b":{{"content_type":"application/octet-stream","revpos":1,"digest":"md5-uV9n9h67A2GWIteY9F/C0w==","length":3,"stub":true}},"a":{{"content_type":"text/plain","revpos":1,"digest":"md5-"#
    );
    let view = database.read().unwrap();
    let head = view.head("doc").unwrap().unwrap();
    let mut read = Vec::new();
    assert!(view.write_document(&mut read, "doc", &head.rev, head.stored, |_| {}).unwrap());
    let read = String::from_utf8(read).unwrap();
    assert!(read.starts_with(&shown) && read.ends_with(r#"","length":3,"stub":true}}}"#), "{read}");
    let mut changes = view.changes(0, crate::Direction::Forward).unwrap();
    changes.next().unwrap().unwrap();
    let mut fed = Vec::new();
    changes.write_document(&mut fed, |_| {}).unwrap();
    assert_eq!(String::from_utf8(fed).unwrap(), read);
    let mut with_info = b"{\"n\":1}".to_vec();
    write_stubs(&mut with_info, &attachments(&view, "doc", &rev)[1..], EncodingInfo::Shown);
    let with_info = String::from_utf8(with_info).unwrap();
    assert!(with_info.ends_with(r#""length":3,"stub":true,"encoding":"gzip","encoded_length":23}}}"#), "{with_info}");
    let mut body = Vec::new();
    assert!(view.read_body(head.stored, &mut body).unwrap());
    assert_eq!(body, b"{\"n\":1}");
}

#[test]
fn bytes_are_stored_once_and_go_with_the_last_revision() {
    let database = database();
    database.update(Work::SetRevsLimit(2)).unwrap();
    let large = vec![7; 2500];
    let a = save(
        &database,
        with(&database, "a", None, "{}", vec![binary(&database, "x", &large), binary(&database, "y", &large)]),
    );
    save(&database, with(&database, "b", None, "{}", vec![binary(&database, "z", &large)]));
    save(&database, new("c", "{}"));
    assert_eq!(counts(&database), (25, 1, 0), "the later uploads are gone");
    audit(&database.read().unwrap());
    let a = save(&database, edit("a", Some(&a), false, "{}"));
    save(&database, edit("a", Some(&a), false, "{}"));
    assert_eq!(counts(&database), (25, 1, 0));
    let b = database.read().unwrap().head("b").unwrap().unwrap().rev;
    save(&database, edit("b", Some(&b), true, "{}"));
    assert_eq!(counts(&database), (25, 1, 0), "an old revision has them");
    let view = database.read().unwrap();
    let read = attachments(&view, "b", &b);
    compact(&database);
    assert_eq!(counts(&database), (0, 0, 0));
    assert_eq!(bytes(&view, &read[0], Form::Stored), large, "a reader keeps what it saw");
    audit(&database.read().unwrap());
}

#[test]
fn stubs_keep_attachments_of_the_parent() {
    let database = database();
    let first = save(&database, with(&database, "doc", None, "{}", vec![binary(&database, "x", &[1])]));
    let parent = |path: &[Rev], mode: EditMode| database.read().unwrap().parent_attachments("doc", path, mode).unwrap();
    let ParentAttachments::Of(kept) = parent(std::slice::from_ref(&first), INTERACTIVE) else { panic!("a leaf") };
    let list = vec![binary(&database, "y", &[2]), NewAttachment::kept(kept[0].clone())];
    let second = save(&database, with(&database, "doc", Some(&first), "{}", list));
    let view = database.read().unwrap();
    let now = attachments(&view, "doc", &second);
    assert_eq!(now.iter().map(|one| (one.name.as_str(), one.revpos)).collect::<Vec<_>>(), [("y", 2), ("x", 1)]);
    assert_eq!(parent(std::slice::from_ref(&first), INTERACTIVE), ParentAttachments::Unneeded, "a conflict");
    assert_eq!(parent(&[], INTERACTIVE), ParentAttachments::Unneeded);
    assert_eq!(view.parent_attachments("none", &[], INTERACTIVE).unwrap(), ParentAttachments::Of(Vec::new()));
    assert_eq!(parent(std::slice::from_ref(&second), EditMode::Replicated), ParentAttachments::Unneeded, "known");
    let branch = [super::rev("3-b"), super::rev("2-a"), first.clone()];
    assert_eq!(parent(&branch, EditMode::Replicated), ParentAttachments::Of(kept.clone()));
    assert_eq!(
        parent(&[super::rev("3-b"), super::rev("2-a")], EditMode::Replicated),
        ParentAttachments::Of(Vec::new())
    );

    // The attachment to which a stub was resolved may be removed before the update is applied.
    let stale = with(&database, "other", None, "{}", vec![NewAttachment::kept(kept[0].clone())]);
    let third = save(&database, edit("doc", Some(&second), false, "{}"));
    compact(&database);
    assert_eq!(saved(write(&database, vec![stale]).remove(0)), None);
    let hasher = &mut RevisionHasher::default();
    let left_out = NewAttachments::left_out();
    let unresolved =
        DocUpdate::prepare_with("doc".to_owned(), document(Some(&third), false, "{}"), left_out, INTERACTIVE, hasher);
    assert_eq!(saved(write(&database, vec![unresolved.unwrap()]).remove(0)), None);
    audit(&database.read().unwrap());
}

#[test]
fn a_deleted_document_comes_back_with_an_attachment() {
    let database = database();
    let first = save(&database, new("doc", "{}"));
    save(&database, edit("doc", Some(&first), true, "{}"));
    let third = save(&database, with(&database, "doc", None, "{}", vec![binary(&database, "x", &[1])]));
    assert_eq!(third.generation, 3);
    let second = database.read().unwrap().record("doc").unwrap().unwrap().tree.nodes()[1].rev.clone();
    let unknown = RevisionHasher::default().hash_again(&second, document(None, false, "{}").body.value(), 1);
    assert_eq!(third.hash, unknown.into(), "CouchDB hashes no more of it than that it is one");
    let view = database.read().unwrap();
    // As in CouchDB, the revpos follows the revision that the client named, and the client named none.
    assert_eq!(attachments(&view, "doc", &third)[0].revpos, 1);
}

#[test]
fn abandoned_uploads_are_removed() {
    let engine = engine();
    let database = create(&open(&engine), "db");
    let mut upload = Upload::new(&database, Compression::None);
    upload.write(&[1; 5000]).unwrap();
    drop(binary(&database, "x", &[2; 3000]));
    let conflict = with(&database, "doc", Some(&super::rev("1-a")), "{}", vec![binary(&database, "x", &[3; 3000])]);
    assert_eq!(saved(write(&database, vec![conflict]).remove(0)), None);
    assert!(counts(&database).2 >= 2);
    for _ in 0..10 {
        write(&database, vec![new("other", "{}")]);
    }
    let (chunks, contents, uploads) = counts(&database);
    assert_eq!((contents, uploads), (0, 1), "the running upload stays");
    assert!(chunks >= 40);
    let next = open(&engine).database("db").unwrap();
    assert_eq!(counts(&next), (0, 0, 0));
    assert!(upload.write(&[1; 5000]).is_ok());
    let late = NewAttachment::uploaded("x".to_owned(), "a/b".to_owned(), None, upload.finish().unwrap());
    audit(&next.read().unwrap());
    let collected = with(&database, "doc", None, "{}", vec![late]);
    assert_eq!(saved(write(&database, vec![collected]).remove(0)), None, "its first bytes are gone");
}

#[test]
fn parts_are_read_alone() {
    let database = database();
    let data: Vec<u8> = (0..=255).cycle().take(1234).collect();
    let rev = save(&database, with(&database, "doc", None, "{}", vec![binary(&database, "x", &data)]));
    let view = database.read().unwrap();
    let content = view.content(&attachments(&view, "doc", &rev)[0]).unwrap();
    assert_eq!(content.stored_length(), 1234);
    for (start, end) in [(0, 1234), (0, 0), (0, 1), (99, 101), (100, 200), (550, 1234), (1233, 1234), (1234, 1300)] {
        let mut out = Vec::new();
        content.range(start..end).read_to_end(&mut out).unwrap();
        assert_eq!(out, &data[start as usize..(end as usize).min(1234)], "{start}..{end}");
    }
}

#[derive(Clone, Default)]
struct Model(BTreeMap<String, (Rev, BTreeMap<String, Vec<u8>>)>);

impl Model {
    fn check(&self, database: &Arc<Database>) {
        let view = database.read().unwrap();
        audit(&view);
        for (id, (rev, wanted)) in &self.0 {
            let stored = attachments(&view, id, rev);
            let read = stored.iter().map(|one| (one.name.clone(), bytes(&view, one, Form::Identity)));
            assert_eq!(read.collect::<BTreeMap<_, _>>(), *wanted, "{id} {rev}");
        }
    }
}

fn random_update(
    random: &mut Random,
    database: &Arc<Database>,
    model: &Model,
) -> (String, DocUpdate, BTreeMap<String, Vec<u8>>) {
    let id = random.below(8).to_string();
    let leaf = model.0.get(&id);
    let mut wanted = BTreeMap::new();
    let mut list = Vec::new();
    if let Some((rev, has)) = leaf {
        for kept in attachments(&database.read().unwrap(), &id, rev) {
            if random.one_in(2) {
                wanted.insert(kept.name.clone(), has[&kept.name].clone());
                list.push(NewAttachment::kept(kept));
            }
        }
    }
    for _ in 0..random.below(3) {
        let name = format!("n{}", random.below(4));
        if wanted.contains_key(&name) {
            continue;
        }
        let data = vec![random.below(3) as u8; random.pick(&[0, 1, 99, 100, 101, 950, 1000, 1001, 2500])];
        let compression = random.pick(&[Compression::None, Compression::None, GZIP]);
        list.push(uploaded(database, &name, "a/b", compression, &data));
        wanted.insert(name, data);
    }
    let parent = leaf.map(|(rev, _)| rev);
    let update = if random.one_in(4) {
        let generation = parent.map_or(0, |rev| rev.generation) + 1;
        let newest = Rev { generation, hash: RevHash::from_bytes(&random.next().to_be_bytes().repeat(2)) };
        let hashes = std::iter::once(&newest).chain(parent).map(|rev| rev.hash.clone()).collect();
        let revisions = Some(Revisions { start: generation, hashes });
        let document = settee_model::Document { revisions, ..document(None, false, "{}") };
        let attachments = NewAttachments::new(database, list).unwrap();
        let hasher = &mut RevisionHasher::default();
        DocUpdate::prepare_with(id.clone(), document, attachments, EditMode::Replicated, hasher).unwrap()
    } else {
        with(database, &id, parent, &random.body(150), list)
    };
    (id, update, wanted)
}

#[test]
fn random_edits_agree_with_a_model() {
    let mut random = Random::new();
    let engine = engine();
    let mut database = create(&open(&engine), "db");
    let mut model = Model::default();
    for step in 0..300 {
        match random.below(20) {
            0 => compact(&database),
            1 => {
                database.update(Work::SetRevsLimit(random.below(4) as u64 + 1)).unwrap();
            }
            2 => database = open(&engine).database("db").unwrap(),
            3 => drop(binary(&database, "x", &[9; 1500])),
            _ => {
                let mut batch: Vec<(String, DocUpdate, _)> = Vec::new();
                for _ in 0..1 + random.below(3) {
                    let next = random_update(&mut random, &database, &model);
                    if batch.iter().all(|(id, ..)| *id != next.0) {
                        batch.push(next);
                    }
                }
                let updates = batch.iter().map(|(_, update, _)| update.clone()).collect();
                for ((id, _, wanted), outcome) in batch.into_iter().zip(write(&database, updates)) {
                    model.0.insert(id, (saved(outcome).expect("no conflict"), wanted));
                }
            }
        }
        if step % 10 == 9 {
            model.check(&database);
        }
    }
    model.check(&database);
    let ids: Vec<String> = model.0.keys().cloned().collect();
    for id in ids {
        let (rev, _) = model.0.remove(&id).unwrap();
        save(&database, edit(&id, Some(&rev), true, "{}"));
    }
    compact(&database);
    database.update(Work::SetRevsLimit(5)).unwrap();
    assert_eq!(counts(&database), (0, 0, 0), "nothing is referenced");
}

#[test]
fn every_write_of_an_upload_can_be_the_last() {
    let mut random = Random::new();
    let data: Vec<u8> = (0..4321).map(|_| random.next() as u8).collect();
    let other = vec![5; 1500];
    for nth in 1..=60 {
        let faulty = Arc::new(FaultyEngine::new());
        let engine: Arc<dyn Engine> = Arc::clone(&faulty) as Arc<dyn Engine>;
        let database = create(&open(&engine), "db");
        let mut model = Model::default();
        if nth % 2 == 0 {
            faulty.inject_write(nth / 2, WriteFault::Fail(StorageError::Full("there".to_owned())));
        } else {
            faulty.inject_sync(nth / 2, SyncFault::Fail(StorageError::Io("the power went".to_owned())));
        }
        let mut work = || -> crate::Result<()> {
            for id in ["a", "b"] {
                let mut upload = Upload::new(&database, Compression::None);
                data.chunks(700).try_for_each(|piece| upload.write(piece))?;
                let large = NewAttachment::uploaded("x".to_owned(), "a/b".to_owned(), None, upload.finish()?);
                let mut second = Upload::new(&database, Compression::None);
                second.write(&other)?;
                let second = NewAttachment::uploaded("y".to_owned(), "a/b".to_owned(), None, second.finish()?);
                let outcomes =
                    database.update(Work::Documents(vec![with(&database, id, None, "{}", vec![large, second])]))?;
                let rev = saved(outcomes[0].clone()).expect("no conflict");
                let has = [("x".to_owned(), data.clone()), ("y".to_owned(), other.clone())];
                model.0.insert(id.to_owned(), (rev, BTreeMap::from(has)));
            }
            database.update(Work::SetRevsLimit(7))?;
            Ok(())
        };
        let done = work();
        let images: Vec<_> = faulty.crash_images().collect();
        for image in images {
            let engine: Arc<dyn Engine> = Arc::new(image);
            let Ok(again) = open(&engine).database("db") else {
                assert!(model.0.is_empty());
                continue;
            };
            model.check(&again);
            let (chunks, contents, uploads) = counts(&again);
            assert_eq!(uploads, 0, "collected");
            let (large, small) = (data.len().div_ceil(keys::ATTACHMENT_CHUNK_BYTES), 15);
            assert!([(0, 0), (large + small, 2)].contains(&(chunks, contents)), "{chunks} {contents}");
            let rev = save(&again, with(&again, "c", None, "{}", vec![binary(&again, "x", &data)]));
            assert_eq!(attachments(&again.read().unwrap(), "c", &rev)[0].encoding, ContentEncoding::Identity);
            model.check(&again);
        }
        assert!(done.is_ok() || nth < 60, "the last fault comes too late");
    }
}

#[test]
fn attachments_count_among_sizes_and_garbage() {
    let database = database();
    let (first, second) = (vec![1; 1000], vec![2; 300]);
    let sizes = || {
        let (info, garbage) = (database.info().unwrap(), database.garbage().unwrap());
        (info.external_bytes, garbage.total_bytes, garbage.bytes)
    };
    let a = save(&database, with(&database, "a", None, "{}", vec![binary(&database, "x", &first)]));
    save(&database, with(&database, "b", None, "{}", vec![binary(&database, "x", &first)]));
    assert_eq!(sizes(), (2 * 1002, 2 * 2 + 1000, 0));
    save(&database, with(&database, "a", Some(&a), "{}", vec![binary(&database, "x", &second)]));
    assert_eq!(sizes(), (1002 + 302, 3 * 2 + 1300, 2 + 1000));
    compact(&database);
    assert_eq!(sizes(), (1002 + 302, 2 * 2 + 1300, 0));
    audit(&database.read().unwrap());
}

#[test]
fn attachments_of_an_edit_are_read_together() {
    let engine = Arc::new(CountingEngine::new(engine()));
    let database = create(&open(&(Arc::clone(&engine) as Arc<dyn Engine>)), "db");
    let list = |from: u8| {
        let short = (0..10).map(|n| binary(&database, &format!("short{n}"), &[from, n]));
        let long = (0..3).map(|n| binary(&database, &format!("long{n}"), &[from + n; 5_000]));
        short.chain(long).collect::<Vec<_>>()
    };
    let check = |update: DocUpdate| {
        let before = engine.calls();
        let rev = save(&database, update);
        assert_eq!(engine.calls().since(before), Calls { reads: 1, commits: 1, ..Calls::default() });
        rev
    };
    let first = check(with(&database, "doc", None, "{}", list(1)));
    let view = database.read().unwrap();
    let kept: Vec<NewAttachment> =
        attachments(&view, "doc", &first).into_iter().map(NewAttachment::kept).chain(list(50)).collect();
    let second = check(with(&database, "doc", Some(&first), "{}", kept));
    let third = save(&database, edit("doc", Some(&second), false, "{}"));
    save(&database, with(&database, "doc", Some(&third), "{}", vec![binary(&database, "last", &[9])]));
    let before = engine.calls();
    database.update(Work::Compact(vec!["doc".to_owned()])).unwrap();
    assert_eq!(engine.calls().since(before), Calls { reads: 3, commits: 1, ..Calls::default() });
    audit(&database.read().unwrap());
    while !database.given_up.lock().is_empty() {
        write(&database, Vec::new());
    }
    assert_eq!(counts(&database), (1, 1, 0), "only the last one is left");
}

#[test]
fn long_attachments_go_in_pieces() {
    let engine = engine();
    let database = create(&open(&engine), "db");
    let rev = save(&database, with(&database, "doc", None, "{}", vec![binary(&database, "a", &[7; 10_000])]));
    save(&database, edit("doc", Some(&rev), false, "{}"));
    compact(&database);
    let (chunks, contents, marks) = counts(&database);
    assert!(chunks > 10 && (contents, marks) == (0, 1), "{chunks} of 100 chunks are left for the next commits");
    // The same content is uploaded again concurrently, under another number.
    save(&database, with(&database, "other", None, "{}", vec![binary(&database, "a", &[7; 10_000])]));
    assert_eq!(counts(&database).1, 1);
    drop(database);
    // A starting process completes what the previous one started.
    let database = open(&engine).database("db").unwrap();
    assert_eq!(counts(&database), (100, 1, 0));
    audit(&database.read().unwrap());
}
