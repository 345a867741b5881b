//! [`World`]: three nodes, their store (a PostgreSQL and its standby, or a bucket), the network between them, and all
//! faults.

use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::client::{Random, Shared};
use crate::attack::client::split;
use crate::cluster::postgres::Instance;
use crate::cluster::{Link, Nodes};
use crate::s3::gateway::{self, Gateway};
use crate::server::Server;
use crate::workspace::Workspace;

const NODES: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    KillNode,
    /// A node does not run for a while.
    FreezeNode,
    /// A node is stopped in order and restarted.
    StopNode,
    KillPrimary,
    KillStandby,
    /// The primary is killed, the standby is promoted, and the former primary becomes the standby.
    Promote,
    Cut,
    /// The store does not answer for a while.
    Outage,
    /// The network between the nodes and the store is slow for a while.
    Delay,
    /// The network between a node and the store drops everything for a while. Then it delivers the data, or is lost.
    Unresponsive,
}

const LONG: &[(Fault, u64)] = &[
    (Fault::KillNode, 34),
    (Fault::StopNode, 8),
    (Fault::KillPrimary, 14),
    (Fault::KillStandby, 10),
    (Fault::Promote, 10),
    (Fault::Cut, 14),
    (Fault::Delay, 10),
    (Fault::Unresponsive, 14),
];

const SHORT: &[(Fault, u64)] = &[
    (Fault::KillNode, 50),
    (Fault::StopNode, 10),
    (Fault::KillPrimary, 10),
    (Fault::Cut, 10),
    (Fault::Delay, 5),
    (Fault::Unresponsive, 15),
];

const BUCKET: &[(Fault, u64)] = &[
    (Fault::KillNode, 40),
    (Fault::FreezeNode, 10),
    (Fault::StopNode, 12),
    (Fault::Outage, 6),
    (Fault::Cut, 10),
    (Fault::Delay, 10),
    (Fault::Unresponsive, 12),
];

#[derive(Clone, Copy, Debug)]
pub(super) struct FaultInterval {
    pub(super) fault: Fault,
    pub(super) node: usize,
    pub(super) begun_ms: u64,
    pub(super) ended_ms: u64,
}

impl FaultInterval {
    /// Returns true if requests to this node may wait longer because of the fault.
    pub(super) fn covers(&self, node: usize) -> bool {
        match self.fault {
            Fault::Unresponsive => false,
            Fault::KillNode | Fault::FreezeNode | Fault::StopNode => self.node == node,
            Fault::KillPrimary | Fault::KillStandby | Fault::Promote | Fault::Cut | Fault::Outage | Fault::Delay => {
                true
            }
        }
    }
}

impl Fault {
    pub(super) const ALL: [Self; 10] = [
        Self::KillNode,
        Self::FreezeNode,
        Self::StopNode,
        Self::KillPrimary,
        Self::KillStandby,
        Self::Promote,
        Self::Cut,
        Self::Outage,
        Self::Delay,
        Self::Unresponsive,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::KillNode => "nodes killed",
            Self::FreezeNode => "nodes suspended",
            Self::StopNode => "nodes restarted",
            Self::KillPrimary => "primaries killed",
            Self::KillStandby => "standbys killed",
            Self::Promote => "standbys promoted",
            Self::Cut => "networks cut",
            Self::Outage => "outages of the bucket",
            Self::Delay => "networks slow",
            Self::Unresponsive => "networks silent",
        }
    }

    pub(super) fn choose(random: &mut Random, kind: Kind) -> Self {
        let faults = match kind {
            Kind::WithStandby => LONG,
            Kind::Alone => SHORT,
            Kind::Bucket => BUCKET,
        };
        let mut rest = random.below(faults.iter().map(|(_, weight)| weight).sum());
        let chosen = faults.iter().find(|(_, weight)| {
            let is_it = rest < *weight;
            rest = rest.saturating_sub(*weight);
            is_it
        });
        chosen.map_or(Self::KillNode, |(fault, _)| *fault)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A PostgreSQL and its standby.
    WithStandby,
    /// A PostgreSQL.
    Alone,
    Bucket,
}

impl Kind {
    /// Maximum duration of a request to a live node while another node has failed, or has no connection to the store.
    pub(super) fn wait_max_ms(self) -> u64 {
        if self == Self::Bucket { 5000 } else { 2000 }
    }
}

enum Store {
    Postgres { primary: Instance, standby: Option<Instance> },
    Bucket(Gateway),
}

pub(super) struct World {
    pub(super) nodes: Nodes,
    store: Store,
    /// For each node, the links to the first and to the second instance, either of which may be the primary, or the link
    /// to the bucket.
    links: Vec<Vec<Link>>,
}

impl World {
    pub(super) fn start(workspace: &Workspace, kind: Kind) -> Result<Self> {
        let (store, ports) = match kind {
            Kind::Bucket => {
                let gateway = Gateway::start(workspace)?;
                let port = gateway.port();
                (Store::Bucket(gateway), vec![port])
            }
            Kind::WithStandby | Kind::Alone => start_postgres(kind)?,
        };
        let of_node = |_| ports.iter().map(|port| Link::to(*port)).collect();
        let links: Vec<Vec<Link>> = (0..NODES).map(of_node).collect::<Result<_>>()?;
        let settings = links.iter().map(|links| match &store {
            Store::Postgres { .. } => (url(links), Vec::new()),
            Store::Bucket(_) => (gateway::url("chaos"), gateway::access(links[0].port())),
        });
        let nodes = Nodes::start_each(workspace, "chaos", &settings.collect::<Vec<_>>())?;
        Ok(Self { nodes, store, links })
    }

