//! Documents in the files of other programs, and the way back: [`import`] and [`export`]. Both are clients of the HTTP interface.
//!
//! What a file says of a document is taken as it is. Whole databases with their settings and all revisions are
//! `settee backup --database`; whole servers move by `settee migrate`.

mod csv;
pub(crate) mod export;
mod format;
pub(crate) mod import;
mod input;
mod json;
mod row;

use std::path::PathBuf;

use clap::ValueEnum;
use settee_replication::Tuning;

/// What a file looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A document in each line
    Ndjson,
    /// An array of documents
    Json,
    /// Comma-separated values, with a line of names first
    Csv,
    /// As couchbackup writes it: an array of documents in each line
    Couchbackup,
}

/// Milliseconds without a sign of life: a large batch takes its time.
const TIMEOUT_MS: u64 = 300_000;

fn tuning() -> Tuning {
    Tuning { connection_timeout_ms: TIMEOUT_MS, ..Tuning::default() }
}

/// Where a server's certificate is looked up.
#[derive(Debug, clap::Args)]
pub(crate) struct TrustArgs {
    /// A file of certificates to trust instead of those that browsers trust
    #[arg(long, value_name = "FILE")]
    authorities: Option<PathBuf>,
}
