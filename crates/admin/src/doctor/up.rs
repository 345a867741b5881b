//! `settee doctor --up`: a health check by one request. It reads no file of the data.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use settee_model::json::Value;
use settee_replication::{RequestMethod, Tuning};

use crate::control;
use crate::output::print_text;
use crate::remote_server::{RemoteServer, network};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

pub fn is_up(data: &Path) -> ExitCode {
    match request(data) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_text(&format!("the server is not up: {error:#}\n"));
            ExitCode::FAILURE
        }
    }
}

fn request(data: &Path) -> anyhow::Result<()> {
    let (answer, _) = control::ask(data, "status")?.context("no server runs on this data")?;
    let urls = answer.value().get("url").map(Value::to_text).unwrap_or_default();
    // A server that listens on all addresses is reached at the loopback address.
    let url = urls
        .split(" and ")
        .next()
        .unwrap_or_default()
        .replace("//0.0.0.0:", "//127.0.0.1:")
        .replace("//[::]:", "//[::1]:");
    let tuning = Tuning { retries_per_request: 0, ..Tuning::default() };
    let remote_server = RemoteServer::new(&url, &network(None)?, &tuning)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    let reply = runtime.block_on(async {
        tokio::time::timeout(REQUEST_TIMEOUT, remote_server.root().request(RequestMethod::Get, "_up", "")).await
    });
    let reply = reply.context("/_up does not respond")??;
    // 401: the server requires a login.
    ensure!(matches!(reply.status, 200 | 401), "/_up responds with {}: {}", reply.status, reply.error());
    Ok(())
}
