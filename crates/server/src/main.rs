//! The `settee` program: command line, composition of the crates, and lifecycle of the process. `settee-admin` has the
//! commands on data.

mod cli;
mod cluster;
mod config;
mod control;
mod couchdb_image;
mod environment;
mod indexing;
mod keys;
mod languages;
mod listen;
mod log;
mod maintenance;
mod manual;
mod memory;
mod node;
mod operation;
mod private_server;
mod process;
mod query_servers;
mod replication;
mod serve;
mod startup_files;
mod telemetry;
mod tls;
mod uuids;

use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::{Cli, Command};

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("settee: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Serve(args) => {
            couchdb_image::drop_root(&args.data).and_then(|()| serve::run(&args)).map(|()| ExitCode::SUCCESS)
        }
        Command::Worker => Ok(settee_js::worker_main()),
        #[cfg(feature = "wasm")]
        Command::WasmCompiler => Ok(settee_wasm::compiler_main()),
        Command::Doctor(args) => Ok(args.run(&config::doctor::examine)),
        Command::Verify(args) => args.run(),
        Command::Salvage(args) => args.run(),
        Command::Backup(args) => args.run(),
        Command::Migrate(args) => args.run(),
        Command::ImportFiles(args) => args.run(),
        Command::Import(args) => args.run(),
        Command::Export(args) => args.run(),
        Command::Restore(args) => args.run(&|data| Ok(Box::new(private_server::PrivateServer::start(data)?))),
        Command::Config(args) => args.run(),
        Command::Completions(args) => {
            args.run();
            Ok(ExitCode::SUCCESS)
        }
        Command::Man(args) => args.run().map(|()| ExitCode::SUCCESS),
        Command::Storage(args) => args.run(),
    }
}
