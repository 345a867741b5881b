//! Writing clients: single documents, or batches. Each waits for its response before it writes again.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::client_pool::ClientPool;
use super::stage::addresses;
use crate::attack::client::Connection;
use crate::cluster::Nodes;
use crate::json::number;

pub(super) const CLIENTS: usize = 40;

const LOADERS: usize = 4;
pub(super) const BATCH: u64 = 1000;

const DATABASES: usize = 8;

const WARM_UP: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Single,
    Bulk,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spread {
    /// All into one database, through all nodes.
    One,
    /// Several databases, each through all nodes, as behind a proxy without routing.
    Many,
    /// Several databases, each through one node, as behind a proxy that routes by name.
    Apart,
    /// All into one database, through the last node, which is not the writer unless the first one was lost.
    Last,
}

impl Kind {
    pub(super) fn name(self) -> String {
        match self {
            Self::Single => format!("single writes, {CLIENTS} clients"),
            Self::Bulk => format!("batches of {BATCH}, {LOADERS} clients"),
        }
    }

    fn clients(self) -> usize {
        if self == Self::Single { CLIENTS } else { LOADERS }
    }
}

impl Spread {
    pub(super) const ALL: [Self; 4] = [Self::One, Self::Many, Self::Apart, Self::Last];

    pub(super) fn name(self) -> String {
        match self {
            Self::One => "one database".to_owned(),
            Self::Many => format!("{DATABASES} databases"),
            Self::Apart => format!("{DATABASES} databases, each through one node"),
            Self::Last => "one database, all through the last node".to_owned(),
        }
    }

    /// Returns the node and the database of a client. Clients of a node are spread over all its databases.
    fn place(self, client: usize, nodes: usize) -> (usize, usize) {
        match self {
            Self::One => (client % nodes, 0),
            Self::Many => (client % nodes, client / nodes % DATABASES),
            Self::Apart => (client % DATABASES % nodes, client % DATABASES),
            Self::Last => (nodes - 1, 0),
        }
    }
}

#[derive(Default)]
pub(super) struct Measured {
    documents: u64,
    pub(super) written: u64,
    seconds: f64,
    latencies: Vec<f64>,
}

impl Measured {
    pub(super) fn per_second(&self) -> f64 {
        self.documents as f64 / self.seconds
    }

    pub(super) fn latencies(&self) -> Vec<f64> {
        let mut latencies = self.latencies.clone();
        latencies.sort_by(f64::total_cmp);
        latencies
    }

    pub(super) fn add(&mut self, mut other: Self) {
        self.documents += other.documents;
        self.written += other.written;
        self.seconds += other.seconds;
        self.latencies.append(&mut other.latencies);
    }
}

/// Each `turn` uses new databases. Checks that every acknowledged document exists.
pub(super) fn run(nodes: &Nodes, (kind, spread, turn): (Kind, Spread, u32), length: Duration) -> Result<Measured> {
    let nodes = addresses(nodes)?;
    let name = |database: usize| format!("w{}-{}-{turn}-{database}", kind as usize, spread as usize);
    for database in 0..DATABASES {
        ask(nodes[0].0, &format!("PUT /{}", name(database)), &nodes[0].1, &[201])?;
    }
    let begun = Instant::now();
    let (begin, end) = (begun + WARM_UP, begun + WARM_UP + length);
    let places = (0..kind.clients()).map(|client| {
        let (node, database) = spread.place(client, nodes.len());
        (client as u64, &nodes[node], name(database))
    });
    let (written, latencies) = match kind {
        Kind::Single => {
            let mut client_pool = ClientPool::default();
            for (client, (address, authorization), database) in places {
                client_pool.join(*address, authorization, database, client)?;
            }
            client_pool.run(begin, end)?
        }
        Kind::Bulk => {
            let loaders = places.map(|(client, node, database)| Loader {
                address: node.0,
                authorization: &node.1,
                client,
                database,
            });
            load_all(loaders.collect(), begin, end)?
        }
    };
    let mut there = 0;
    for database in 0..DATABASES {
        let answer = ask(nodes[0].0, &format!("GET /{}", name(database)), &nodes[0].1, &[200])?;
        there += number(&answer, "doc_count").context("the information about a database has no number of documents")?;
    }
    ensure!(there == written, "wrong number of documents: {there} exist, {written} were acknowledged");
    let documents = latencies.len() as u64 * if kind == Kind::Bulk { BATCH } else { 1 };
    Ok(Measured { documents, written, seconds: length.as_secs_f64(), latencies })
}

