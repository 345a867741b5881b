//! The command line.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};

use crate::backup::commands::{BackupArgs, RestoreArgs};
use crate::commands::{DoctorArgs, SalvageArgs, VerifyArgs};
use crate::config::check::Severity;
use crate::config::show::check_file;
use crate::config::{Configuration, Given, Options, guide};
use crate::environment::{self, data_directory};
use crate::exchange::export::ExportArgs;
use crate::exchange::import::ImportArgs;
use crate::manual::{self, CompletionsArgs, ManArgs};
use crate::migrate::MigrateArgs;
use crate::output::say;
use crate::transfer::StorageArgs;
use crate::{backends, storage};

/// Settee: a CouchDB-compatible document database in one program.
///
/// Start it with `settee serve`, then talk to it as to CouchDB:
///
///   curl -X PUT http://127.0.0.1:5984/demo
///   curl -X PUT http://127.0.0.1:5984/demo/first -d '{"hello":"world"}'
///   curl 'http://127.0.0.1:5984/demo/_all_docs?include_docs=true'
#[derive(Debug, Parser)]
#[command(name = "settee", version, long_version = manual::VERSION, verbatim_doc_comment)]
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
    ///
    /// Settings are read from DIR/local.ini, DIR/local.d/*.ini, the environment (SETTEE_SECTION__KEY=value) and --set,
    /// the later ones winning. `settee config --defaults` prints all of them.
    #[command(verbatim_doc_comment)]
    Serve(ServeArgs),
    /// Measure this server, any CouchDB, or two of them side by side
    #[cfg(feature = "bench")]
    Bench(Box<settee_bench::BenchArgs>),
    /// Show what a server begins with, what is in force, and what makes no sense
    Config(ConfigArgs),
    /// Look at a data directory and the server on it, and say what to do
    ///
    /// It looks at disk space and sync time, limits, the layout of the data, the configuration, administrators, files
    /// of certificates and slow views. Ends with 0 unless something is an error.
    #[command(verbatim_doc_comment)]
    Doctor(DoctorArgs),
    /// Compare everything that is stored with its checksums, while the server runs or not
    ///
    /// First the files: those of the storage engine block by block, and those of the server. Then the databases: each
    /// document, revision, attachment and index is read, and counters are counted again. A running server does the second
    /// part itself. Ends with 0 if everything is as it was written.
    #[command(verbatim_doc_comment)]
    Verify(VerifyArgs),
    /// Make a new data directory of everything that can be read of a damaged one
    ///
    /// What cannot be read is listed by database and document, here and in NEW/salvage.txt. The old directory stays as it
    /// is. No server may run on it.
    #[command(verbatim_doc_comment)]
    Salvage(SalvageArgs),
    /// Back up a whole server, while it runs or not, or one database
    ///
    /// Of a server: each backup is a directory of its own in the one given with --to. It is complete and has
    /// checksums; what the previous backup has as well is linked, not copied. In a bucket (s3://bucket/prefix) backups
    /// share their files; what is there is not sent again.
    /// Of a database: a file of JSON lines with all leaf revisions, attachments, local documents and settings.
    #[command(verbatim_doc_comment)]
    Backup(BackupArgs),
    /// Make a data directory of a backup, or a database of its file or of the backup of a server
    Restore(RestoreArgs),
    /// Move a whole CouchDB in, version 1 to 3, or another Settee, while it is used
    ///
    /// Databases come with their leaf revisions (conflicts and tombstones too), attachments, security objects and limits; so do
    /// local documents, users, administrators and the settings that applications notice. Documents of _replicator go
    /// to replicator_paused, where nothing runs. Run it as often as you like: it copies what is new, and goes on where it was
    /// killed. Then compare both sides:
    ///
    ///   settee migrate http://admin:password@old:5984 --to http://admin:password@127.0.0.1:5984
    ///   settee migrate http://admin:password@old:5984 --to http://admin:password@127.0.0.1:5984 --verify
    ///
    /// docs/from-couchdb.md tells of the whole way, and of the way back.
    #[command(verbatim_doc_comment)]
    Migrate(MigrateArgs),
    /// Write the documents of a file into a database: NDJSON, JSON, CSV, couchbackup, couchdb-dump, answers of _all_docs
    ///
    /// The beginning of the file tells what it is; it may be compressed by gzip or zstd. Documents that have a _rev keep it, others
    /// are new. Rows that are refused are told with their lines. A run that was cut off goes on where it was:
    ///
    ///   settee import articles.ndjson.gz --to http://admin:password@127.0.0.1:5984/articles --refused refused.ndjson
    ///   settee import prices.csv --to http://admin:password@127.0.0.1:5984/prices --id sku --types price:number
    ///   couchbackup --url http://old:5984 --db shop | settee import - --to http://127.0.0.1:5984/shop
    #[command(verbatim_doc_comment)]
    Import(ImportArgs),
    /// Write the documents of a database to a file that other programs read: NDJSON, JSON, CSV or couchbackup
    ///
    ///   settee export http://admin:password@127.0.0.1:5984/articles --to articles.ndjson --attachments
    ///   settee export http://admin:password@127.0.0.1:5984/prices --format csv --columns _id,price
    ///
    /// Conflicts, tombstones and settings of a database are in `settee backup --database`.
    #[command(verbatim_doc_comment)]
    Export(ExportArgs),
    /// Print what a shell needs to complete the commands and options of this program
    ///
    /// Packages install it. By hand, for bash, for zsh and for fish:
    ///
    ///   settee completions bash > ~/.local/share/bash-completion/completions/settee
    ///   settee completions zsh > /usr/local/share/zsh/site-functions/_settee
    ///   settee completions fish > ~/.config/fish/completions/settee.fish
    #[command(verbatim_doc_comment)]
    Completions(CompletionsArgs),
    /// Write the manual pages of all commands into a directory, such as ~/.local/share/man/man1
    Man(ManArgs),
    /// Make what a server needs in a PostgreSQL that is to hold its data, and move data there and back
    Storage(StorageArgs),
    /// Run user code for a server; not to be called by hand
    #[command(hide = true)]
    Worker,
    /// Compile a WebAssembly module for a server; not to be called by hand
    #[cfg(feature = "wasm")]
    #[command(hide = true)]
    WasmCompiler,
}

