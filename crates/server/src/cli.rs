//! The command line.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};

use crate::config::check::Severity;
use crate::config::presets::Preset;
use crate::config::show::check_file;
use crate::config::{Configuration, Options, Override, guide};
use crate::environment::{self, data_directory};
use crate::manual::{self, CompletionsArgs, ManArgs};
use settee_admin::backup::commands::{BackupArgs, RestoreArgs};
use settee_admin::commands::{DoctorArgs, SalvageArgs, VerifyArgs};
use settee_admin::exchange::export::ExportArgs;
use settee_admin::exchange::import::ImportArgs;
use settee_admin::migrate::{ImportFilesArgs, MigrateArgs};
use settee_admin::output::print_text;
use settee_admin::storage::Chosen;
use settee_admin::transfer::StorageArgs;
use settee_admin::{backends, storage};

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

/// A subcommand.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a data directory over HTTP until SIGINT or SIGTERM
    ///
    /// Without an administrator every client has all permissions, so the server then listens on loopback addresses
    /// only. Create one with COUCHDB_USER and COUCHDB_PASSWORD in the environment of the first start, or with `name =
    /// password` in the section `admins` of the configuration file: it is stored hashed.
    ///
    /// Settings are read from a preset, DIR/local.ini, DIR/local.d/*.ini, the environment (SETTEE_SECTION__KEY=value)
    /// and --set. Later sources take precedence. `settee config --defaults` prints all settings.
    #[command(verbatim_doc_comment)]
    Serve(ServeArgs),
    /// Print the default settings, print the settings in force, or check a configuration file
    Config(ConfigArgs),
    /// Check a data directory and the server on it, and suggest repairs
    ///
    /// Checks disk space and sync time, limits, the layout of the data, the configuration, administrators, certificate
    /// files and slow views. The exit code is 0 unless an error is found.
    #[command(verbatim_doc_comment)]
    Doctor(DoctorArgs),
    /// Verify the checksums of all stored data; the server may be running
    ///
    /// Verifies the files first: those of the storage engine block by block, and those of the server. Then it reads
    /// each document, revision, attachment and index of the databases, and recounts the counters. A running server does
    /// the second part itself. The exit code is 0 if no damage is found.
    #[command(verbatim_doc_comment)]
    Verify(VerifyArgs),
    /// Create a new data directory from the readable part of a damaged one
    ///
    /// Unreadable data is listed by database and document, on the output and in NEW/salvage.txt. The old directory is
    /// not modified. No server may run on it.
    #[command(verbatim_doc_comment)]
    Salvage(SalvageArgs),
    /// Back up a whole server, which may be running, or one database
    ///
    /// Of a server: each backup is a directory of its own in the one given with --to. It is complete and has checksums;
    /// files that the previous backup also has are linked, not copied. In a bucket (s3://bucket/prefix) backups share
    /// their files; files that are already stored are not sent again. Of a database: a file of JSON lines with all leaf
    /// revisions, attachments, local documents and settings.
    #[command(verbatim_doc_comment)]
    Backup(BackupArgs),
    /// Create a data directory from a backup, or a database from its file or from the backup of a server
    Restore(RestoreArgs),
    /// Migrate a whole CouchDB, version 1 to 3, or another Settee, while it is in use
    ///
    /// Copies databases with their leaf revisions (including conflicts and tombstones), attachments, security objects
    /// and limits, and also local documents, users, administrators and the settings that applications depend on.
    /// Documents of _replicator are copied to replicator_paused, where no replication runs. The command can be
    /// repeated: it copies new changes and resumes after an interruption. Then compare both sides:
    ///
    ///   settee migrate http://admin:password@old:5984 --to http://admin:password@127.0.0.1:5984
    ///   settee migrate http://admin:password@old:5984 --to http://admin:password@127.0.0.1:5984 --verify
    ///
    /// docs/from-couchdb.md describes the whole procedure, and the way back.
    #[command(verbatim_doc_comment)]
    Migrate(MigrateArgs),
    /// Migrate the files of a CouchDB that does not run, version 1.2 to 3
    ///
    /// Reads a data directory without modifying it, and writes into a running Settee: databases with all leaf revisions
    /// and their histories, attachments as they are stored, local documents, security objects, limits and users; with
    /// --config also administrators and the settings that applications depend on. Documents of _replicator are copied
    /// to replicator_paused, where no replication runs. Torn and damaged files are read as far as possible; what is
    /// lost is listed. An interrupted run can be resumed. Then compare both sides:
    ///
    ///   settee import-files /opt/couchdb/data --config /opt/couchdb/etc --to http://admin:password@127.0.0.1:5984
    ///   settee import-files /opt/couchdb/data --to http://admin:password@127.0.0.1:5984 --verify
    ///
    /// docs/from-couchdb-files.md describes the procedure, and what happens to damaged files.
    #[command(verbatim_doc_comment)]
    ImportFiles(ImportFilesArgs),
    /// Write the documents of a file into a database: NDJSON, JSON, CSV, couchbackup, couchdb-dump, answers of
    /// _all_docs
    ///
    /// The format is detected from the start of the file, which may be compressed by gzip or zstd. Documents that have
    /// a _rev keep it, others are new. Refused rows are reported with their line numbers. An interrupted run can be
    /// resumed:
    ///
    ///   settee import articles.ndjson.gz --to http://admin:password@127.0.0.1:5984/articles --refused refused.ndjson
    ///   settee import prices.csv --to http://admin:password@127.0.0.1:5984/prices --id sku --types price:number
    ///   couchbackup --url http://old:5984 --db shop | settee import - --to http://127.0.0.1:5984/shop
    #[command(verbatim_doc_comment)]
    Import(ImportArgs),
    /// Write the documents of a database to a file for other programs: NDJSON, JSON, CSV or couchbackup
    ///
    ///   settee export http://admin:password@127.0.0.1:5984/articles --to articles.ndjson --attachments
    ///   settee export http://admin:password@127.0.0.1:5984/prices --format csv --columns _id,price
    ///
    /// Conflicts, tombstones and settings of a database are in `settee backup --database`.
    #[command(verbatim_doc_comment)]
    Export(ExportArgs),
    /// Print the completion script of a shell for the commands and options of this program
    ///
    /// Packages install it. Manual installation for bash, zsh and fish:
    ///
    ///   settee completions bash > ~/.local/share/bash-completion/completions/settee
    ///   settee completions zsh > /usr/local/share/zsh/site-functions/_settee
    ///   settee completions fish > ~/.config/fish/completions/settee.fish
    #[command(verbatim_doc_comment)]
    Completions(CompletionsArgs),
    /// Write the manual pages of all commands into a directory, such as ~/.local/share/man/man1
    Man(ManArgs),
    /// Create the tables of a server in a PostgreSQL, and move data to it and back
    Storage(StorageArgs),
    /// Run user functions for a server; not for manual use
    #[command(hide = true)]
    Worker,
    /// Compile a WebAssembly module for a server; not for manual use
    #[cfg(feature = "wasm")]
    #[command(hide = true)]
    WasmCompiler,
}