pub(super) fn ask(address: SocketAddr, line: &str, authorization: &str, right: &[u16]) -> Result<String> {
    let (status, body) = Connection::open(address)?.ask(line, authorization, b"")?;
    let text = String::from_utf8_lossy(&body).into_owned();
    ensure!(right.contains(&status), "{line}: {status}: {text}");
    Ok(text)
}

struct Loader<'a> {
    address: SocketAddr,
    authorization: &'a str,
    client: u64,
    database: String,
}

/// Returns the number of acknowledged documents, and the milliseconds of the requests that ended from `begin` to `end`.
fn load_all(loaders: Vec<Loader<'_>>, begin: Instant, end: Instant) -> Result<(u64, Vec<f64>)> {
    thread::scope(|scope| {
        let threads: Vec<_> = loaders.into_iter().map(|loader| scope.spawn(move || loader.run(begin, end))).collect();
        let (mut written, mut latencies) = (0, Vec::new());
        for thread in threads {
            let (documents, mut took) = thread.join().ok().context("a client panicked")??;
            written += documents;
            latencies.append(&mut took);
        }
        Ok((written, latencies))
    })
}

impl Loader<'_> {
    fn run(self, begin: Instant, end: Instant) -> Result<(u64, Vec<f64>)> {
        let mut connection = Connection::open(self.address)?;
        let (mut written, mut latencies) = (0, Vec::new());
        while Instant::now() < end {
            let started = Instant::now();
            let body = batch(self.client * 1_000_000_000 + written, BATCH);
            bulk(&mut connection, &self.database, self.authorization, &body, BATCH)?;
            written += BATCH;
            let now = Instant::now();
            if now >= begin && now < end {
                latencies.push((now - started).as_secs_f64() * 1e3);
            }
        }
        Ok((written, latencies))
    }
}

pub(super) fn mixed(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

pub(super) fn document(number: u64, id: Option<u64>) -> String {
    let id = id.map(|id| format!("\"_id\":\"{id:012}\",")).unwrap_or_default();
    let (score, day) = (number % 1000, number % 28 + 1);
    format!(
        "{{{id}\"x\":{number},\"score\":{score},\"username\":\"user-{score}\",\"metadata\":{{\"createdAt\":\"2016-05-{day:02}T10:00:00Z\"}}}}"
    )
}

pub(super) fn batch(first: u64, count: u64) -> String {
    let documents: Vec<String> = (first..first + count).map(|number| document(number, Some(number))).collect();
    format!("{{\"docs\":[{}]}}", documents.join(","))
}

pub(super) fn bulk(
    connection: &mut Connection,
    database: &str,
    authorization: &str,
    body: &str,
    count: u64,
) -> Result<()> {
    let (status, answer) = connection.ask(&format!("POST /{database}/_bulk_docs"), authorization, body.as_bytes())?;
    let text = String::from_utf8_lossy(&answer);
    let written = text.matches("\"rev\":\"").count() as u64;
    ensure!(status == 201 && written == count, "{written} of {count} documents were acknowledged ({status})");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_spread_over_nodes_and_databases() {
        for nodes in [1, 2, 4] {
            for (spread, databases, nodes_of_each) in
                [(Spread::One, 1, nodes), (Spread::Many, 8, nodes), (Spread::Apart, 8, 1), (Spread::Last, 1, 1)]
            {
                let mut places: Vec<_> = (0..CLIENTS).map(|client| spread.place(client, nodes)).collect();
                places.sort_unstable();
                places.dedup();
                assert_eq!(places.len(), databases * nodes_of_each, "{spread:?} over {nodes} nodes");
            }
        }
    }

    #[test]
    fn documents_have_about_a_hundred_bytes() {
        let sizes = [0, 999_999].map(|number| document(number, Some(number)).len());
        assert!(sizes.iter().all(|size| (90..130).contains(size)), "{sizes:?}");
        assert_eq!(batch(5, 3).matches("_id").count(), 3);
    }
}
