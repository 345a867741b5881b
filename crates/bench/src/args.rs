//! The command line of the benchmark program: [`BenchArgs`]. The module of each workload defines the effect of its
//! arguments.

use crate::generate::{IdOrder, Shape};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Arguments of `settee-bench`.
#[derive(Args, Debug, Clone)]
pub(crate) struct BenchArgs {
    /// The measurement.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Options of every measurement.
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Options of all measurements.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Options of every benchmark")]
pub(crate) struct CommonArgs {
    /// The server to measure, with credentials if required: http://admin:pw@127.0.0.1:5984
    #[arg(long, global = true, value_name = "URL", default_value = "http://127.0.0.1:5984")]
    pub(crate) url: String,
    /// A second server: every cell is measured A B A B and compared pair by pair
    #[arg(long, global = true, value_name = "URL2")]
    pub(crate) vs: Option<String>,
    /// Number of measurements of every cell [default: 1, with --vs 3]
    #[arg(long, global = true, value_name = "N")]
    pub(crate) runs: Option<u32>,
    /// Seed of the generated documents and of random choices during the measurement
    #[arg(long, global = true, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Number of shards of created databases (`?q=N`) [default: that of the server]
    #[arg(long, global = true, value_name = "N")]
    pub(crate) q: Option<u32>,
    /// Process id of the (first) server on this machine, to report its memory, processor time and context switches
    #[arg(long, global = true, value_name = "PID")]
    pub(crate) server_pid: Option<u32>,
    /// The same of the second server
    #[arg(long, global = true, value_name = "PID")]
    pub(crate) vs_pid: Option<u32>,
    /// Measure this machine in the same run and print each figure as a share of its limit
    #[arg(long = "yardstick", global = true)]
    pub(crate) with_yardstick: bool,
    /// Directory of the yardstick; choose the disk that holds the server's data [default: the current directory]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Write all figures as JSON
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write a report with charts, one self-contained HTML file
    #[arg(long, global = true, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
}

/// A measurement.
#[derive(Subcommand, Debug, Clone)]
pub(crate) enum Command {
    /// Bulk loading: batch sizes, sequential and random ids
    Load(LoadArgs),
    /// Building the founding index over small and big documents
    Index(IndexArgs),
    /// Building many kinds of views over documents of several sizes
    Views(ViewsArgs),
    /// Clients that write single documents: new ones, and edits of hot ones
    Writes(WritesArgs),
    /// Reading: documents, `_all_docs`, view ranges, grouped queries
    Reads(ReadsArgs),
    /// The cost of one request of each kind: latency, processor time, context switches, distance to the floor
    Requests(RequestsArgs),
    /// The cost of operations while a database grows
    Grow(GrowArgs),
    /// Authentication: passwords, cookies, tokens; and a flood of wrong passwords
    Auth(AuthArgs),
    /// Limits of this machine: fsync, key-value store, a hand-written map, memory
    Yardstick(YardstickArgs),
    /// All measurements with their default options
    All(AllArgs),
}

/// Options of `load`.
#[derive(Args, Debug, Clone)]
pub(crate) struct LoadArgs {
    /// Documents in every cell
    #[arg(long, default_value_t = 100_000)]
    pub(crate) docs: u64,
    /// Bytes of a document; values below the minimum (about 100 bytes) select the minimum
    #[arg(long, default_value_t = 0)]
    pub(crate) size: usize,
    /// Batch sizes; 1 writes single documents by PUT, all others use `_bulk_docs`
    #[arg(long, value_delimiter = ',', default_value = "1,10,100,1000,3000,10000")]
    pub(crate) batches: Vec<u64>,
    /// Document ids
    #[arg(long, value_delimiter = ',', default_value = "sequential,random")]
    pub(crate) ids: Vec<IdOrder>,
    /// Number of concurrently loading clients
    #[arg(long, default_value_t = 1)]
    pub(crate) clients: usize,
    /// Maximum number of requests in a cell, which bounds the time of small batches (0: no limit)
    #[arg(long, default_value_t = 5_000)]
    pub(crate) most_requests: u64,
}

/// Options of `index`.
#[derive(Args, Debug, Clone)]
pub(crate) struct IndexArgs {
    /// Number of small documents
    #[arg(long, default_value_t = 100_000)]
    pub(crate) docs: u64,
    /// Number of big documents (about 40 KB each)
    #[arg(long, default_value_t = 10_000)]
    pub(crate) big_docs: u64,
    /// Kinds of documents
    #[arg(long, value_delimiter = ',', default_value = "small,big")]
    pub(crate) documents: Vec<DocumentKind>,
    /// Languages; those that the server does not support are skipped
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "javascript,quickjs,wasm,erlang,python,simplejson,pypy,coffeescript"
    )]
    pub(crate) languages: Vec<Language>,
    /// Reduce functions: one in the view's own language, or the built-in `_sum`
    #[arg(long, value_delimiter = ',', default_value = "own,sum")]
    pub(crate) reduces: Vec<SumReduce>,
    /// Interval between two samples of `_active_tasks`
    #[arg(long, default_value_t = 100)]
    pub(crate) sample_ms: u64,
}

