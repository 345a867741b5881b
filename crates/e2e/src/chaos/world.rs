//! [`World`]: three nodes, a PostgreSQL and its standby, the network between them, and all faults.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::client::{Random, Shared};
use crate::attack::client::split;
use crate::cluster::postgres::Instance;
use crate::cluster::{Link, Nodes};
use crate::workspace::Workspace;

const NODES: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    KillNode,
    /// A node is stopped in order and restarted.
    StopNode,
    KillPrimary,
    KillStandby,
    /// The primary is killed, the standby is promoted, and the former primary becomes the standby.
    Promote,
    Cut,
    /// The network between the nodes and the primary is slow for a while.
    Delay,
    /// The network between a node and the primary drops everything for a while. Then it delivers the data, or is lost.
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
            Fault::KillNode | Fault::StopNode => self.node == node,
            Fault::KillPrimary | Fault::KillStandby | Fault::Promote | Fault::Cut | Fault::Delay => true,
        }
    }
}

impl Fault {
    pub(super) const ALL: [Self; 8] = [
        Self::KillNode,
        Self::StopNode,
        Self::KillPrimary,
        Self::KillStandby,
        Self::Promote,
        Self::Cut,
        Self::Delay,
        Self::Unresponsive,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::KillNode => "nodes killed",
            Self::StopNode => "nodes restarted",
            Self::KillPrimary => "primaries killed",
            Self::KillStandby => "standbys killed",
            Self::Promote => "standbys promoted",
            Self::Cut => "networks cut",
            Self::Delay => "networks slow",
            Self::Unresponsive => "networks silent",
        }
    }

    pub(super) fn choose(random: &mut Random, has_standby: bool) -> Self {
        let faults = if has_standby { LONG } else { SHORT };
        let mut rest = random.below(faults.iter().map(|(_, weight)| weight).sum());
        let chosen = faults.iter().find(|(_, weight)| {
            let is_it = rest < *weight;
            rest = rest.saturating_sub(*weight);
            is_it
        });
        chosen.map_or(Self::KillNode, |(fault, _)| *fault)
    }
}

pub(super) struct World {
    pub(super) nodes: Nodes,
    primary: Instance,
    standby: Option<Instance>,
    /// For each node, the links to the first and to the second instance; either may be the primary.
    links: Vec<Vec<Link>>,
}

impl World {
    pub(super) fn start(workspace: &Workspace, has_standby: bool) -> Result<Self> {
        let mut primary = Instance::new("one")?;
        primary.begin()?;
        let mut ports = vec![primary.port()];
        let standby = match has_standby {
            false => None,
            true => {
                let mut standby = Instance::new("two")?;
                standby.follow(&primary)?;
                primary.be_synchronous()?;
                ports.push(standby.port());
                Some(standby)
            }
        };
        let of_node = |_| ports.iter().map(|port| Link::to(*port)).collect();
        let links: Vec<Vec<Link>> = (0..NODES).map(of_node).collect::<Result<_>>()?;
        let storages: Vec<String> = links.iter().map(|links| url(links)).collect();
        let nodes = Nodes::start(workspace, "chaos", &storages, &[])?;
        Ok(Self { nodes, primary, standby, links })
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
            Fault::StopNode => {
                if let Err(error) = self.nodes.servers[node].stop() {
                    shared.violation(format!("{error:#}"));
                    self.nodes.servers[node].kill()?;
                }
                self.nodes.servers[node].start_again()?;
            }
            Fault::KillPrimary => {
                self.primary.kill()?;
                thread::sleep(pause);
                self.primary.start()?;
                self.follow()?;
            }
            Fault::KillStandby => {
                if let Some(standby) = &mut self.standby {
                    standby.kill()?;
                    thread::sleep(pause);
                    standby.start()?;
                    self.follow()?;
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
        self.standby.as_ref().map_or(Ok(()), |_| self.primary.be_synchronous())
    }

    /// The primary is killed first, so that it acknowledges nothing more.
    fn promote(&mut self) -> Result<()> {
        let standby = self.standby.as_mut().context("there is no standby")?;
        self.primary.be_synchronous()?;
        self.primary.kill()?;
        standby.promote()?;
        std::mem::swap(&mut self.primary, standby);
        standby.follow(&self.primary)?;
        self.primary.be_synchronous()
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
        self.primary.name()
    }
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
        for (has_standby, count) in [(true, Fault::ALL.len()), (false, SHORT.len())] {
            let faults: Vec<Fault> = (0..1000).map(|_| Fault::choose(&mut random, has_standby)).collect();
            let seen = Fault::ALL.iter().filter(|fault| faults.contains(fault)).count();
            assert_eq!(seen, count, "with a standby: {has_standby}");
        }
    }
}