/// Arguments of `settee serve`
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The data directory; it is created if it is missing
    #[arg(long, value_name = "DIR", default_value_os_t = data_directory())]
    pub(crate) data: PathBuf,
    /// The address to listen on.
    #[arg(long, value_name = "ADDR", value_parser = parse_address, help = "The address to listen on [default: [chttpd] bind_address, 127.0.0.1]")]
    pub(crate) bind: Option<String>,
    /// The port to listen on.
    #[arg(long, value_name = "N", help = "The port to listen on, 0 for any free one [default: [chttpd] port, 5984]")]
    pub(crate) port: Option<u16>,
    /// Listen on a Unix socket as well
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Location of the data, if not the data directory: postgres://user@host/database or s3://bucket/prefix [default:
    /// SETTEE_STORAGE, or `url` in the section `storage`]
    ///
    /// `settee storage init` creates the tables if the server lacks that privilege. Several servers may share one
    /// PostgreSQL: docs/operation/cluster.md. Buckets, also gs://, az:// and file://: docs/operation/object-storage.md.
    #[arg(long, value_name = "URL")]
    pub(crate) storage: Option<String>,
    /// Name of this server among those that use the same store; the default is cluster/node of the configuration, or
    /// settee@HOST
    #[arg(long, value_name = "NAME@HOST")]
    pub(crate) node_name: Option<String>,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
}

/// Sources of settings.
#[derive(Debug, Args)]
pub(crate) struct SettingsArgs {
    /// The configuration file [default: SETTEE_CONFIG, or local.ini in the data directory]
    ///
    /// Of a directory of CouchDB's, such as /opt/couchdb/etc, the files in default.d, local.ini and local.d are read,
    /// and then local.ini in the data directory.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Settings for an application, which all other sources override [default: SETTEE_PRESET]; see `settee config
    /// presets`
    #[arg(long, value_name = "NAME")]
    preset: Option<Preset>,
    /// A setting that overrides files and environment; can be given several times
    #[arg(long, value_name = "SECTION/KEY=VALUE", value_parser = parse_setting)]
    pub(crate) set: Vec<(String, String, String)>,
}

impl SettingsArgs {
    pub(crate) fn file(&self) -> Option<PathBuf> {
        environment::configuration(self.config.as_deref())
    }

    pub(crate) fn preset(&self) -> anyhow::Result<Vec<Override>> {
        let preset = self.preset.map_or_else(environment::preset, |preset| Ok(Some(preset)))?;
        Ok(preset.map(Preset::given).unwrap_or_default())
    }

