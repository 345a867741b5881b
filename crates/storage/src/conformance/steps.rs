//! [`step`] and [`steps`]: a sequence of commits whose order and completeness can be checked after a crash, and
//! [`kills_lose_nothing`].

use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;

use super::Generator;
use crate::{
    Batch, CommitToken, Direction, Durability, Engine, Expect, KeyRange, Keyspace, Outcome, Shard, StorageError,
    Version,
};

const SHARDS: u64 = 4;

/// Returns the token of the commit with this number.
#[must_use]
pub fn token(number: u64) -> CommitToken {
    CommitToken(u128::from(number) << 70)
}

fn value(number: u64) -> Vec<u8> {
    let [.., byte] = number.to_be_bytes();
    vec![byte; usize::try_from(number % 700).expect("it is small")]
}

/// Returns the batch of the commit with this number, which starts at 1.
#[must_use]
pub fn numbered(number: u64) -> Batch {
    let mut batch = Batch::new();
    batch.insert(Keyspace::Bodies, &number.to_be_bytes(), &value(number));
    batch
}

/// Commits to a shard that has had `step` such commits.
pub fn step(engine: &dyn Engine, shard: Shard, step: u64, durability: Durability) {
    let outcome = engine.commit(shard, Version(step), token(step + 1), numbered(step + 1), durability);
    assert_eq!(outcome.expect("a commit"), Outcome::Committed(Version(step + 1)));
}

/// Checks that the commits of a shard are complete and in order, and returns their number. A dropped shard has none.
pub fn steps(engine: &dyn Engine, shard: Shard) -> u64 {
    let snapshot = engine.snapshot(shard).expect("a snapshot");
    let state = match snapshot.state() {
        Err(StorageError::Dropped) => return 0,
        state => state.expect("a state"),
    };
    let range = KeyRange::default();
    let mut cursor = snapshot.scan(Keyspace::Bodies, range, Direction::Forward, Expect::All).expect("a scan");
    let mut count = 0;
    while let Some((key, found)) = cursor.next().expect("an entry") {
        count += 1_u64;
        assert_eq!(key, count.to_be_bytes(), "{shard:?} has a hole");
        assert_eq!(found, value(count));
    }
    assert_eq!(state.version, Version(count), "the version of {shard:?}");
    assert_eq!(state.token, if count > 0 { token(count) } else { CommitToken::default() });
    count
}

/// The work of the process that [`kills_lose_nothing`] kills: commits to several shards, and prints each synced commit.
pub fn commit_until_killed(engine: &dyn Engine) {
    thread::scope(|scope| {
        for shard in 0..SHARDS {
            scope.spawn(move || {
                for number in steps(engine, Shard(shard)).. {
                    let is_synced = number % 3 != 0;
                    step(
                        engine,
                        Shard(shard),
                        number,
                        if is_synced { Durability::Synced } else { Durability::Buffered },
                    );
                    if is_synced {
                        let line = format!("\nacknowledged {shard} {}\n", number + 1);
                        std::io::stdout().write_all(line.as_bytes()).expect("the output is read");
                    }
                }
            });
        }
    });
}

/// Kills a process in [`commit_until_killed`] `rounds` times, each after at most `commits_max` printed commits. The
/// store that `open` opens must then contain all of them.
pub fn kills_lose_nothing(
    (rounds, commits_max): (u32, usize),
    child: impl Fn() -> Command,
    open: impl Fn() -> Arc<dyn Engine>,
) {
    let mut acknowledged = [0; SHARDS as usize];
    for round in 0..rounds {
        let seed = RandomState::new().hash_one(round);
        println!("round {round}, seed {seed}");
        let lines_until_kill = 1 + Generator::new(seed).below(commits_max);
        let mut child = child().stdout(Stdio::piped()).spawn().expect("a process");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut seen = 0;
        // The output is read to its end after the kill, because every printed commit was acknowledged.
        while let Some(Ok(line)) = lines.next() {
            let Some((shard, number)) = line.strip_prefix("acknowledged ").and_then(|line| line.split_once(' ')) else {
                continue;
            };
            acknowledged[shard.parse::<usize>().expect("a shard")] = number.parse().expect("a number");
            seen += 1;
            if seen == lines_until_kill {
                child.kill().expect("it is killed");
            }
        }
        child.wait().expect("it ends");
        assert!(seen >= lines_until_kill, "the child ended by itself after {seen} commits, seed {seed}");
        let engine = open();
        for (shard, promised) in (0..).zip(acknowledged) {
            let kept = steps(&*engine, Shard(shard));
            assert!(kept >= promised, "shard {shard} has {kept} commits, {promised} were promised, seed {seed}");
        }
    }
}
