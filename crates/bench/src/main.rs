//! The program `settee-bench`: measurements of Settee, or of any CouchDB, over HTTP. A *workload* has *cells*; each
//! cell is measured on one server, or on two alternately, and every response is checked: a wrong sum fails the run.
//! Only the bare key-value store of the yardstick is code of the server.

mod args;
mod auth;
mod client;
mod cost;
mod floor;
mod generate;
mod grow;
mod index;
mod load;
mod measure;
mod memory;
mod progress;
mod reads;
mod report;
mod requests;
mod rest;
mod results;
mod statistics;
#[cfg(test)]
mod tests;
mod views;
mod writes;
mod yardstick;

use crate::args::{
    AllArgs, BenchArgs, Command, CommonArgs, DocumentKind, IndexArgs, LoadArgs, ReadsArgs, ViewsArgs, WritesArgs,
    defaults,
};
use crate::auth::Auth;
use crate::client::Server;
use crate::generate::{Documents, IdOrder, Shape};
use crate::grow::Grow;
use crate::index::Index;
use crate::load::Load;
use crate::measure::{Limit, Registry, Target, drive, remove_databases};
use crate::reads::Reads;
use crate::requests::Requests;
use crate::results::{Results, ServerName};
use crate::views::Views;
use crate::writes::Writes;
use anyhow::{Context, Result, bail};
use clap::Parser as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(clap::Parser)]
#[command(name = "settee-bench", version, about = "Measure Settee, any CouchDB, or two servers side by side")]
struct Program {
    #[command(flatten)]
    args: BenchArgs,
}