/// `settee serve`
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The directory that holds everything; it is created if it is missing
    #[arg(long, value_name = "DIR", default_value_os_t = data_directory())]
    pub(crate) data: PathBuf,
    /// The address to listen on.
    #[arg(long, value_name = "ADDR", value_parser = parse_address, help = "The address to listen on [default: [chttpd] bind_address, 127.0.0.1]")]
    pub(crate) bind: Option<String>,
    /// The port to listen on.
    #[arg(long, value_name = "N", help = "The port to listen on, 0 for any free one [default: [chttpd] port, 5984]")]
    pub(crate) port: Option<u16>,
    /// Listen on a socket in the file system as well
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Where the data lie, if not in the data directory: postgres://user@host/database, unless it is said by
    /// SETTEE_STORAGE or by `url` in the section `storage`
    ///
    /// `settee storage init` makes the tables where a server may not. Several servers may use one: docs/operation/cluster.md.
    #[arg(long, value_name = "URL")]
    pub(crate) storage: Option<String>,
    /// What this server is called among those that use the same store; without it cluster/node of the configuration, or settee@HOST
    #[arg(long, value_name = "NAME@HOST")]
    pub(crate) node_name: Option<String>,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}

/// Where settings come from.
#[derive(Debug, Args)]
pub(crate) struct SettingsArgs {
    /// The configuration file [default: local.ini in the data directory]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// A setting that wins over files and environment; can be given several times
    #[arg(long, value_name = "SECTION/KEY=VALUE", value_parser = parse_setting)]
    pub(crate) set: Vec<(String, String, String)>,
}

impl SettingsArgs {
    /// The command line.
    pub(crate) fn given(&self) -> impl Iterator<Item = Given> {
        self.set.iter().cloned().map(|(section, key, value)| {
            let place = format!("--set {section}/{key}");
            Given { section, key, value, place }
        })
    }
}

fn parse_address(text: &str) -> Result<String, String> {
    let wanted = || "give an IP address, localhost, or any for all addresses of this machine".to_owned();
    settee_settings::key::address(text).map(|_| text.to_owned()).ok_or_else(wanted)
}

