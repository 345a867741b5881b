//! Several servers on one PostgreSQL behind a proxy, for manual use ([`command`]) and for tests ([`Nodes`]).

mod link;
pub(crate) mod postgres;
mod tcp_proxy;

use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

pub(crate) use link::Link;
pub(crate) use tcp_proxy::TcpProxy;

use crate::attack::client::split;
use crate::build;
use crate::scratch::{MISSING, Scratch};
use crate::server::{Access, Server, free_port};
use crate::workspace::Workspace;

/// Stops the server and removes its data when the input of the script is closed for any reason.
const CLEANUP_SCRIPT: &str = r#"data="$1"; shift
"$@" </dev/null & server=$!
cat >/dev/null
kill -TERM $server 2>/dev/null; wait $server; rm -rf "$data""#;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    nodes: usize,
    port: u16,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self { nodes: 3, port: 5984 };
        let mut arguments = arguments.iter();
        while let Some(name) = arguments.next() {
            let value = arguments.next().with_context(|| format!("`{name}` is unknown or lacks its value"))?;
            match name.as_str() {
                "--nodes" => options.nodes = value.parse().context("--nodes takes a number")?,
                "--port" => options.port = value.parse().context("--port takes a number")?,
                _ => bail!("there is no option `{name}`, only --nodes and --port"),
            }
        }
        ensure!((1..=16).contains(&options.nodes), "a cluster has 1 to 16 nodes");
        Ok(options)
    }
}

fn settings(storage: &str, number: usize, port: u16) -> [String; 3] {
    [
        format!("storage/url={storage}"),
        format!("cluster/node=settee@node{number}"),
        format!("cluster/address=http://127.0.0.1:{port}/"),
    ]
}

pub(crate) struct Nodes {
    pub(crate) servers: Vec<Server>,
    pub(crate) tcp_proxy: TcpProxy,
}

impl Nodes {
    pub(crate) fn start(workspace: &Workspace, purpose: &str, storages: &[String], further: &[&str]) -> Result<Self> {
        let mut servers = Vec::new();
        for (number, storage) in (1..).zip(storages) {
            let port = free_port()?;
            let settings = settings(storage, number, port);
            let settings: Vec<&str> = settings.iter().map(String::as_str).chain(further.iter().copied()).collect();
            let purpose = format!("{purpose}-{number}");
            servers.push(Server::start_at(workspace, &purpose, Access::Admin, port, &settings)?);
        }
        let addresses: Result<Vec<SocketAddr>> = servers.iter().map(|server| Ok(split(&server.url())?.0)).collect();
        Ok(Self { servers, tcp_proxy: TcpProxy::start(0, addresses?)? })
    }

    /// URL of the proxy, with the administrator's name and password.
    pub(crate) fn url(&self) -> String {
        format!("http://admin:pw@{}", self.tcp_proxy.address())
    }
}

pub(crate) fn command(workspace: &Workspace, options: &Options) -> Result<bool> {
    ensure!(Scratch::is_there(), "{MISSING}");
    if !build::build(workspace)?.holds() {
        return Ok(false);
    }
    let postgres = Scratch::start("").context("PostgreSQL does not start")?;
    let storage = postgres.url_as("settee", "postgres", "settee");
    println!("PostgreSQL listens at {}", postgres.socket().display());
    let (mut nodes, mut addresses) = (Vec::new(), Vec::new());
    for number in 1..=options.nodes {
        let port = options.port.checked_add(u16::try_from(number)?).context("there is no such port")?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        nodes.push(keep(workspace, &storage, number, port)?);
        wait_for(address, &mut nodes)?;
        println!("node {number} listens at http://{address}/");
        addresses.push(address);
    }
    let tcp_proxy = TcpProxy::start(options.port, addresses)?;
    println!(
        "a proxy in front of them listens at http://{0}/: there is no administrator, every user of this machine has all permissions\n\n  \
         curl -X PUT http://{0}/demo\n  curl http://{0}/_membership\n\n\
         Kill a node, and ask again. All data are removed in the end. Stop with Ctrl-C.",
        tcp_proxy.address()
    );
    let mut ended = 0;
    while ended < nodes.len() {
        thread::sleep(Duration::from_millis(500));
        let now = nodes.iter_mut().filter_map(|node| node.try_wait().ok().flatten()).count();
        if now > ended {
            println!("{now} of {} nodes have ended", nodes.len());
        }
        ended = now;
    }
    bail!("all nodes have ended")
}

fn keep(workspace: &Workspace, storage: &str, number: usize, port: u16) -> Result<Child> {
    let data = workspace.scratch(&format!("cluster-{number}"));
    let log = workspace.log(&format!("cluster-{number}"))?;
    let output = std::fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new("sh");
    command.args(["-c", CLEANUP_SCRIPT, "sh"]).arg(&data).arg(workspace.binary());
    command.args(["serve", "--bind", "127.0.0.1", "--port", &port.to_string(), "--data"]).arg(&data);
    command.args(settings(storage, number, port).iter().flat_map(|setting| ["--set", setting.as_str()]));
    command.env_remove("COUCHDB_USER").env_remove("COUCHDB_PASSWORD");
    command.stdin(Stdio::piped()).stdout(output.try_clone().context("cannot share the log")?).stderr(output);
    command.process_group(0).spawn().context("cannot start a shell")
}

fn wait_for(address: SocketAddr, nodes: &mut [Child]) -> Result<()> {
    while std::net::TcpStream::connect(address).is_err() {
        if let Some(status) = nodes.last_mut().map(Child::try_wait).transpose().context("a node is lost")?.flatten() {
            bail!("the node at {address} ended with {status}: see xtask-logs/cluster-*.log in the build directory");
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_nodes_and_a_port() {
        let parse = |text: &str| Options::parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).ok();
        assert_eq!(parse(""), Some(Options { nodes: 3, port: 5984 }));
        assert_eq!(parse("--nodes 5 --port 80"), Some(Options { nodes: 5, port: 80 }));
        for wrong in ["--nodes", "--nodes x", "--nodes 0", "--port 70000", "--else 1"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
