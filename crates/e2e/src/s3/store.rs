//! Servers whose data are in a bucket: three serve it together, and each write is acknowledged once although one after
//! the other is killed. Unsuitable buckets are refused without a change.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::gateway::{BUCKET, Gateway, ID, SECRET, access, url};
use super::load::{DATABASE, documents, now_us};
use super::{Writer, matches_writes, randoms, write};
use crate::attack::client::{Connection, split};
use crate::cluster::Nodes;
use crate::server::{Access, Server};
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
    let (begun_us, writers) = (now_us(), write(&nodes.servers[1].url(), SECONDS)?);
    tally += copies(workspace, gateway, &writers, begun_us)?;
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

/// Copies the state of random seconds into data directories while the servers run.
fn copies(workspace: &Workspace, gateway: &Gateway, writers: &[Writer], begun_us: u64) -> Result<Tally> {
    let mut tally = Tally::default();
    let first = begun_us / 1_000_000 + 2;
    let times = randoms(begun_us).take(2).map(|random| Some(first + random % (SECONDS - 1)));
    for (place, time) in times.chain([None]).enumerate() {
        let purpose = format!("s3-copied-{place}");
        let data = workspace.scratch(&purpose);
        let at = time.map_or_else(|| "newest".to_owned(), |second| second.to_string());
        let mut command = Command::new(workspace.binary());
        command.args(["storage", "copy", "--at", &at, &url("store")]).arg(&data);
        command.env("AWS_ACCESS_KEY_ID", ID).env("AWS_SECRET_ACCESS_KEY", SECRET);
        let output = command.env("AWS_ENDPOINT_URL", gateway.endpoint()).output().context("no settee")?;
        if !output.status.success() {
            println!("a copy of {at} failed: {}", String::from_utf8_lossy(&output.stderr));
            tally += Tally::one(false);
            continue;
        }
        let mut server = Server::start(workspace, &purpose, Access::Admin)?;
        // The state of a second contains the writes of this second.
        let until = time.unwrap_or(now_us() / 1_000_000) + 1;
        let found = documents(&server.url(), DATABASE)?;
        tally += Tally::one(matches_writes(writers, until, &found, "copied while the servers ran"));
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
