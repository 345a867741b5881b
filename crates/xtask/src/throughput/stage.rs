//! [`Stage`]: a PostgreSQL that keeps what it acknowledges, the network before it, and nodes on it.

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::attack::client::{Connection, split};
use crate::cluster::postgres::Instance;
use crate::cluster::{Link, Nodes};
use crate::workspace::Workspace;

/// Beside those of [`Instance`]: as on a machine that does nothing else, and without checkpoints at random moments.
pub(super) const SETTINGS: &[&str] = &[
    "max_connections=400",
    "shared_buffers=1GB",
    "max_wal_size=16GB",
    "min_wal_size=2GB",
    "checkpoint_timeout=1h",
    "wal_compression=on",
];

pub(super) struct Stage<'a> {
    workspace: &'a Workspace,
    pub(super) postgres: Instance,
    link: Link,
    schemas: Cell<u32>,
}

impl<'a> Stage<'a> {
    pub(super) fn start(workspace: &'a Workspace) -> Result<Self> {
        let mut postgres = Instance::new("throughput")?;
        postgres.set(SETTINGS);
        postgres.begin()?;
        let link = Link::to(postgres.port())?;
        Ok(Self { workspace, postgres, link, schemas: Cell::new(0) })
    }

    /// The port of PostgreSQL behind a network that takes so much longer for a message and its answer.
    pub(super) fn port(&self, network: Duration) -> u16 {
        self.link.delay(network / 2);
        if network.is_zero() { self.postgres.port() } else { self.link.port() }
    }

    /// Nodes on tables that nobody has used.
    pub(super) fn nodes(&self, count: usize, network: Duration) -> Result<Nodes> {
        let number = self.schemas.get();
        if number > 0 {
            self.postgres.sql(&format!("SET client_min_messages = error; DROP SCHEMA b{number} CASCADE"))?;
        }
        self.schemas.set(number + 1);
        self.join(count, network)
    }

    /// Nodes on the tables that were used last.
    pub(super) fn join(&self, count: usize, network: Duration) -> Result<Nodes> {
        let (port, schema) = (self.port(network), self.schemas.get());
        let storage = format!("postgres://settee@127.0.0.1:{port}/postgres?sslmode=disable&schema=b{schema}");
        Nodes::start(self.workspace, "throughput", &storage, count, &[])
    }

    /// Ends what is left to be done of what came before.
    pub(super) fn rest(&self) -> Result<()> {
        self.postgres.sql("CHECKPOINT").map(drop)
    }
}

/// Where nodes listen, and the header that lets in.
pub(super) fn addresses(nodes: &Nodes) -> Result<Vec<(SocketAddr, String)>> {
    nodes.servers.iter().map(|server| split(&server.url())).collect()
}

/// The commits that nodes have made, and those that gave way to others.
pub(super) fn conflicts(nodes: &Nodes) -> Result<[u64; 2]> {
    let mut sums = [0, 0];
    for (address, who) in addresses(nodes)? {
        let line = "GET /_node/_local/_prometheus";
        let (status, body) = Connection::open(address)?.ask(line, &who, b"")?;
        ensure!(status == 200, "{line}: {status}");
        let text = String::from_utf8_lossy(&body);
        for (sum, name) in sums.iter_mut().zip(["settee_engine_commits_total ", "settee_engine_conflicts_total "]) {
            let value =
                text.lines().find_map(|line| line.strip_prefix(name)).context("a node does not count commits")?;
            *sum += value.trim().parse::<u64>().context("a count is no number")?;
        }
    }
    Ok(sums)
}
