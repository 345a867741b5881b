//! A primary fails, and its synchronous standby is promoted while two processes use it.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use settee_storage::{Durability, Engine, Outcome, Shard, Version};

use super::nodes::{observe, until};
use crate::scratch::{Scratch, programs};
use crate::{numbered, open, steps, token};

/// A standby in the directory of its primary, which started it.
struct Standby<'a> {
    primary: &'a Scratch,
    directory: String,
}

impl<'a> Standby<'a> {
    fn of(primary: &'a Scratch) -> Self {
        let socket = primary.socket();
        let directory = socket.parent().unwrap().join("standby").display().to_string();
        let home = socket.parent().unwrap().display().to_string();
        primary.run(&format!(
            "COPY (SELECT 1) TO PROGRAM 'cat >/dev/null; mkdir {directory} && pg_basebackup -h {home} -U settee -D {directory}/data -R -X stream -c fast \
             && pg_ctl -D {directory}/data -w -l {directory}/log \
             -o \"-k {directory} -c listen_addresses= -c fsync=off -c max_connections=400 -c shared_buffers=64MB\" start >/dev/null 2>&1 </dev/null'"
        ));
        primary.run("ALTER SYSTEM SET synchronous_standby_names = '*'");
        primary.run("SELECT pg_reload_conf()");
        until("the standby is synchronous", || primary.run("SELECT sync_state FROM pg_stat_replication") == "sync");
        Self { primary, directory }
    }

    fn run(&self, statement: &str) -> Option<String> {
        let mut command = Command::new(std::path::Path::new(&programs()?).join("psql"));
        command.args(["-h", &self.directory, "-U", "settee", "-d", "postgres", "-qAtc", statement]);
        let output = command.output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Returns a URL with the host of the primary and then the standby.
    fn url(&self) -> String {
        let other = self.directory.replace('/', "%2F");
        self.primary.url().replace("/postgres?", &format!(",{other}/postgres?"))
    }

    /// Sends a signal to the processes of the standby.
    fn signal(&self, name: &str) {
        let pid_file = format!("{}/data/postmaster.pid", self.directory);
        self.primary
            .run(&format!("COPY (SELECT 1) TO PROGRAM 'cat >/dev/null; pkill -{name} -P $(head -n 1 {pid_file})'"));
    }

    /// Ends the primary as a loss of its machine would, and then promotes the standby.
    fn promote(&self) {
        let home = self.primary.socket().parent().unwrap().join("data").display().to_string();
        // The server ends before it responds.
        let _ = self.primary.try_run(&format!("COPY (SELECT 1) TO PROGRAM 'pg_ctl -D {home} -m immediate -W stop'"));
        until("the primary is gone", || self.primary.try_run("SELECT 1").is_err());
        self.run("SELECT pg_promote()").expect("it can be promoted");
    }
}

impl Drop for Standby<'_> {
    fn drop(&mut self) {
        let directory = &self.directory;
        let _ = self.run(&format!("COPY (SELECT 1) TO PROGRAM 'pg_ctl -D {directory}/data -m immediate -W stop'"));
    }
}

#[test]
fn a_promoted_standby_has_all_acknowledged_commits() {
    const WRITERS: u64 = 4;
    const BEFORE: u64 = 50;
    const AFTER: u64 = 50;
    let Some(primary) = Scratch::start("-c synchronous_commit=on -c wal_level=replica") else { return };
    let standby = Standby::of(&primary);
    let url = standby.url();
    let (writer, reader) = (open(&url), open(&url));
    let observed = observe(&reader);
    let claim = writer.members().claim("work").unwrap().unwrap();
    let acknowledged: [AtomicU64; WRITERS as usize] = Default::default();
    let (acknowledged, is_promoted) = (&acknowledged, &AtomicBool::new(false));
    let smallest = || acknowledged.iter().map(|count| count.load(Ordering::SeqCst)).min().unwrap_or_default();
    let longest = thread::scope(|scope| {
        for (shard, mine) in (0..).zip(acknowledged) {
            let writer = &writer;
            scope.spawn(move || {
                let (mut number, mut left) = (0, AFTER);
                while left > 0 {
                    let batch = numbered(number + 1);
                    let answer =
                        writer.commit(Shard(shard), Version(number), token(number + 1), batch, Durability::Synced);
                    // After an error the commit is retried with the same token.
                    let Ok(Outcome::Committed(_)) = answer else { continue };
                    left -= u64::from(is_promoted.load(Ordering::SeqCst));
                    number += 1;
                    mine.store(number, Ordering::SeqCst);
                }
            });
        }
        let polling = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            while !is_promoted.load(Ordering::SeqCst) || smallest() < BEFORE + AFTER {
                let wanted = acknowledged.each_ref().map(|count| count.load(Ordering::SeqCst));
                let started = Instant::now();
                let answer = reader.catch_up();
                longest = longest.max(started.elapsed());
                if answer.is_ok() {
                    let observed = observed.lock();
                    for (shard, wanted) in (0..).zip(wanted) {
                        let found = observed.get(&Shard(shard)).map_or(0, |version| version.0);
                        assert!(
                            found >= wanted,
                            "shard {shard}: version {wanted} was acknowledged, but {found} was notified"
                        );
                    }
                }
            }
            longest
        });
        until("commits are acknowledged", || smallest() >= BEFORE);
        standby.promote();
        is_promoted.store(true, Ordering::SeqCst);
        polling.join().unwrap()
    });
    println!("the longest poll took {longest:?}");
    assert!(longest < Duration::from_secs(5), "{longest:?}");
    for (shard, count) in (0..).zip(acknowledged) {
        assert_eq!(steps(&reader, Shard(shard)), count.load(Ordering::SeqCst), "shard {shard}");
    }
    // Whether or not the claim was lost, at most one process holds it.
    until("a node has it", || writer.members().holds(&claim) || reader.members().claim("work").unwrap().is_some());
}

/// A cancelled wait leaves a commit visible that the standby does not have. The retry finds its token, and must not
/// acknowledge it before the standby has it.
#[test]
fn a_visible_commit_is_acknowledged_when_the_standby_has_it() {
    let Some(primary) = Scratch::start("-c synchronous_commit=on -c wal_level=replica") else { return };
    let standby = Standby::of(&primary);
    let engine = open(&standby.url());
    let waiting = || primary.run("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
    standby.signal("STOP");
    thread::scope(|scope| {
        let commit = scope.spawn(|| engine.commit(Shard(1), Version(0), token(1), numbered(1), Durability::Synced));
        until("the commit waits for the standby", || !waiting().is_empty());
        let first = waiting();
        primary.run(&format!("SELECT pg_terminate_backend({first})"));
        until("the retry waits for the standby", || !waiting().is_empty() && waiting() != first);
        assert!(!commit.is_finished(), "the standby does not have the commit");
        standby.signal("CONT");
        assert_eq!(commit.join().unwrap().unwrap(), Outcome::Committed(Version(1)));
    });
}
