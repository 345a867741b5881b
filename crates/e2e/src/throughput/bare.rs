//! Reference rates of PostgreSQL with a bare client, its own `pgbench`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::Options;
use super::load::CLIENTS;
use super::report::{Report, Row};
use super::stage::Stage;
use crate::process;

/// A measurement without a completed transaction is repeated with twice the interval up to this one.
const SECONDS_MAX: u64 = 30;

const TABLES: &str = "DROP TABLE IF EXISTS bare_commits, bare_documents, bare_sequence, bare_bodies, bare_catalog; \
    CREATE TABLE bare_commits (shard bigint, key bytea, value bytea, PRIMARY KEY (shard, key)); \
    CREATE TABLE bare_documents (LIKE bare_commits INCLUDING ALL); \
    CREATE TABLE bare_sequence (LIKE bare_commits INCLUDING ALL); \
    CREATE TABLE bare_bodies (LIKE bare_commits INCLUDING ALL); \
    CREATE TABLE bare_catalog (LIKE bare_commits INCLUDING ALL)";

const ONE: &str = "\\set id random(1, 9000000000000000000)
INSERT INTO bare_documents VALUES (1, int8send(:id), convert_to(repeat('x', 100), 'UTF8'));
";

/// The inserts of a commit of a single document, in one round trip.
const DOCUMENT: &str = "\\set id random(1, 9000000000000000000)
\\startpipeline
BEGIN;
INSERT INTO bare_commits VALUES (1, int8send(:id), convert_to(repeat('x', 60), 'UTF8'));
INSERT INTO bare_documents VALUES (1, int8send(:id), convert_to(repeat('x', 40), 'UTF8'));
INSERT INTO bare_sequence VALUES (1, int8send(:id), convert_to(repeat('x', 50), 'UTF8'));
INSERT INTO bare_bodies VALUES (1, int8send(:id), convert_to(repeat('x', 100), 'UTF8'));
INSERT INTO bare_catalog VALUES (1, int8send(:id), convert_to(repeat('x', 20), 'UTF8'));
COMMIT;
\\endpipeline
";

/// The inserts of forty documents that share a commit.
const GROUP: &str = "\\set id random(1, 9000000000000000000)
\\startpipeline
BEGIN;
INSERT INTO bare_commits VALUES (1, int8send(:id), convert_to(repeat('x', 60), 'UTF8'));
INSERT INTO bare_documents SELECT 1, int8send(:id) || int8send(n), convert_to(repeat('x', 40), 'UTF8') FROM generate_series(1, 40) AS n;
INSERT INTO bare_sequence SELECT 1, int8send(:id) || int8send(n), convert_to(repeat('x', 50), 'UTF8') FROM generate_series(1, 40) AS n;
INSERT INTO bare_bodies SELECT 1, int8send(:id) || int8send(n), convert_to(repeat('x', 100), 'UTF8') FROM generate_series(1, 40) AS n;
INSERT INTO bare_catalog VALUES (1, int8send(:id), convert_to(repeat('x', 20), 'UTF8'));
COMMIT;
\\endpipeline
";

pub(super) fn measure(stage: &Stage<'_>, options: &Options, network: Duration, report: &mut Report) -> Result<()> {
    let length = Duration::from_secs(options.seconds);
    let cells = [
        (format!("bare client, {CLIENTS} connections, a commit of one row each"), ONE, CLIENTS, 1.0),
        ("bare client, 1 connection, commits of a document's five rows".to_owned(), DOCUMENT, 1, 1.0),
        ("bare client, 1 connection, commits of 40 documents".to_owned(), GROUP, 1, 40.0),
    ];
    for (name, script, connections, documents) in cells {
        let rate = commits(stage, length, network, (script, connections))? * documents;
        report.add(Row::new(name, 0, network, rate, "documents/s"));
    }
    Ok(())
}

pub(super) fn yardstick(stage: &Stage<'_>, length: Duration, network: Duration) -> Result<f64> {
    commits(stage, length, network, (DOCUMENT, CLIENTS))
}

fn commits(stage: &Stage<'_>, length: Duration, network: Duration, label: (&str, usize)) -> Result<f64> {
    stage.postgres.sql(TABLES)?;
    stage.rest()?;
    let (script, connections) = label;
    let file = stage.postgres.directory().join("script");
    fs::write(&file, script)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
    let (port, connections) = (stage.port(network).to_string(), connections.to_string());
    let mut seconds = length.as_secs().max(1);
    loop {
        let mut command = stage.postgres.program("pgbench");
        command.args(["-h", "127.0.0.1", "-p", &port, "-U", "settee", "-n", "-M", "prepared", "-c", &connections]);
        command.args(["-j", "1", "-T", &seconds.to_string(), "-f"]).arg(&file).arg("postgres");
        let measured = rate(&process::output(&mut command)?);
        if measured.is_ok() || seconds > SECONDS_MAX {
            return measured;
        }
        seconds *= 2;
    }
}

/// pgbench prints no rate if no transaction ended within the interval.
fn rate(output: &str) -> Result<f64> {
    let number = output.lines().find_map(|line| line.strip_prefix("tps = ")).and_then(|rest| rest.split(' ').next());
    let rate: f64 = number.context("pgbench prints no rate")?.parse().context("the rate of pgbench is not a number")?;
    ensure!(rate.is_normal(), "pgbench completed no transaction");
    Ok(rate)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    #[test]
    fn the_rate_is_parsed_from_the_output_of_pgbench() {
        let output = "number of failed transactions: 0 (0.000%)\ntps = 8417.25 (without initial connection time)\n";
        assert_eq!(super::rate(output).unwrap(), 8417.25);
        assert!(super::rate("pgbench: error").is_err());
        assert!(super::rate("number of transactions actually processed: 0\n").is_err());
        assert!(super::rate("tps = 0.000000 (without initial connection time)\n").is_err());
    }
}