fn parse_setting(text: &str) -> Result<(String, String, String), String> {
    let parts = text.split_once('=').and_then(|(name, value)| Some((name.split_once('/')?, value)));
    match parts {
        Some(((section, key), value)) if !section.is_empty() && !key.is_empty() => {
            Ok((section.to_owned(), key.to_owned(), value.to_owned()))
        }
        _ => Err("a setting is given as section/key=value, for example chttpd/port=5985".to_owned()),
    }
}

/// `settee config`
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: Option<ConfigCommand>,
    /// Print all settings that are known, with their defaults and what they do, as an INI file
    #[arg(long)]
    defaults: bool,
    /// The data directory that the printed paths assume
    #[arg(long, value_name = "DIR", default_value_os_t = data_directory())]
    data: PathBuf,
}

/// The commands about the configuration.
#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Print what is in force, and where each value comes from; secrets are not shown
    Show {
        /// The data directory
        #[arg(long, value_name = "DIR", default_value_os_t = data_directory())]
        data: PathBuf,
        /// Where the data lie, if not in the data directory, as for `settee serve`: what several servers share is read there
        #[arg(long, value_name = "URL")]
        storage: Option<String>,
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// Say what makes no sense in a configuration file. Ends with 0 if a server would start with it
    Check {
        /// The file
        file: PathBuf,
    },
}

impl ConfigArgs {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        match &self.command {
            Some(ConfigCommand::Show { data, storage, settings }) => show(data, storage.as_ref(), settings),
            Some(ConfigCommand::Check { file }) => check(file),
            None if self.defaults => {
                say(&guide::render(&self.data));
                Ok(ExitCode::SUCCESS)
            }
            None => {
                say(
                    "A server reads DIR/local.ini and DIR/local.d/*.ini of its data directory, or the file given by --config.\n\
                     Print all settings with: settee config --defaults\n\
                     Print what is in force with: settee config show --data DIR\n\
                     Look for mistakes with: settee config check FILE\n",
                );
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

fn show(data: &Path, storage: Option<&String>, settings: &SettingsArgs) -> anyhow::Result<ExitCode> {
    let mut overrides = environment::settings();
    overrides.extend(storage.map(|url| Given {
        section: "storage".to_owned(),
        key: "url".to_owned(),
        value: url.clone(),
        place: "--storage".to_owned(),
    }));
    overrides.extend(settings.given());
    let options = Options {
        data_dir: data.to_owned(),
        file: settings.config.clone(),
        overrides,
        admin: None,
        entropy: Arc::new(environment::random),
    };
    let configuration = Configuration::look(options)?;
    let remarks = look_at_shared(&configuration, data)?;
    for remark in &remarks {
        say(&format!("; {remark}\n"));
    }
    say(&configuration.show()?);
    let findings = configuration.findings()?;
    for finding in &findings {
        eprintln!("{finding}");
    }
    Ok(verdict(findings.iter().map(|finding| finding.severity)))
}

/// Has what nodes share count, if there are others and the store can be read. Answers what is to be said about it.
fn look_at_shared(configuration: &Configuration, data: &Path) -> anyhow::Result<Vec<String>> {
    let Some(options) = storage::chosen(configuration)? else {
        let unknown = |place| {
            format!("The data lie in PostgreSQL: {place}. What nodes on it share is shown with --storage URL only")
        };
        return Ok(storage::elsewhere(data).map(unknown).into_iter().collect());
    };
    match backends::shared_settings(&options) {
        Ok(Some(stored)) => Ok(configuration.look_at_shared(stored)?),
        Ok(None) => {
            Ok(vec!["Nodes share nothing yet: the first one that starts puts its settings into the store".to_owned()])
        }
        Err(error) => {
            let text = format!("{error:#}").replace('\n', " ");
            Ok(vec![format!("What nodes share is not shown, and counts in the place of what follows: {text}")])
        }
    }
}

fn check(file: &Path) -> anyhow::Result<ExitCode> {
    let found = check_file(file)?;
    for (severity, text) in &found {
        let mark = if *severity == Severity::Wrong { "WRONG" } else { "note " };
        say(&format!("{mark}  {text}\n"));
    }
    if found.iter().all(|(severity, _)| *severity != Severity::Wrong) {
        say(&format!("{} is right\n", file.display()));
    }
    Ok(verdict(found.iter().map(|(severity, _)| *severity)))
}

fn verdict(mut found: impl Iterator<Item = Severity>) -> ExitCode {
    if found.any(|severity| severity == Severity::Wrong) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