/// Founding documents.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DocumentKind {
    /// `{"metadata":{…},"username":…,"score":…}`
    Small,
    /// The same followed by 0 to 100 members of 800 base64 characters
    Big,
    /// The same after 0 to 100 members of 800 base64 characters, so that parsers cannot stop early
    BigTail,
}

impl DocumentKind {
    pub(crate) fn shape(self) -> Shape {
        match self {
            DocumentKind::Small => Shape::Score { size: 0 },
            DocumentKind::Big => Shape::Big,
            DocumentKind::BigTail => Shape::BigTail,
        }
    }
}

/// Languages of map functions.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    /// CouchDB's default
    Javascript,
    /// The same without Settee's native evaluator, which requires an administrator
    Quickjs,
    /// The Rust example of Settee's WebAssembly
    Wasm,
    /// CouchDB's native query server
    Erlang,
    /// The query server `python`, for example couchpy
    Python,
    /// The query server `simplejson`: couchpy with that module
    Simplejson,
    /// The query server `pypy`: couchpy under PyPy
    Pypy,
    /// Compiled to JavaScript by the server
    Coffeescript,
}

/// The function that sums the scores.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SumReduce {
    /// A reduce function in the language of the map function
    Own,
    /// The built-in `_sum`
    Sum,
}

/// Options of `views`.
#[derive(Args, Debug, Clone)]
pub(crate) struct ViewsArgs {
    /// Number of documents
    #[arg(long, default_value_t = 3_000)]
    pub(crate) docs: u64,
    /// Bytes of padding in a document
    #[arg(long, value_delimiter = ',', default_value = "1,1000,2000")]
    pub(crate) padding: Vec<usize>,
    /// Number of rows that a document emits
    #[arg(long, value_delimiter = ',', default_value = "0,1,2,3,4,5,10")]
    pub(crate) rows: Vec<u64>,
    /// Number of views in one design document
    #[arg(long, value_delimiter = ',', default_value = "2,5,10")]
    pub(crate) views: Vec<u64>,
}

/// Options of `writes`.
#[derive(Args, Debug, Clone)]
pub(crate) struct WritesArgs {
    /// Concurrent clients
    #[arg(long, default_value_t = 10)]
    pub(crate) clients: usize,
    /// Length of a measurement
    #[arg(long, default_value_t = 10.0)]
    pub(crate) seconds: f64,
    /// Number of hot documents that each client edits
    #[arg(long, default_value_t = 100)]
    pub(crate) hot: usize,
    /// Also measure clients that all edit the same hot documents, and count conflicts
    #[arg(long)]
    pub(crate) shared: bool,
}

/// Options of `reads`.
#[derive(Args, Debug, Clone)]
pub(crate) struct ReadsArgs {
    /// Number of documents
    #[arg(long, default_value_t = 100_000)]
    pub(crate) docs: u64,
    /// Duration of the measurement of each kind of request
    #[arg(long, default_value_t = 2.0)]
    pub(crate) seconds: f64,
    /// Number of rows of a page, a range, a list of keys
    #[arg(long, default_value_t = 100)]
    pub(crate) page: u64,
    /// Clients in the cell that reads single documents concurrently
    #[arg(long, default_value_t = 10)]
    pub(crate) clients: usize,
}