    pub(crate) fn given(&self) -> impl Iterator<Item = Override> {
        self.set.iter().cloned().map(|(section, key, value)| {
            let source = format!("--set {section}/{key}");
            Override { section, key, value, source }
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
        _ => Err("invalid setting: write section/key=value, for example chttpd/port=5985".to_owned()),
    }
}

/// Arguments of `settee config`
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: Option<ConfigCommand>,
    /// Print all known settings, with their defaults and descriptions, as an INI file
    #[arg(long)]
    defaults: bool,
    /// The data directory that the printed paths assume
    #[arg(long, value_name = "DIR", default_value_os_t = data_directory())]
    data: PathBuf,
}

/// Subcommands of `settee config`.
#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Print the settings in force and the source of each value; secrets are not shown
    Show {
        /// The data directory
        #[arg(long, value_name = "DIR", default_value_os_t = data_directory())]
        data: PathBuf,
        /// Location of the data, if not the data directory, as for `settee serve`: shared settings are read there
        #[arg(long, value_name = "URL")]
        storage: Option<String>,
        #[command(flatten)]
        settings: SettingsArgs,
    },
    /// Print the settings of each preset
    Presets {
        /// Only this one
        name: Option<Preset>,
    },
    /// Report mistakes in a configuration file. The exit code is 0 if a server would start with it
    Check {
        /// The file
        file: PathBuf,
    },
}

impl ConfigArgs {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        match &self.command {
            Some(ConfigCommand::Show { data, storage, settings }) => show(data, storage.as_ref(), settings),
            Some(ConfigCommand::Presets { name }) => {
                print_text(&name.map_or_else(Preset::show_all, Preset::show));
                Ok(ExitCode::SUCCESS)
            }
            Some(ConfigCommand::Check { file }) => check(file),
            None if self.defaults => {
                print_text(&guide::render(&self.data));
                Ok(ExitCode::SUCCESS)
            }
            None => {
                print_text(
                    "A server reads DIR/local.ini and DIR/local.d/*.ini of its data directory, or the file given by --config.\n\
                     Print all settings with: settee config --defaults\n\
                     Print the settings in force with: settee config show --data DIR\n\
                     Print the presets for applications with: settee config presets\n\
                     Check for mistakes with: settee config check FILE\n",
                );
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

fn show(data: &Path, storage: Option<&String>, settings: &SettingsArgs) -> anyhow::Result<ExitCode> {
    let mut overrides = environment::settings();
    overrides.extend(storage.map(|url| Override {
        section: "storage".to_owned(),
        key: "url".to_owned(),
        value: url.clone(),
        source: "--storage".to_owned(),
    }));
    overrides.extend(settings.given());
    let options = Options {
        data_dir: data.to_owned(),
        file: settings.file(),
        preset: settings.preset()?,
        overrides,
        admin: None,
        entropy: Arc::new(environment::random),
    };
    let configuration = Configuration::open_without_corrections(options)?;
    let notices = read_shared(&configuration, data)?;
    for notice in &notices {
        print_text(&format!("; {notice}\n"));
    }
    print_text(&configuration.show()?);
    let findings = configuration.findings()?;
    for finding in &findings {
        eprintln!("{finding}");
    }
    Ok(verdict(findings.iter().map(|finding| finding.severity)))
}

/// Applies the settings shared between nodes, if the configuration names a shared store and it can be read. Returns
/// remarks about them.
fn read_shared(configuration: &Configuration, data: &Path) -> anyhow::Result<Vec<String>> {
    let Some(chosen) = storage::chosen(configuration)? else {
        let unknown = |source| {
            format!(
                "The data is in PostgreSQL: {source}. Settings that its nodes share are shown only with --storage URL"
            )
        };
        let noted = storage::elsewhere(data).filter(|place| !storage::is_bucket(place));
        return Ok(noted.map(unknown).into_iter().collect());
    };
    // Nodes on a bucket share no settings, because only one of them serves it.
    let Chosen::Postgres(options) = chosen else { return Ok(Vec::new()) };
    match backends::shared_settings(&options) {
        Ok(Some(stored)) => Ok(configuration.read_shared(stored)?),
        Ok(None) => Ok(vec!["Nodes share no settings yet: the first node that starts stores its settings".to_owned()]),
        Err(error) => {
            let text = format!("{error:#}").replace('\n', " ");
            Ok(vec![format!(
                "The shared settings cannot be read; they take precedence over the settings below: {text}"
            )])
        }
    }
}

fn check(file: &Path) -> anyhow::Result<ExitCode> {
    let found = check_file(file)?;
    for (severity, text) in &found {
        let mark = if *severity == Severity::Mistake { "WRONG" } else { "note " };
        print_text(&format!("{mark}  {text}\n"));
    }
    if found.iter().all(|(severity, _)| *severity != Severity::Mistake) {
        print_text(&format!("{} is valid\n", file.display()));
    }
    Ok(verdict(found.iter().map(|(severity, _)| *severity)))
}

fn verdict(mut found: impl Iterator<Item = Severity>) -> ExitCode {
    if found.any(|severity| severity == Severity::Mistake) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