    pub(super) fn addresses(&self) -> Result<Vec<SocketAddr>> {
        self.nodes.servers.iter().map(|server| Ok(split(&server.url())?.0)).collect()
    }

    pub(super) fn inject(&mut self, fault: Fault, random: &mut Random, shared: &Shared) -> Result<FaultInterval> {
        let begun_ms = shared.now_ms();
        let node = random.below(NODES as u64) as usize;
        let pause = Duration::from_millis(200 + random.below(2500));
        match fault {
            Fault::KillNode => {
                self.nodes.servers[node].kill()?;
                thread::sleep(pause);
                self.nodes.servers[node].start_again()?;
            }
            Fault::FreezeNode => {
                signal(&self.nodes.servers[node], "STOP")?;
                thread::sleep(3 * pause);
                signal(&self.nodes.servers[node], "CONT")?;
            }
            Fault::StopNode => {
                if let Err(error) = self.nodes.servers[node].stop() {
                    shared.violation(format!("{error:#}"));
                    self.nodes.servers[node].kill()?;
                }
                self.nodes.servers[node].start_again()?;
            }
            Fault::KillPrimary => {
                if let Store::Postgres { primary, .. } = &mut self.store {
                    primary.kill()?;
                    thread::sleep(pause);
                    primary.start()?;
                    self.follow()?;
                }
            }
            Fault::KillStandby => {
                if let Store::Postgres { standby: Some(standby), .. } = &mut self.store {
                    standby.kill()?;
                    thread::sleep(pause);
                    standby.start()?;
                    self.follow()?;
                }
            }
            Fault::Outage => {
                if let Store::Bucket(gateway) = &mut self.store {
                    gateway.kill()?;
                    thread::sleep(4 * pause);
                    gateway.start_again()?;
                }
            }
            Fault::Promote => self.promote()?,
            Fault::Cut => self.links.iter().flatten().for_each(Link::cut),
            Fault::Delay => {
                self.delay(1 + random.below(30));
                thread::sleep(pause);
                self.delay(0);
            }
            Fault::Unresponsive => {
                let end = if random.below(2) == 0 { Link::restore } else { Link::restore_without_connections };
                self.links[node].iter().for_each(Link::make_unresponsive);
                thread::sleep(2 * pause);
                self.links[node].iter().for_each(end);
            }
        }
        Ok(FaultInterval { fault, node, begun_ms, ended_ms: shared.now_ms() })
    }

    fn delay(&self, delay_ms: u64) {
        self.links.iter().flatten().for_each(|link| link.delay(Duration::from_millis(delay_ms)));
    }

    /// Waits until the standby, if any, has caught up: until then nothing is acknowledged.
    fn follow(&self) -> Result<()> {
        match &self.store {
            Store::Postgres { primary, standby: Some(_) } => primary.be_synchronous(),
            _ => Ok(()),
        }
    }

    /// The primary is killed first, so that it acknowledges nothing more.
    fn promote(&mut self) -> Result<()> {
        let Store::Postgres { primary, standby: Some(standby) } = &mut self.store else {
            anyhow::bail!("there is no standby")
        };
        primary.be_synchronous()?;
        primary.kill()?;
        standby.promote()?;
        std::mem::swap(primary, standby);
        standby.follow(primary)?;
        primary.be_synchronous()
    }

    pub(super) fn wait_for_standby(&mut self) -> Result<()> {
        for server in &mut self.nodes.servers {
            if server.has_ended()? {
                crate::process::show_tail(server.log());
                anyhow::bail!("a node has ended by itself");
            }
        }
        Ok(())
    }

    pub(super) fn primary(&self) -> &'static str {
        match &self.store {
            Store::Postgres { primary, .. } => primary.name(),
            Store::Bucket(_) => "the bucket",
        }
    }
}

fn start_postgres(kind: Kind) -> Result<(Store, Vec<u16>)> {
    let mut primary = Instance::new("one")?;
    primary.begin()?;
    let mut ports = vec![primary.port()];
    let mut standby = None;
    if kind == Kind::WithStandby {
        let mut second = Instance::new("two")?;
        second.follow(&primary)?;
        primary.be_synchronous()?;
        ports.push(second.port());
        standby = Some(second);
    }
    Ok((Store::Postgres { primary, standby }, ports))
}

fn signal(server: &Server, name: &str) -> Result<()> {
    let sent = Command::new("kill").args([&format!("-{name}"), &server.pid().to_string()]).status();
    ensure!(sent.context("cannot call kill")?.success(), "SIG{name} could not be sent to the server");
    Ok(())
}

fn url(links: &[Link]) -> String {
    let hosts: Vec<String> = links.iter().map(|link| format!("127.0.0.1:{}", link.port())).collect();
    format!("postgres://settee@{}/postgres?sslmode=disable", hosts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_happens_where_it_can() {
        let mut random = Random::new(1);
        for (kind, count) in [(Kind::WithStandby, LONG.len()), (Kind::Alone, SHORT.len()), (Kind::Bucket, BUCKET.len())]
        {
            let faults: Vec<Fault> = (0..1000).map(|_| Fault::choose(&mut random, kind)).collect();
            let seen = Fault::ALL.iter().filter(|fault| faults.contains(fault)).count();
            assert_eq!(seen, count, "{kind:?}");
        }
    }
}
