//! Several servers on one PostgreSQL or one bucket behind a proxy, for manual use ([`command`]) and for tests
//! ([`Nodes`]).

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
use crate::s3::gateway::{self, Gateway};
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
    storage: Storage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Storage {
    Postgres,
    S3,
}

enum Store {
    Postgres(Scratch),
    S3(Gateway),
}

impl Store {
    fn start(workspace: &Workspace, storage: Storage) -> Result<Self> {
        match storage {
            Storage::Postgres => {
                ensure!(Scratch::is_there(), "{MISSING}");
                let postgres = Scratch::start("").context("PostgreSQL does not start")?;
                println!("PostgreSQL listens at {}", postgres.socket().display());
                Ok(Self::Postgres(postgres))
            }
            Storage::S3 => {
                let gateway = Gateway::start(workspace)?;
                println!("an S3 server listens at {}", gateway.endpoint());
                Ok(Self::S3(gateway))
            }
        }
    }

    /// Returns the location of the data, and the settings that give access to it.
    fn settings(&self) -> (String, Vec<String>) {
        match self {
            Self::Postgres(postgres) => (postgres.url_as("settee", "postgres", "settee"), Vec::new()),
            Self::S3(gateway) => (gateway::url("cluster"), gateway::access(gateway.port())),
        }
    }
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self { nodes: 3, port: 5984, storage: Storage::Postgres };
        let mut arguments = arguments.iter();
        while let Some(name) = arguments.next() {
            let value = arguments.next().with_context(|| format!("`{name}` is unknown or lacks its value"))?;
            match name.as_str() {
                "--nodes" => options.nodes = value.parse().context("--nodes takes a number")?,
                "--port" => options.port = value.parse().context("--port takes a number")?,
                "--storage" => {
                    options.storage = match value.as_str() {
                        "postgres" => Storage::Postgres,
                        "s3" => Storage::S3,
                        _ => bail!("--storage takes postgres or s3"),
                    }
                }
                _ => bail!("there is no option `{name}`, only --nodes, --port and --storage"),
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
        let further: Vec<String> = further.iter().map(|setting| (*setting).to_owned()).collect();
        let each: Vec<_> = storages.iter().map(|storage| (storage.clone(), further.clone())).collect();
        Self::start_each(workspace, purpose, &each)
    }

    /// Each node has a location and settings.
    pub(crate) fn start_each(workspace: &Workspace, purpose: &str, each: &[(String, Vec<String>)]) -> Result<Self> {
        let mut servers = Vec::new();
        for (number, (storage, further)) in (1..).zip(each) {
            let port = free_port()?;
            let settings = settings(storage, number, port);
            let settings: Vec<&str> = settings.iter().chain(further).map(String::as_str).collect();
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
    let features: &[&str] = if options.storage == Storage::S3 { &["--features=bucket"] } else { &[] };
    if !build::build_with(workspace, features)?.holds() {
        return Ok(false);
    }
    let store = Store::start(workspace, options.storage)?;
    let (location, access) = store.settings();
    let (mut nodes, mut addresses) = (Vec::new(), Vec::new());
    for number in 1..=options.nodes {
        let port = options.port.checked_add(u16::try_from(number)?).context("there is no such port")?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let own = settings(&location, number, port);
        let settings: Vec<&str> = own.iter().chain(&access).map(String::as_str).collect();
        nodes.push(keep(workspace, number, port, &settings)?);
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

fn keep(workspace: &Workspace, number: usize, port: u16, settings: &[&str]) -> Result<Child> {
    let data = workspace.scratch(&format!("cluster-{number}"));
    let log = workspace.log(&format!("cluster-{number}"))?;
    let output = std::fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new("sh");
    command.args(["-c", CLEANUP_SCRIPT, "sh"]).arg(&data).arg(workspace.binary());
    command.args(["serve", "--bind", "127.0.0.1", "--port", &port.to_string(), "--data"]).arg(&data);
    command.args(settings.iter().flat_map(|setting| ["--set", *setting]));
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
        let options = |nodes, port, storage| Some(Options { nodes, port, storage });
        assert_eq!(parse(""), options(3, 5984, Storage::Postgres));
        assert_eq!(parse("--nodes 5 --port 80 --storage s3"), options(5, 80, Storage::S3));
        for wrong in ["--nodes", "--storage directory", "--nodes x", "--nodes 0", "--port 70000", "--else 1"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
