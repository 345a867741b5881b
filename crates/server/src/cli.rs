//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::config::defaults;

/// Settee: a CouchDB-compatible document database in one program.
///
/// Start it with `settee serve`, then talk to it as to CouchDB:
///
///   curl -X PUT http://127.0.0.1:5984/demo
///   curl -X PUT http://127.0.0.1:5984/demo/first -d '{"hello":"world"}'
///   curl 'http://127.0.0.1:5984/demo/_all_docs?include_docs=true'
#[derive(Debug, Parser)]
#[command(name = "settee", version, verbatim_doc_comment)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a data directory over HTTP until SIGINT or SIGTERM
    ///
    /// Without an administrator everybody may do everything, so the server then listens on loopback addresses
    /// only. Make one with COUCHDB_USER and COUCHDB_PASSWORD in the environment of the first start, or with
    /// `name = password` in the section `admins` of the configuration file: it is stored hashed.
    #[command(verbatim_doc_comment)]
    Serve(ServeArgs),
    /// Measure this server, any CouchDB, or two of them side by side
    Bench(Box<settee_bench::BenchArgs>),
    /// Show the configuration that a server begins with
    Config(ConfigArgs),
    /// Run user code for a server; not to be called by hand
    #[command(hide = true)]
    Worker,
}

/// `settee serve`
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The directory that holds everything; it is created if it is missing
    #[arg(long, value_name = "DIR", default_value = "./data")]
    pub(crate) data: PathBuf,
    /// The address to listen on.
    #[arg(long, value_name = "ADDR", help = "The address to listen on [default: [chttpd] bind_address, 127.0.0.1]")]
    pub(crate) bind: Option<IpAddr>,
    /// The port to listen on.
    #[arg(long, value_name = "N", help = "The port to listen on, 0 for any free one [default: [chttpd] port, 5984]")]
    pub(crate) port: Option<u16>,
    /// Listen on a socket in the file system as well
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// The configuration file [default: local.ini in the data directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// `settee config`
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// Print all settings that are known, with their defaults and what they do, as an INI file
    #[arg(long)]
    defaults: bool,
    /// The data directory that the printed paths assume
    #[arg(long, value_name = "DIR", default_value = "./data")]
    data: PathBuf,
}

impl ConfigArgs {
    pub(crate) fn run(&self) {
        if self.defaults {
            print!("{}", defaults::render(&self.data));
        } else {
            println!(
                "A server reads DIR/local.ini and DIR/local.d/*.ini of its data directory, or the file given by --config."
            );
            println!("Print all settings with: settee config --defaults");
        }
    }
}