fn main() -> ExitCode {
    match run(Program::parse().args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("settee-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the results. The exit code is 1 if any response was wrong or missing.
fn run(args: BenchArgs) -> Result<ExitCode> {
    let BenchArgs { command, common } = args;
    let directory = common.dir.clone().unwrap_or_else(|| PathBuf::from("."));
    let plan = Plan::new(&command, common.seed, &directory);
    let mut results = Results { seed: common.seed, ..Results::default() };
    let servers = match command {
        Command::Yardstick(_) => Vec::new(),
        _ => [Some(&common.url), common.vs.as_ref()]
            .into_iter()
            .flatten()
            .map(|url| Server::parse(url))
            .collect::<Result<_>>()?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(greet(&servers, &mut results))?;
    if common.with_yardstick || plan.yardstick {
        yardstick::measure(&directory, &plan.limits(), &mut results)?;
    }
    let finished = runtime.block_on(measure_all(&plan, &common, servers, &mut results));
    print!("{}", report::table::render(&results));
    write_reports(&common, &results)?;
    Ok(if finished && results.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[derive(Default)]
struct Plan {
    yardstick: bool,
    limits: Vec<Limit>,
    loads: Vec<Load>,
    indexes: Vec<Index>,
    views: Vec<Views>,
    writes: Vec<Writes>,
    reads: Vec<Reads>,
    requests: Vec<Requests>,
    grow: Vec<Grow>,
    auth: Vec<Auth>,
}

impl Plan {
    fn new(command: &Command, seed: u64, directory: &Path) -> Plan {
        let mut plan = Plan::default();
        match command {
            Command::Load(args) => plan.load(args.clone(), seed),
            Command::Index(args) => plan.index(args, seed),
            Command::Views(args) => plan.views(args, seed),
            Command::Writes(args) => plan.writes.push(Writes { args: args.clone(), seed }),
            Command::Reads(args) => plan.reads(args.clone(), seed),
            Command::Requests(args) => {
                plan.requests.push(Requests { args: args.clone(), seed, directory: directory.to_owned() });
            }
            Command::Grow(args) => plan.grow.push(Grow { args: args.clone(), seed }),
            Command::Auth(args) => plan.auth.push(Auth { args: args.clone() }),
            Command::Yardstick(args) => {
                plan.yardstick = true;
                plan.limits = yardstick::limits(args, seed);
            }
            Command::All(args) => plan.all(args, seed),
        }
        plan
    }

    fn load(&mut self, args: LoadArgs, seed: u64) {
        self.loads.push(Load { args, seed });
    }

    fn index(&mut self, args: &IndexArgs, seed: u64) {
        for kind in &args.documents {
            let count = if *kind == DocumentKind::Small { args.docs } else { args.big_docs };
            let documents = Documents { shape: kind.shape(), order: IdOrder::Sequential, seed, count };
            self.indexes.push(Index { args: args.clone(), documents });
        }
    }

    fn views(&mut self, args: &ViewsArgs, seed: u64) {
        for padding in &args.padding {
            let shape = Shape::Padded { padding: *padding };
            let documents = Documents { shape, order: IdOrder::Sequential, seed, count: args.docs };
            self.views.push(Views::new(args, documents));
        }
    }

    fn reads(&mut self, args: ReadsArgs, seed: u64) {
        let shape = Shape::Score { size: 0 };
        let documents = Documents { shape, order: IdOrder::Sequential, seed, count: args.docs };
        self.reads.push(Reads { args, documents });
    }

    fn all(&mut self, args: &AllArgs, seed: u64) {
        let (fewer, shorter) = if args.quick { (10, 5.0) } else { (1, 1.0) };
        let (load, index): (LoadArgs, IndexArgs) = (defaults(), defaults());
        let (views, writes, reads): (ViewsArgs, WritesArgs, ReadsArgs) = (defaults(), defaults(), defaults());
        self.yardstick = true;
        self.load(LoadArgs { docs: load.docs / fewer, ..load }, seed);
        self.index(&IndexArgs { docs: index.docs / fewer, big_docs: index.big_docs / fewer, ..index }, seed);
        self.views(&ViewsArgs { docs: views.docs / fewer, ..views }, seed);
        self.writes
            .push(Writes { args: WritesArgs { seconds: writes.seconds / shorter, shared: true, ..writes }, seed });
        self.reads(ReadsArgs { docs: reads.docs / fewer, seconds: reads.seconds / shorter, ..reads }, seed);
    }

    fn limits(&self) -> Vec<Limit> {
        let mut limits = self.limits.clone();
        limits.extend(self.loads.iter().flat_map(Load::limits));
        limits.extend(self.indexes.iter().map(|index| Limit::RustMap(index.documents)));
        let shared = |writes: &Writes| [writes.args.clients, 1].map(|clients| Limit::SharedSync { clients });
        limits.extend(self.writes.iter().flat_map(shared));
        limits
    }

    async fn run(&self, targets: &[Target], runs: u32, results: &mut Results) {
        drive(&self.loads, targets, runs, results).await;
        drive(&self.indexes, targets, runs, results).await;
        drive(&self.views, targets, runs, results).await;
        drive(&self.writes, targets, runs, results).await;
        drive(&self.reads, targets, runs, results).await;
        drive(&self.requests, targets, runs, results).await;
        drive(&self.grow, targets, runs, results).await;
        drive(&self.auth, targets, runs, results).await;
    }
}

async fn greet(servers: &[Server], results: &mut Results) -> Result<()> {
    for server in servers {
        let mut connection = Arc::new(server.clone()).connect().await?;
        let welcome = connection.get_json("/").await?;
        let Some(product) = product(&welcome) else {
            bail!("{} does not answer like a CouchDB: {welcome}", server.shown)
        };
        results.servers.push(ServerName { url: server.shown.clone(), product });
    }
    Ok(())
}

/// `version` is that of CouchDB or of the interface; other vendors report their name and version in `vendor`.
fn product(welcome: &serde_json::Value) -> Option<String> {
    welcome["couchdb"].as_str()?;
    let vendor = &welcome["vendor"];
    let name = vendor["name"].as_str().filter(|name| *name != "The Apache Software Foundation").unwrap_or("CouchDB");
    let version = vendor["version"].as_str().or(welcome["version"].as_str()).unwrap_or("of unknown version");
    Some(format!("{name} {version}"))
}

/// Returns false after Ctrl-C. Databases are removed in either case.
async fn measure_all(plan: &Plan, common: &CommonArgs, servers: Vec<Server>, results: &mut Results) -> bool {
    let databases = Registry::default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis());
    let targets: Vec<Target> = servers
        .into_iter()
        .enumerate()
        .map(|(number, server)| Target {
            server: Arc::new(server),
            names: format!("bench-{now:x}-{}", report::LETTERS[number].to_ascii_lowercase()),
            q: common.q,
            pid: [common.server_pid, common.vs_pid][number],
            databases: databases.clone(),
        })
        .collect();
    let runs = common.runs.unwrap_or(if targets.len() > 1 { 3 } else { 1 }).max(1);
    let finished = tokio::select! {
        () = plan.run(&targets, runs, results) => true,
        _ = tokio::signal::ctrl_c() => false,
    };
    if !finished {
        eprintln!("\ninterrupted; removing databases");
    }
    remove_databases(&databases).await;
    finished
}

fn write_reports(common: &CommonArgs, results: &Results) -> Result<()> {
    if let Some(file) = &common.json {
        let text = format!("{:#}\n", report::json::render(results));
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    if let Some(file) = &common.report {
        let page = report::html::render(results);
        std::fs::write(file, page).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod naming {
    use serde_json::json;

    #[test]
    fn servers_are_named_by_their_own_versions() {
        for (welcome, expected) in [
            (
                json!({"couchdb":"Welcome","version":"3.5.2","vendor":{"name":"The Apache Software Foundation"}}),
                Some("CouchDB 3.5.2"),
            ),
            (
                json!({"couchdb":"Welcome","version":"3.5.2","vendor":{"name":"Settee","version":"0.1.0"}}),
                Some("Settee 0.1.0"),
            ),
            (
                json!({"couchdb":"Welcome","version":"1.6.1","vendor":{"name":"Ubuntu","version":"16.04"}}),
                Some("Ubuntu 16.04"),
            ),
            (json!({"couchdb":"Welcome","version":"2.3.1"}), Some("CouchDB 2.3.1")),
            (json!({"welcome":"x"}), None),
        ] {
            assert_eq!(super::product(&welcome).as_deref(), expected, "{welcome}");
        }
    }
}
