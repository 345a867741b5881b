//! The build of an index over many small documents, and the reading of all its rows by a node that has just started.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::Options;
use super::load::{BATCH, ask, batch, bulk};
use super::report::{Asked, Report, Row};
use super::stage::{Stage, addresses};
use crate::attack::client::Connection;

const DATABASE: &str = "rows";

const BUILD_TIMEOUT: Duration = Duration::from_secs(600);

const LOADERS: u64 = 4;

/// Loads documents once; each network has an index of its own.
pub(super) fn measure(stage: &Stage<'_>, options: &Options, report: &mut Report) -> Result<()> {
    for (number, network) in options.networks().into_iter().enumerate() {
        let nodes = if number == 0 { stage.nodes(1, network)? } else { stage.join(1, network)? };
        let (address, authorization) = addresses(&nodes)?.pop().context("there is a node")?;
        let mut connection = Connection::open(address)?.with_timeout(BUILD_TIMEOUT);
        if number == 0 {
            ask(address, &format!("PUT /{DATABASE}"), &authorization, &[201])?;
            load(address, &authorization, options.documents)?;
            stage.postgres.sql("VACUUM ANALYZE")?;
        }
        stage.rest()?;
        let view = format!("/{DATABASE}/_design/d{number}/_view/v");
        let map = format!("function (doc) {{ /* {number} */ emit(doc.x, null); }}");
        let design = format!("{{\"views\":{{\"v\":{{\"map\":\"{map}\"}}}}}}");
        let line = format!("PUT /{DATABASE}/_design/d{number}");
        let (status, text) = connection.ask(&line, &authorization, design.as_bytes())?;
        ensure!(status == 201, "{line}: {status}: {}", String::from_utf8_lossy(&text));
        let (built, rows) = read(&mut connection, &format!("GET {view}?limit=1"), &authorization)?;
        ensure!(rows == 1, "wrong answer: {rows} rows in place of one");
        let rate = options.documents as f64 / built;
        let row = Row::new(format!("index of {} documents built", options.documents), 1, network, rate, "changes/s");
        report.add(row.asked(Asked::Rate(150_000.0)));
        // A new node must read from the store, without the cache of the builder.
        drop(nodes);
        let nodes = stage.join(1, network)?;
        let (address, authorization) = addresses(&nodes)?.pop().context("there is a node")?;
        let mut connection = Connection::open(address)?.with_timeout(BUILD_TIMEOUT);
        for turn in ["first", "second"] {
            let (seconds, rows) = read(&mut connection, &format!("GET {view}"), &authorization)?;
            ensure!(rows == options.documents, "wrong answer: {rows} rows in place of {}", options.documents);
            let name = format!("view of {rows} rows read, {turn} time");
            let row = Row::new(name, 1, network, rows as f64 / seconds, "rows/s");
            report.add(row.asked(Asked::Rate(200_000.0)));
        }
    }
    Ok(())
}

fn load(address: std::net::SocketAddr, authorization: &str, documents: u64) -> Result<()> {
    println!("{documents} documents are loaded");
    let batches = documents.div_ceil(BATCH);
    let loaded: Result<Vec<()>> = std::thread::scope(|scope| {
        let loaders: Vec<_> = (0..LOADERS)
            .map(|loader| {
                scope.spawn(move || -> Result<()> {
                    let mut connection = Connection::open(address)?;
                    for number in (loader..batches).step_by(LOADERS as usize) {
                        let count = BATCH.min(documents - number * BATCH);
                        bulk(&mut connection, DATABASE, authorization, &batch(number * BATCH, count), count)?;
                    }
                    Ok(())
                })
            })
            .collect();
        loaders.into_iter().map(|loader| loader.join().ok().context("a loader panicked")?).collect()
    });
    loaded.map(drop)
}

/// Returns the seconds until the last row, and the number of rows.
fn read(connection: &mut Connection, line: &str, authorization: &str) -> Result<(f64, u64)> {
    let (begun, mut rows) = (Instant::now(), Rows::default());
    let status = connection.read(line, authorization, &mut |piece| rows.take(piece))?;
    ensure!(status == 200, "{line}: {status}");
    Ok((begun.elapsed().as_secs_f64(), rows.count()))
}

#[derive(Default)]
struct Rows {
    is_new: bool,
    count: u64,
}

impl Rows {
    fn take(&mut self, piece: &[u8]) {
        for line in piece.split_inclusive(|byte| *byte == b'\n') {
            if self.is_new && line.starts_with(b"{\"") {
                self.count += 1;
            }
            self.is_new = line.ends_with(b"\n");
        }
    }

    fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_counted_wherever_pieces_end() {
        let text = b"{\"total_rows\":3,\"offset\":0,\"rows\":[\r\n{\"id\":\"a\"},\r\n{\"id\":\"b\"},\r\n{\"id\":\"c\"}\r\n]}\n";
        for size in [7, 9, 1000] {
            let mut rows = Rows::default();
            text.chunks(size).for_each(|piece| rows.take(piece));
            assert_eq!(rows.count(), 3, "in pieces of {size}");
        }
    }
}
