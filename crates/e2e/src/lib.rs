//! End-to-end tests: each suite starts servers as processes and speaks to them as clients do.
//!
//! [`command`] runs a suite by its name, as `cargo xtask NAME` does; the gate calls the functions `run` of the suites.
//! No crate of the product is linked.

pub mod attack;
pub mod build;
pub mod chaos;
pub mod clients;
mod cluster;
pub mod conformance;
pub mod console;
mod json;
pub mod process;
pub mod readme;
mod s3;
#[path = "../../storage-postgres/tests/it/scratch.rs"]
pub mod scratch;
pub mod server;
pub mod tally;
mod throughput;
pub mod workspace;

use anyhow::{Result, bail};
use workspace::Workspace;

pub const HELP: &str = "\
  conformance   replays the recorded responses of CouchDB against this server
                  --area A     only this area (may be repeated)
                  --url URL    a running server, with the name and password of an administrator
                  --storage S  storage of the started server: directory, or one that is started for it: postgres
                                or s3
                  --nodes N    number of servers on one PostgreSQL, which get requests in rotation (1)
                  --jobs N     number of concurrent scenarios (4)
                  --draft      print a line for conformance/expectations.toml for each unexpected failure
  attack        attacks a server in a control group of 1 GB, while another client continues
                  --short      as in the gate: a few seconds each, without limits for times
                  NAME         only this attack (may be repeated)
  s3            backs up a server to a bucket under load, removes its data, and restores it to ten random times;
                then servers store their data in the bucket, and one replaces another
                  --seconds N  duration of the load (60)
                  --interval N seconds between backups (10)
  chaos         kills nodes, PostgreSQL and its standby, promotes the standby and cuts connections while clients
                write and follow; then every acknowledged write must exist exactly once
                  --minutes N  duration (30)
                  --seed S     repeats the faults of a run
                  --short      as in the gate: a minute without a standby
  clients       runs the suites of PouchDB, nano and couchdb-python against this server
  console       checks the web console's sources, and runs its flows in Chromium
  readme        executes the examples of README.md and docs; a block without a test is a failure
  cluster       builds the server and runs several on one store with a proxy in front of them, until Ctrl-C
                  --storage S  postgres (the installed one) or s3
                  --nodes N    number of nodes (3)
                  --port P     the port of the proxy (5984); nodes use the following ports
  cluster-bench measures nodes on a PostgreSQL, and a bare client of it: single writes, bulk, an index, a view
                  --part P      only bare, writes, bulk or views (may be repeated)
                  --nodes N     only this number of nodes (1, 2 and 4)
                  --documents N number of documents in the view (1000000)
                  --seconds N   duration of each measurement of writes (5)
                  --delay-us N  added round-trip time of the network in the second half (1000); 0 omits that half
";

pub const SUITES: &[&str] =
    &["attack", "chaos", "clients", "cluster", "cluster-bench", "conformance", "console", "readme", "s3"];

/// `name` is one of [`SUITES`]. Returns false if the suite found a problem. Fails if it cannot run.
pub fn command(name: &str, workspace: &Workspace, arguments: &[String]) -> Result<bool> {
    let tally = match name {
        "attack" => attack::run(workspace, &attack::Options::parse(arguments)?)?,
        "chaos" => chaos::command(workspace, &chaos::Options::parse(arguments)?)?,
        "cluster" => return cluster::command(workspace, &cluster::Options::parse(arguments)?),
        "cluster-bench" => throughput::command(workspace, &throughput::Options::parse(arguments)?)?,
        "conformance" => conformance::command(workspace, &conformance::Options::parse(arguments)?)?,
        "s3" => s3::command(workspace, &s3::Options::parse(arguments)?)?,
        _ => {
            if let Some(argument) = arguments.first() {
                bail!("`{name}` takes no argument, got `{argument}`");
            }
            match name {
                "clients" => clients::command(workspace)?,
                "console" => console::command(workspace)?,
                "readme" => readme::command(workspace)?,
                _ => bail!("the suite `{name}` does not exist"),
            }
        }
    };
    Ok(tally.closing_line())
}
