//! Import and export of documents in formats of other programs, as clients of the HTTP interface.

mod csv;
pub mod export;
mod format;
pub mod import;
mod input;
mod json;
mod row;

use std::path::PathBuf;

use clap::ValueEnum;
use settee_replication::Tuning;

/// Format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One document per line
    Ndjson,
    /// An array of documents
    Json,
    /// Comma-separated values; the first line contains the names
    Csv,
    /// Format of couchbackup: an array of documents in each line
    Couchbackup,
}

const TIMEOUT_MS: u64 = 300_000;

fn tuning() -> Tuning {
    Tuning { connection_timeout_ms: TIMEOUT_MS, ..Tuning::default() }
}

/// Trusted certificates for the server.
#[derive(Debug, clap::Args)]
pub struct TrustArgs {
    /// A file of certificates to trust instead of the public authorities
    #[arg(long, value_name = "FILE")]
    authorities: Option<PathBuf>,
}
