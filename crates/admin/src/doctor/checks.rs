//! Checks outside of the configuration: directory, disk, limits, the running server.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::time::Instant;

use settee_model::json::Value;

use super::Finding;
use crate::backends::{self, Depth, Fault};
use crate::{control, descriptors, storage, verify, version};

/// The engine needs space to compact, so less free space is an error.
const FREE_BYTES_MIN: u64 = 256 << 20;

const FREE_PART_MIN: f64 = 0.1;

const SYNCS: u32 = 15;

/// A slower median sync is a warning: the sync time limits the write rate of a client.
const SYNC_SLOW_US: u128 = 20_000;

const SYNC_UNLIKELY_US: u128 = 15;

const OPEN_FILES_MIN: u64 = 4096;

pub(super) fn directory(data: &Path) -> Vec<Finding> {
    let shown = data.display();
    if !data.is_dir() {
        return vec![Finding::error(format!("the data directory {shown} does not exist"), "Specify it with --data.")];
    }
    let probe = data.join(".doctor");
    let written = File::create(&probe).map(|_| fs::remove_file(&probe));
    if let Err(error) = written {
        let advice = "Run as the user that the server runs as, or give that user the directory.";
        return vec![Finding::error(format!("the data directory {shown} cannot be written: {error}"), advice)];
    }
    vec![Finding::good(format!("the data directory {shown} can be written"))]
}

pub(super) fn layout(data: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(place) = storage::elsewhere(data) {
        findings.push(Finding::good(format!("the data is in {}, which maintains it", storage::in_words(&place))));
    }
    if data.join(version::RESTORING).exists() {
        let advice = "Empty the directory and run `settee restore` again.";
        findings.push(Finding::error("a restore was interrupted: the directory contains an incomplete backup", advice));
    }
    findings.push(match version::read(data) {
        Ok(Some(layout)) if layout > version::LAYOUT => Finding::error(
            format!("the data has layout {layout}, this program supports {} at most", version::LAYOUT),
            "Use the version of Settee that wrote it, or a newer one.",
        ),
        Ok(Some(layout)) => Finding::good(format!("the data has layout {layout}, which this version serves")),
        Ok(None) if data.join("engine").exists() => {
            Finding::good("the data has no layout number yet; the next start writes it")
        }
        Ok(None) => Finding::good("there is no data yet"),
        Err(error) => Finding::error(format!("{error:#}"), "Restore the file `version` from a backup."),
    });
    findings
}

const READ_MAX_BYTES: u64 = 4 << 30;

const FAULTS_MAX: usize = 20;

pub(super) fn damage(data: &Path) -> Vec<Finding> {
    let advice = format!(
        "`settee verify --data {0}` lists the affected databases. Restore a backup, or create a new data directory from\n\
         everything that can be read: settee salvage --data {0} --to NEW",
        data.display()
    );
    let mut findings: Vec<Finding> = verify::own_files(data)
        .into_iter()
        .map(|(path, why)| {
            Finding::error(format!("{} {why}", path.display()), "Repair the file, or restore it from a backup.")
        })
        .collect();
    let engine = data.join(verify::ENGINE);
    if storage::elsewhere(data).is_none()
        && let Err(error) = backends::prepare_beside(data)
    {
        findings.push(Finding::error(format!("a server would not start: {error:#}"), advice.as_str()));
    }
    if !engine.is_dir() {
        return findings;
    }
    let files = fs::read_dir(&engine).into_iter().flatten().flatten();
    let bytes: u64 = files.filter_map(|file| Some(file.metadata().ok()?.len())).sum();
    let depth = if bytes <= READ_MAX_BYTES { Depth::Full } else { Depth::Metadata };
    match backends::check(&engine, depth, &mut |_, _| {}) {
        Ok(checked) => {
            let faults: Vec<&Fault> = checked.faults.iter().filter(|fault| !fault.is_torn_tail).collect();
            let reply = faults.iter().take(FAULTS_MAX);
            findings.extend(reply.map(|fault| Finding::error(verify::in_words(fault), advice.as_str())));
            if faults.len() > FAULTS_MAX {
                let more = faults.len() - FAULTS_MAX;
                findings.push(Finding::error(format!("{more} more parts are damaged"), advice.as_str()));
            }
            if faults.is_empty() {
                findings.push(match depth {
                    Depth::Full => Finding::good(format!("{} of data are undamaged", verify::size(bytes))),
                    Depth::Metadata => Finding::good(format!(
                        "no file is missing; `settee verify` reads and checks the {} of data",
                        verify::size(bytes)
                    )),
                });
            }
        }
        Err(error) => findings.push(Finding::error(format!("{error:#}"), advice)),
    }
    findings
}

pub(super) fn disk(data: &Path) -> Vec<Finding> {
    vec![space(data), syncs(data)]
}

fn space(data: &Path) -> Finding {
    let Ok(figures) = rustix::fs::statvfs(data) else {
        return Finding::warning("the free space of the disk cannot be determined", "");
    };
    let free = figures.f_bavail.saturating_mul(figures.f_frsize);
    let part = figures.f_bavail as f64 / (figures.f_blocks.max(1)) as f64;
    let found = format!("{} of the disk are free ({:.0} %)", size(free), part * 100.0);
    let advice = "Free some space: remove databases, compact them (POST /{db}/_compact), or move the data to a larger disk.\n\
                  Without space nothing can be written, and compaction needs some as well.";
    if free < FREE_BYTES_MIN {
        Finding::error(found, advice)
    } else if part < FREE_PART_MIN {
        Finding::warning(found, advice)
    } else {
        Finding::good(found)
    }
}

