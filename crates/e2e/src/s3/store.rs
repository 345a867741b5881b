//! Servers whose data are in a bucket: one writes, another waits and takes over when the first one is killed. Unsuitable
//! buckets are refused without a change.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::gateway::{BUCKET, Gateway};
use super::load::{DATABASE, documents, now_us};
use super::{Writer, matches_writes, write};
use crate::server::{Access, Server};
use crate::tally::Tally;
use crate::workspace::Workspace;

const SECONDS: u64 = 5;

const LEASE: &str = "storage/lease_ms=3000";

/// The second server has observed the lease of the first one after this time.
const OBSERVATION: Duration = Duration::from_secs(3);

pub(super) fn run(workspace: &Workspace, gateway: &Gateway) -> Result<Tally> {
    let mut tally = refusals(workspace, gateway)?;
    let mut settings = gateway.settings("store");
    settings.push(LEASE.to_owned());
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let mut first = Server::start_with(workspace, "s3-first", Access::Admin, &settings)?;
    let writers = write(&first.url(), SECONDS)?;
    let (waited, mut second) = thread::scope(|scope| -> Result<_> {
        let second = scope.spawn(|| Server::start_with(workspace, "s3-second", Access::Admin, &settings));
        thread::sleep(OBSERVATION);
        let waited = !second.is_finished();
        first.kill()?;
        let killed = Instant::now();
        let server = second.join().ok().context("the thread of the second server broke")??;
        println!("a waiting server took over {:.1} s after the first one was killed", killed.elapsed().as_secs_f64());
        Ok((waited, server))
    })?;
    tally += Tally::one(waited);
    tally += holds(&writers, &second, "after a server was killed and replaced")?;
    second.stop()?;
    first.start_again()?;
    tally += holds(&writers, &first, "after the second server stopped")?;
    first.stop()?;
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
