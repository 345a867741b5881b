//! Servers whose data are in a bucket: three serve it together, and each write is acknowledged once although one after
//! the other is killed. Unsuitable buckets are refused without a change.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::gateway::{BUCKET, Gateway, access, url};
use super::load::{DATABASE, documents, now_us};
use super::{Writer, matches_writes, write};
use crate::attack::client::{Connection, split};
use crate::cluster::Nodes;
use crate::server::Server;
use crate::tally::Tally;
use crate::workspace::Workspace;

const SECONDS: u64 = 5;

const NODES: usize = 3;

/// A group of a killed server must have another owner within this time.
const TAKEOVER_LIMIT: Duration = Duration::from_secs(10);

pub(super) fn run(workspace: &Workspace, gateway: &Gateway) -> Result<Tally> {
    let mut tally = refusals(workspace, gateway)?;
    let further = access(gateway.port());
    let further: Vec<&str> = further.iter().map(String::as_str).collect();
    let mut nodes = Nodes::start(workspace, "s3-store", &vec![url("store"); NODES], &further)?;
    let (address, authorization) = split(&nodes.servers[0].url())?;
    // Only the secret of the store gives access to messages between nodes, not an administrator's password.
    let (status, _) = Connection::open(address)?.ask("POST /_node/_local/_peers", &authorization, b"x")?;
    tally += Tally::one(status == 401);
    let writers = write(&nodes.servers[1].url(), SECONDS)?;
    for killed in 0..NODES {
        nodes.servers[killed].kill()?;
        let (begun, asked) = (Instant::now(), &nodes.servers[(killed + 1) % NODES]);
        while documents(&asked.url(), DATABASE).is_err() && begun.elapsed() < TAKEOVER_LIMIT {
            thread::sleep(Duration::from_millis(50));
        }
        println!("server {killed} was killed; its data are served after {:.1} s", begun.elapsed().as_secs_f64());
        tally += holds(&writers, asked, "after a server was killed")?;
        nodes.servers[killed].start_again()?;
        tally += holds(&writers, &nodes.servers[killed], "at the server that was started again")?;
    }
    for server in &mut nodes.servers {
        server.stop()?;
    }
    Ok(tally)
}

fn holds(writers: &[Writer], server: &Server, label: &str) -> Result<Tally> {
    let found = documents(&server.url(), DATABASE)?;
    Ok(Tally::one(matches_writes(writers, now_us() / 1_000_000 + 1, &found, label)))
}

fn refusals(workspace: &Workspace, gateway: &Gateway) -> Result<Tally> {
    let later = "settee bucket\nformat 1000\ncluster 0000000000000000000000000000004d\n";
    gateway.write("later/settee-cluster", later)?;
    gateway.write("photos/1.jpg", "image")?;
    let url = |place: &str| format!("storage/url=s3://{place}");
    let mut tally = Tally::default();
    for (change, expected) in [
        ("storage/secret_access_key=wrong".to_owned(), "credentials"),
        (url("missing-bucket/store"), "missing-bucket"),
        (url(&format!("{BUCKET}/later")), "use a newer version"),
        (url(&format!("{BUCKET}/photos")), "contains other objects"),
    ] {
        let mut settings = gateway.settings("refused");
        settings.push(change);
        let before = gateway.figures();
        let output = serve(workspace, &settings)?;
        let refused = output.contains(expected) && gateway.figures() == before;
        if !refused {
            println!("not refused with `{expected}`, or changed: {output}");
        }
        tally += Tally::one(refused);
    }
    Ok(tally)
}

/// Returns the output of a server that must end by itself.
fn serve(workspace: &Workspace, settings: &[String]) -> Result<String> {
    let data = workspace.scratch("s3-refused");
    let mut command = Command::new(workspace.binary());
    command.args(["serve", "--bind", "127.0.0.1", "--port", "0", "--data"]).arg(&data);
    let output =
        command.args(settings.iter().flat_map(|setting| ["--set", setting.as_str()])).output().context("no settee")?;
    let _ = std::fs::remove_dir_all(&data);
    Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}
