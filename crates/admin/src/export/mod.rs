//! Export of one database to a file of JSON lines, and its restore, by HTTP: the server may be CouchDB.
//!
//! The file, line by line:
//!
//! ```text
//! {"settee_export":1,"database":NAME,"partitioned":BOOL,"revs_limit":N,"security":{…}}
//! {"doc":{"_id","_rev","_revisions",…,"_attachments":{NAME:{"data",…}}}}      a leaf revision, deleted ones as well
//! {"doc":{…,"_attachments":{NAME:{"stub":true,…}}},"attachments":[NAME,…]}    one with large attachments, which follow:
//! {"attachment":NAME,"bytes":N}
//! {"data":BASE64}                                                              as often as it takes
//! {"local":{"_id":"_local/…",…}}
//! {"left_out":{"id":ID,"rev":REV,"why":TEXT}}                                  what the server could not read
//! {"end":{"documents":N,"revisions":N,"attachments":N,"local":N,"left_out":N},"sha256":HEX}
//! ```
//! A file without the last line is incomplete. Exports of older versions have no checksum.
//! A revision that was replaced and compacted away during the export is replaced by its successors. Local documents get
//! new revisions when they are restored.

mod client;
mod read;
mod url;
mod write;

pub use read::read;
pub use url::segment;
pub use write::write;

const FORMAT: u64 = 1;

/// Larger attachments of a revision are written in lines of their own.
const INLINE_BYTES: u64 = 4 << 20;

const LINE_BYTES: u64 = 256 << 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub documents: u64,
    pub revisions: u64,
    pub attachments: u64,
    pub local: u64,
    pub left_out: u64,
    pub is_checked: bool,
}

pub fn name_in(url: &str) -> anyhow::Result<String> {
    url::DatabaseUrl::parse(url).map(|url| url.name)
}