fn syncs(data: &Path) -> Finding {
    let path = data.join(".doctor-sync");
    let timed = time_syncs(&path);
    let _ = fs::remove_file(&path);
    match timed {
        Err(error) => Finding::error(format!("the disk does not sync: {error}"), "Check the disk and the system log."),
        Ok(median_us) => {
            let found = format!("a sync of the disk takes {:.2} ms", median_us as f64 / 1000.0);
            if median_us > SYNC_SLOW_US {
                let advice = "Each acknowledged write waits for a sync. Use a disk with a protected cache (most server SSDs),\n\
                              or write many documents per request (_bulk_docs).";
                Finding::warning(found, advice)
            } else if median_us < SYNC_UNLIKELY_US {
                let advice = "No disk is that fast: the file system is in memory, or syncs are disabled. A power failure loses data.";
                Finding::warning(found, advice)
            } else {
                Finding::good(found)
            }
        }
    }
}

fn time_syncs(path: &Path) -> std::io::Result<u128> {
    let mut file = File::create(path)?;
    let mut times = Vec::new();
    for _ in 0..SYNCS {
        let begun = Instant::now();
        file.write_all(&[0; 4096])?;
        file.sync_data()?;
        times.push(begun.elapsed().as_micros());
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

pub(super) fn open_files() -> Finding {
    match descriptors::open_files_limit() {
        // A server raises the soft limit itself.
        Some((_, hard)) if hard < OPEN_FILES_MIN => Finding::warning(
            format!("this shell may open {hard} files at most; a server that is started here as well"),
            format!(
                "Each connection needs one. Raise the limit before the start: `ulimit -n {OPEN_FILES_MIN}`, or LimitNOFILE= in the unit of systemd."
            ),
        ),
        Some((_, hard)) => Finding::good(format!("{hard} files may be open")),
        None => Finding::warning("the limit of open files cannot be determined", ""),
    }
}

pub(super) fn server(data: &Path) -> Vec<Finding> {
    let answer = match control::ask(data, "status") {
        Ok(Some((answer, _))) => answer,
        Ok(None) => return vec![Finding::good("no server runs on this data, so its views were not checked")],
        Err(error) => {
            let advice = "See its log; restart it if it does not serve requests.";
            return vec![Finding::error(format!("the server on this data does not respond: {error:#}"), advice)];
        }
    };
    let text = |value: Value<'_>, name: &str| {
        value.get(name).and_then(|member| member.as_str().map(std::borrow::Cow::into_owned)).unwrap_or_default()
    };
    let number = |value: Value<'_>, name: &str| value.get(name).and_then(Value::as_i64).unwrap_or_default();
    let value = answer.value();
    let (version, url, uptime_s) = (text(value, "version"), text(value, "url"), number(value, "uptime_s"));
    let mut findings = vec![if version == env!("CARGO_PKG_VERSION") {
        Finding::good(format!("Settee {version} serves this data at {url}, for {uptime_s} s"))
    } else {
        let found = format!("Settee {version} serves this data; this is {}", env!("CARGO_PKG_VERSION"));
        Finding::warning(found, "Restart the server (POST /_node/_local/_restart) to bring the new version into use.")
    }];
    if let Some(reason) = value.get("refused").and_then(|reason| reason.as_str().map(std::borrow::Cow::into_owned)) {
        let advice = "Stored data can be read. Writes are accepted again once the cause is gone, and after a failed sync only after a restart.";
        findings.push(Finding::error(format!("the server rejects writes: {reason}"), advice));
    }
    if let Some(reason) = value.get("damage").and_then(|reason| reason.as_str().map(std::borrow::Cow::into_owned)) {
        let advice = "Undamaged data can be read and written. `settee verify` lists the damaged databases. Stop the server and restore\n\
                      a backup, or create a new data directory from everything that can be read with `settee salvage`.";
        findings.push(Finding::error(format!("the server found damaged data: {reason}"), advice));
    }
    let slow: Vec<Value<'_>> =
        value.get("slow").into_iter().flat_map(|slow| slow.elements().collect::<Vec<_>>()).collect();
    let is_view = |slow: &Value<'_>| slow.get("is_view").and_then(Value::as_bool) == Some(true);
    let (views, others): (Vec<_>, Vec<_>) = slow.into_iter().partition(is_view);
    for (description, slow, advice) in [
        (
            "views",
            views,
            "Query them after each load of data, or in the background with update=lazy, so that no user waits for the index;\n\
             emit less, use built-in reduces, and watch _active_tasks during the build.",
        ),
        ("other requests", others, "The log contains them (`a slow request`); [log] slow_request_ms is the threshold."),
    ] {
        if let Some(worst) = slow.iter().max_by_key(|slow| number(**slow, "duration_ms")) {
            let (count, ms, ago_s) = (slow.len(), number(*worst, "duration_ms"), number(*worst, "ago_s"));
            let found = format!(
                "{count} {description} were slow recently; the worst took {ms} ms and read {} entries ({} bytes), {ago_s} s ago: {}",
                number(*worst, "entries"),
                number(*worst, "read_bytes"),
                text(*worst, "request")
            );
            findings.push(Finding::warning(found, advice));
        } else {
            findings.push(Finding::good(format!("no {description} were slow recently")));
        }
    }
    findings
}

pub fn readable(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => "does not exist".to_owned(),
        ErrorKind::PermissionDenied => "may not be read by this user".to_owned(),
        _ => format!("cannot be read: {error}"),
    })
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_073_741_824 => format!("{} MiB", bytes >> 20),
        _ => format!("{:.1} GiB", bytes as f64 / (1_u64 << 30) as f64),
    }
}
