//! [`Shard`]: one database file, and its leaves as documents for the target.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use settee_couch_files::{Attachment, Contents, Database, DocInfo, LostDocument, Revision};
use settee_model::base64;
use settee_model::json::{write_array, write_string, write_u64};
use sha2::{Digest as _, Sha256};

pub(crate) struct Shard {
    pub(crate) path: PathBuf,
    pub(crate) database: Database,
}

pub(crate) struct Leaf {
    pub(crate) id: String,
    pub(crate) rev: String,
    /// The attachments follow the JSON text.
    pub(crate) text: Vec<u8>,
    pub(crate) attachments: Vec<Attachment>,
}

impl Shard {
    pub(crate) fn open(path: &Path) -> anyhow::Result<Arc<Self>> {
        let database = Database::open(path).with_context(|| path.display().to_string())?;
        Ok(Arc::new(Self { path: path.to_owned(), database }))
    }

    pub(crate) fn count(&self) -> u64 {
        let header = self.database.header();
        header.doc_count.unwrap_or(0) + header.deleted_count.unwrap_or(0)
    }

    /// Identifies the state of the file. Another state must be read from the start.
    pub(super) fn state(&self) -> String {
        let mut hasher = Sha256::new();
        hasher.update(self.path.file_name().unwrap_or_default().as_encoded_bytes());
        hasher.update(self.path.parent().and_then(Path::file_name).unwrap_or_default().as_encoded_bytes());
        hasher.update(self.database.header().position.to_le_bytes());
        hasher.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn leaves(&self, document: &DocInfo) -> Vec<Result<Leaf, LostDocument>> {
        let leaf = |revision: &Revision| match self.database.contents(revision) {
            Ok(contents) => Ok(Leaf::new(document, revision, contents)),
            Err(error) => Err(LostDocument { id: document.id.clone(), rev: Some(revision.rev.clone()), error }),
        };
        document.leaves().map(leaf).collect()
    }
}

impl Leaf {
    fn new(document: &DocInfo, revision: &Revision, contents: Contents) -> Self {
        let Contents { body, attachments } = contents;
        let mut text = b"{\"_id\":".to_vec();
        write_string(&mut text, &document.id);
        text.extend_from_slice(b",\"_rev\":");
        revision.rev.write_json(&mut text);
        text.extend_from_slice(b",\"_revisions\":{\"start\":");
        write_u64(&mut text, revision.rev.generation);
        text.extend_from_slice(b",\"ids\":");
        write_array(&mut text, document.path(revision), |text, hash| write_string(text, &hash.to_string()));
        text.push(b'}');
        if revision.is_deleted {
            text.extend_from_slice(b",\"_deleted\":true");
        }
        if !attachments.is_empty() {
            text.extend_from_slice(b",\"_attachments\":{");
            for (number, attachment) in attachments.iter().enumerate() {
                if number > 0 {
                    text.push(b',');
                }
                write_attachment(&mut text, attachment);
            }
            text.push(b'}');
        }
        if body.len() > 2 {
            text.push(b',');
        }
        text.extend_from_slice(&body[1..]);
        Self { id: document.id.clone(), rev: revision.rev.to_string(), text, attachments }
    }
}

fn write_attachment(text: &mut Vec<u8>, attachment: &Attachment) {
    write_string(text, &attachment.name);
    text.extend_from_slice(b":{\"follows\":true,\"content_type\":");
    write_string(text, &attachment.content_type);
    text.extend_from_slice(format!(",\"revpos\":{},\"length\":{}", attachment.revpos, attachment.len).as_bytes());
    if attachment.is_gzip {
        text.extend_from_slice(
            format!(",\"encoding\":\"gzip\",\"encoded_length\":{}", attachment.stored_len).as_bytes(),
        );
    }
    if let Some(md5) = attachment.md5 {
        text.extend_from_slice(b",\"digest\":\"md5-");
        base64::encode(&md5, text);
        text.push(b'"');
    }
    text.push(b'}');
}
