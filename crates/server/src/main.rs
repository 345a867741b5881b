//! The `settee` program: command line, wiring, and the life of the process.
//!
//! `settee serve` puts the crates together and serves until it is told to stop; `settee worker` is the
//! process in which user code runs; `settee bench` measures a server. Only this crate reads the clock, the
//! environment and random numbers, and hands them to the others.

mod backends;
mod cli;
mod config;
mod environment;
mod keys;
mod languages;
mod listen;
mod lock;
mod maintenance;
mod query_servers;
mod replication;
mod serve;
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
        Command::Serve(args) => serve::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Worker => Ok(settee_js::worker_main()),
        Command::Bench(args) => settee_bench::run(*args, &backends::RawRocks),
        Command::Config(args) => {
            args.run();
            Ok(ExitCode::SUCCESS)
        }
    }
}