/// Options of `requests`.
#[derive(Args, Debug, Clone)]
pub(crate) struct RequestsArgs {
    /// Number of documents
    #[arg(long, default_value_t = 100_000)]
    pub(crate) docs: u64,
    /// Requests of each client in each cell
    #[arg(long, default_value_t = 1_000)]
    pub(crate) requests: u64,
    /// Time after which a cell ends with fewer requests
    #[arg(long, default_value_t = 10.0)]
    pub(crate) seconds: f64,
    /// Clients in the cells with several ones
    #[arg(long, default_value_t = 10)]
    pub(crate) clients: usize,
}

/// Options of `grow`.
#[derive(Args, Debug, Clone)]
pub(crate) struct GrowArgs {
    /// Documents at the end
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) docs: u64,
    /// Documents loaded between two measurements
    #[arg(long, default_value_t = 250_000)]
    pub(crate) step: u64,
    /// Document ids
    #[arg(long, default_value = "random")]
    pub(crate) ids: IdOrder,
    /// Number of deleted documents in one range of ids; 0 skips that measurement
    #[arg(long, default_value_t = 100_000)]
    pub(crate) deleted: u64,
    /// Build another index from scratch at each step
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub(crate) full_build: bool,
    /// Compact the database at each step
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub(crate) compact: bool,
}

/// Options of `auth`.
#[derive(Args, Debug, Clone)]
pub(crate) struct AuthArgs {
    /// Duration of the measurement of each kind of request
    #[arg(long, default_value_t = 5.0)]
    pub(crate) seconds: f64,
    /// Number of concurrently reading clients
    #[arg(long, default_value_t = 8)]
    pub(crate) clients: usize,
    /// Number of wrong passwords per second
    #[arg(long, default_value_t = 1_000)]
    pub(crate) wrong_passwords: u64,
    /// Number of users whose passwords are guessed
    #[arg(long, default_value_t = 2_000)]
    pub(crate) users: u64,
}

/// Options of `yardstick`.
#[derive(Args, Debug, Clone)]
pub(crate) struct YardstickArgs {
    /// Number of small documents loaded into the key-value store
    #[arg(long, default_value_t = 100_000)]
    pub(crate) docs: u64,
    /// Bytes of a document; values below the minimum select the minimum
    #[arg(long, default_value_t = 0)]
    pub(crate) size: usize,
}

/// Options of `all`.
#[derive(Args, Debug, Clone)]
pub(crate) struct AllArgs {
    /// A tenth of the documents, a fifth of the time
    #[arg(long)]
    pub(crate) quick: bool,
}

pub(crate) fn defaults<T: Args>() -> T {
    #[derive(Parser)]
    struct Alone<T: Args> {
        #[command(flatten)]
        args: T,
    }
    Alone::<T>::parse_from(["bench"]).args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        args: BenchArgs,
    }

    #[test]
    fn common_options_may_stand_behind_the_subcommand() {
        let args = Program::parse_from(["bench", "load", "--docs", "5", "--url", "http://h:1", "--yardstick"]).args;
        assert_eq!(args.common.url, "http://h:1");
        assert!(args.common.with_yardstick);
        let Command::Load(load) = args.command else { panic!("{:?}", args.command) };
        assert_eq!((load.docs, load.batches.len(), load.ids.len()), (5, 6, 2));
    }

    #[test]
    fn every_subcommand_has_defaults() {
        assert_eq!(defaults::<LoadArgs>().docs, 100_000);
        assert_eq!(defaults::<IndexArgs>().languages.len(), 8);
        assert_eq!(defaults::<ViewsArgs>().padding, [1, 1000, 2000]);
        assert_eq!(defaults::<WritesArgs>().clients, 10);
        assert_eq!(defaults::<ReadsArgs>().page, 100);
        assert_eq!(defaults::<GrowArgs>().step, 250_000);
        assert_eq!(defaults::<YardstickArgs>().size, 0);
    }
}
