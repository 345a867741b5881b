//! Fixtures, and documents as comparable text.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use settee_couch_files::{Contents, Database, DocInfo, DocumentError, Revision};
use settee_model::base64;
use settee_model::json::{Json, Value, write_string};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

pub(crate) fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).unwrap();
    out
}

pub(crate) fn file(name: &str) -> Vec<u8> {
    gunzip(&std::fs::read(fixtures().join("data").join(format!("{name}.gz"))).unwrap())
}

pub(crate) fn database(name: &str) -> Database {
    Database::new(Box::new(file(name))).unwrap()
}

pub(crate) fn expected(name: &str) -> Json {
    let text = gunzip(&std::fs::read(fixtures().join(format!("expected/{name}.json.gz"))).unwrap());
    Json::parse(&text).unwrap()
}

pub(crate) fn data_directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    copy(&fixtures().join("data"), directory.path());
    directory
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let from = entry.unwrap().path();
        let to = to.join(from.file_name().unwrap());
        if from.is_dir() {
            copy(&from, &to);
        } else {
            std::fs::write(to.with_extension(""), gunzip(&std::fs::read(from).unwrap())).unwrap();
        }
    }
}

pub(crate) fn canonical(value: Value<'_>) -> String {
    if value.is_object() {
        let members: BTreeMap<String, String> =
            value.members().map(|(name, value)| (name.to_text(), canonical(value))).collect();
        return format!("{members:?}");
    }
    if value.is_array() {
        return format!("{:?}", value.elements().map(canonical).collect::<Vec<_>>());
    }
    let raw = std::str::from_utf8(value.raw()).unwrap();
    if let Some(text) = value.as_str() {
        format!("s{text}")
    } else if raw.starts_with(|first: char| first == '-' || first.is_ascii_digit()) && raw.contains(['.', 'e', 'E']) {
        format!("f{:x}", raw.parse::<f64>().unwrap().to_bits())
    } else {
        raw.to_owned()
    }
}

fn object(members: &[(&str, String)], body: &[u8]) -> Vec<u8> {
    let mut out = b"{".to_vec();
    for (name, value) in members {
        write_string(&mut out, name);
        out.push(b':');
        out.extend_from_slice(value.as_bytes());
        out.push(b',');
    }
    match body {
        b"{}" => *out.last_mut().unwrap() = b'}',
        body => out.extend_from_slice(&body[1..]),
    }
    out
}

fn quoted(text: &str) -> String {
    let mut out = Vec::new();
    write_string(&mut out, text);
    String::from_utf8(out).unwrap()
}

fn encoded(data: &[u8]) -> String {
    let mut out = Vec::new();
    base64::encode(data, &mut out);
    String::from_utf8(out).unwrap()
}

fn attachments(database: &Database, contents: &Contents) -> String {
    let mut members = Vec::new();
    for attachment in &contents.attachments {
        let mut data = Vec::new();
        let read: Result<(), DocumentError> = database.attachment(attachment, |chunk| {
            data.extend(chunk);
            Ok(())
        });
        read.unwrap();
        let data = if attachment.is_gzip { gunzip(&data) } else { data };
        assert_eq!(data.len() as u64, attachment.len);
        members.push(format!(
            "{}:{{\"content_type\":{},\"revpos\":{},\"digest\":\"md5-{}\",\"data\":\"{}\"}}",
            quoted(&attachment.name),
            quoted(&attachment.content_type),
            attachment.revpos,
            encoded(&attachment.md5.unwrap()),
            encoded(&data)
        ));
    }
    format!("{{{}}}", members.join(","))
}

pub(crate) fn leaf(database: &Database, document: &DocInfo, leaf: &Revision) -> String {
    let contents = database.contents(leaf).unwrap();
    // CouchDB shows at most `revs_limit` revisions and removes the rest with the next change of the document.
    let limit = database.header().revs_limit as usize;
    let ids: Vec<String> = document.path(leaf).take(limit).map(|hash| quoted(&hash.to_string())).collect();
    let mut members = vec![
        ("_id", quoted(&document.id)),
        ("_rev", quoted(&leaf.rev.to_string())),
        ("_revisions", format!("{{\"start\":{},\"ids\":[{}]}}", leaf.rev.generation, ids.join(","))),
    ];
    if leaf.is_deleted {
        members.push(("_deleted", "true".to_owned()));
    }
    if !contents.attachments.is_empty() {
        members.push(("_attachments", attachments(database, &contents)));
    }
    canonical(Json::parse(&object(&members, &contents.body)).unwrap().value())
}

pub(crate) fn leaves(database: &Database, document: &DocInfo) -> Vec<String> {
    let mut leaves: Vec<String> = document.leaves().map(|found| leaf(database, document, found)).collect();
    leaves.sort();
    leaves
}

pub(crate) fn documents(database: &Database) -> BTreeMap<String, Vec<String>> {
    let documents = database.documents(None).map(Result::unwrap);
    documents.map(|document| (document.id.clone(), leaves(database, &document))).collect()
}

pub(crate) fn local_documents(database: &Database) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for local in database.local_documents().map(Result::unwrap) {
        if local.id.starts_with("_local/purge-") {
            continue;
        }
        let members = [("_id", quoted(&local.id)), ("_rev", format!("\"0-{}\"", local.rev))];
        let json = Json::parse(&object(&members, &local.body)).unwrap();
        found.insert(local.id, canonical(json.value()));
    }
    found
}
