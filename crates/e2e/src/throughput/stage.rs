//! [`Stage`]: a durable PostgreSQL, the network in front of it, and nodes on it.

use std::cell::Cell;
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::attack::client::{Connection, split};
use crate::cluster::postgres::Instance;
use crate::cluster::{Link, Nodes};
use crate::server::Server;
use crate::workspace::Workspace;

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

    /// `network` is the additional round-trip time.
    pub(super) fn port(&self, network: Duration) -> u16 {
        self.link.delay(network / 2);
        if network.is_zero() { self.postgres.port() } else { self.link.port() }
    }

    pub(super) fn nodes(&self, count: usize, network: Duration) -> Result<Nodes> {
        let number = self.schemas.get();
        if number > 0 {
            self.postgres.sql(&format!("SET client_min_messages = error; DROP SCHEMA b{number} CASCADE"))?;
        }
        self.schemas.set(number + 1);
        self.join(count, network)
    }

    pub(super) fn join(&self, count: usize, network: Duration) -> Result<Nodes> {
        let (port, schema) = (self.port(network), self.schemas.get());
        let storage = format!("postgres://settee@127.0.0.1:{port}/postgres?sslmode=disable&schema=b{schema}");
        Nodes::start(self.workspace, "throughput", &vec![storage; count], &[])
    }

    pub(super) fn rest(&self) -> Result<()> {
        self.postgres.sql("CHECKPOINT").map(drop)
    }
}

/// Counters of commits, commit conflicts, and polls for commits of other nodes. Earlier versions use other endings.
const COUNTED: [&str; 3] = ["settee_engine_commits_total", "settee_engine_conflicts_total", "settee_engine_polls"];

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Used {
    pub(super) processors: [f64; 3],
    pub(super) memory: u64,
    pub(super) counts: [u64; 3],
}

impl Used {
    pub(super) fn add(&mut self, before: Self, after: Self) {
        for (sum, (before, after)) in
            self.processors.iter_mut().zip(before.processors.into_iter().zip(after.processors))
        {
            *sum += after - before;
        }
        for (sum, (before, after)) in self.counts.iter_mut().zip(before.counts.into_iter().zip(after.counts)) {
            *sum += after - before;
        }
        self.memory = self.memory.max(after.memory);
    }
}

impl Stage<'_> {
    pub(super) fn used(&self, nodes: &Nodes) -> Result<Used> {
        let ids: Vec<u32> = nodes.servers.iter().map(Server::pid).collect();
        let seconds = |ids: &[u32]| ids.iter().filter_map(|id| processor_seconds(*id)).sum();
        let memory = ids.iter().filter_map(|id| peak_memory(*id)).max().unwrap_or_default();
        let processors = [seconds(&ids), seconds(&self.postgres.processes()), seconds(&[std::process::id()])];
        Ok(Used { processors, memory, counts: counts(nodes)? })
    }
}

fn processor_seconds(id: u32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    let ticks: [f64; 2] = [fields.next()?.parse().ok()?, fields.next()?.parse().ok()?];
    Some((ticks[0] + ticks[1]) / 100.0)
}

fn peak_memory(id: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

pub(super) fn addresses(nodes: &Nodes) -> Result<Vec<(SocketAddr, String)>> {
    nodes.servers.iter().map(|server| split(&server.url())).collect()
}

fn counts(nodes: &Nodes) -> Result<[u64; COUNTED.len()]> {
    let mut sums = [0; COUNTED.len()];
    for (address, authorization) in addresses(nodes)? {
        let line = "GET /_node/_local/_prometheus";
        let (status, body) = Connection::open(address)?.ask(line, &authorization, b"")?;
        ensure!(status == 200, "{line}: {status}");
        let text = String::from_utf8_lossy(&body);
        for (sum, name) in sums.iter_mut().zip(COUNTED) {
            let value = text.lines().find_map(|line| line.strip_prefix(name));
            let value = value.with_context(|| format!("a node does not count {name}"))?;
            *sum += value.rsplit(' ').next().unwrap_or_default().parse::<u64>().context("a count is not a number")?;
        }
    }
    Ok(sums)
}
