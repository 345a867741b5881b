//! Random operations on an engine, compared with a naive model.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::fixture::{Entries, Generator, Open, commit_at, scanned, view};
use crate::{
    Batch, CommitToken, Direction, Engine, Expect, KeyRange, Keyspace, Shard, ShardState, Snapshot, StorageError,
    Version,
};

const STEPS: usize = 1_500;
const SHARDS: [Shard; 4] = [Shard(0), Shard(1), Shard(255), Shard(256)];
const KEPT_SNAPSHOTS: usize = 5;

#[derive(Clone, Default)]
struct Model {
    entries: BTreeMap<(Shard, Keyspace), BTreeMap<Vec<u8>, Vec<u8>>>,
    states: BTreeMap<Shard, ShardState>,
}

/// Snapshots of all shards that may be in use, taken while no thread writes.
type SnapshotSet = Arc<BTreeMap<Shard, Arc<dyn Snapshot>>>;

struct Run {
    seed: u64,
    random: Generator,
    engine: Arc<dyn Engine>,
    now: Model,
    kept: Vec<(SnapshotSet, Model)>,
    /// Dropped shards are not reused.
    offset: [u64; SHARDS.len()],
}

pub fn random_operations_agree_with_a_model(open: Open<'_>, seed: u64) {
    let mut run = Run {
        seed,
        random: Generator::new(seed),
        engine: open(),
        now: Model::default(),
        kept: Vec::new(),
        offset: [0; SHARDS.len()],
    };
    for _ in 0..STEPS {
        match run.random.below(100) {
            0..50 => run.commit(),
            50..55 => run.conflict(),
            55..57 => run.drop_shard(),
            57..65 => run.keep(),
            65..66 => run.engine.sync().expect("sync"),
            _ => run.read(),
        }
    }
    while let Some((moment, model)) = run.kept.pop() {
        run.compare_all(&moment, &model);
    }
    run.compare_all(&run.moment(), &run.now);
}

impl Run {
    fn shard(&mut self) -> Shard {
        let index = self.random.below(SHARDS.len());
        Shard(SHARDS[index].0 + (self.offset[index] << 16))
    }

    fn moment(&self) -> SnapshotSet {
        let current = SHARDS.iter().zip(self.offset).map(|(shard, offset)| Shard(shard.0 + (offset << 16)));
        let shards = current.chain(self.now.states.keys().copied());
        Arc::new(shards.map(|shard| (shard, view(&*self.engine, shard))).collect())
    }

    fn space(&mut self) -> Keyspace {
        *self.random.choose(&Keyspace::ALL)
    }

    /// Keys collide and are prefixes of each other.
    fn key(&mut self) -> Vec<u8> {
        let len = self.random.below(4);
        (0..len).map(|_| *self.random.choose(&[0x00, 0x01, 0x7f, 0xff])).collect()
    }

    fn batch(&mut self) -> Vec<(Keyspace, Vec<u8>, Option<Vec<u8>>)> {
        let len = self.random.below(12);
        (0..len)
            .map(|_| {
                let size = if self.random.below(50) == 0 { 40_000 } else { self.random.below(30) };
                let value = (self.random.below(4) > 0).then(|| self.random.bytes(size));
                (self.space(), self.key(), value)
            })
            .collect()
    }

    fn commit(&mut self) {
        let (shard, writes) = (self.shard(), self.batch());
        let old = self.now.states.get(&shard).copied().unwrap_or_default();
        let token = CommitToken(u128::from(self.random.number()));
        let mut batch = Batch::new();
        for (space, key, value) in &writes {
            match value {
                Some(value) => batch.put(*space, key, value),
                None => batch.delete(*space, key),
            }
        }
        let version = Version(old.version.0 + 1);
        let outcome = commit_at(&*self.engine, shard, old.version, token, batch);
        assert_eq!(outcome, Ok(version), "a commit to {shard:?}, seed {}", self.seed);
        self.now.states.insert(shard, ShardState { version, token });
        for (space, key, value) in writes {
            let entries = self.now.entries.entry((shard, space)).or_default();
            match value {
                Some(value) => entries.insert(key, value),
                None => entries.remove(&key),
            };
        }
    }

    fn conflict(&mut self) {
        let shard = self.shard();
        let state = self.now.states.get(&shard).copied().unwrap_or_default();
        let wrong = Version(state.version.0 + 1 + self.random.below(3) as u64);
        let mut batch = Batch::new();
        batch.put(self.space(), &self.key(), b"never written");
        let outcome = commit_at(&*self.engine, shard, wrong, CommitToken(1), batch);
        assert_eq!(outcome, Err(state.version), "a commit with a wrong version to {shard:?}, seed {}", self.seed);
    }

    fn drop_shard(&mut self) {
        let index = self.random.below(SHARDS.len());
        let shard = Shard(SHARDS[index].0 + (self.offset[index] << 16));
        self.engine.drop_shard(shard).expect("drop_shard");
        self.now.states.remove(&shard);
        self.now.entries.retain(|(of, _), _| *of != shard);
        let state = view(&*self.engine, shard).state();
        assert!(matches!(state, Err(StorageError::Dropped)), "the state of dropped {shard:?}, seed {}", self.seed);
        self.offset[index] += 1;
    }

    fn keep(&mut self) {
        if self.kept.len() == KEPT_SNAPSHOTS {
            let oldest = self.random.below(KEPT_SNAPSHOTS);
            self.kept.swap_remove(oldest);
        }
        self.kept.push((self.moment(), self.now.clone()));
    }

    fn read(&mut self) {
        let (moment, model) = match self.random.below(self.kept.len() + 1) {
            0 => (self.moment(), self.now.clone()),
            kept => (Arc::clone(&self.kept[kept - 1].0), self.kept[kept - 1].1.clone()),
        };
        let (shard, space) = (self.shard(), self.space());
        // The shard has been in use only since a later snapshot.
        let Some(snapshot) = moment.get(&shard) else { return };
        let nothing = BTreeMap::new();
        let entries = model.entries.get(&(shard, space)).unwrap_or(&nothing);
        let keys: Vec<_> = (0..self.random.below(70)).map(|_| self.key()).collect();
        let wanted: Vec<_> = keys.iter().map(|key| entries.get(key).cloned()).collect();
        let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let found = snapshot.multi_get(space, &asked).expect("multi_get");
        assert!(found == wanted, "a multi-get of {keys:?} in {shard:?} {space:?}, seed {}", self.seed);
        for (key, wanted) in keys.iter().zip(wanted).take(3) {
            let found = snapshot.get(space, key).expect("get");
            assert!(found == wanted, "a get of {key:?} in {shard:?} {space:?}, seed {}", self.seed);
        }
        self.scan(&**snapshot, entries, shard, space);
    }

    fn scan(&mut self, snapshot: &dyn Snapshot, entries: &BTreeMap<Vec<u8>, Vec<u8>>, shard: Shard, space: Keyspace) {
        let start = (self.random.below(3) > 0).then(|| self.key());
        let end = (self.random.below(3) > 0).then(|| self.key());
        let direction = *self.random.choose(&[Direction::Forward, Direction::Backward]);
        let range = KeyRange { start: start.as_deref(), end: end.as_deref() };
        let all = in_range(entries, range, direction);
        let context = format!("{range:?} {direction:?} of {shard:?} {space:?}, seed {}", self.seed);
        let mut cursor = snapshot.scan(space, range, direction, Expect::Few).expect("scan");
        let before = self.random.below(5);
        for wanted in all.iter().take(before) {
            let found = cursor.next().expect("next").map(|(key, value)| (key.to_vec(), value.to_vec()));
            assert!(found.as_ref() == Some(wanted), "a scan of {context}");
        }
        let target = self.key();
        cursor.seek(&target).expect("seek");
        let rest = all.iter().skip_while(|(key, _)| match direction {
            Direction::Forward => *key < target,
            Direction::Backward => *key > target,
        });
        for wanted in rest {
            let found = cursor.next().expect("next").map(|(key, value)| (key.to_vec(), value.to_vec()));
            assert!(found.as_ref() == Some(wanted), "after a seek to {target:?} in {context}");
        }
        assert_eq!(cursor.next().expect("next"), None, "the end after a seek to {target:?} in {context}");
    }

    fn compare_all(&self, moment: &SnapshotSet, model: &Model) {
        for (shard, state) in &model.states {
            let snapshot = &*moment[shard];
            assert_eq!(snapshot.state().expect("state"), *state, "the state of {shard:?}, seed {}", self.seed);
            for space in Keyspace::ALL {
                let entries = model.entries.get(&(*shard, space)).cloned().unwrap_or_default();
                for direction in [Direction::Forward, Direction::Backward] {
                    let found = scanned(snapshot, space, KeyRange::default(), direction);
                    let wanted = in_range(&entries, KeyRange::default(), direction);
                    assert!(found == wanted, "all of {shard:?} {space:?} {direction:?}, seed {}", self.seed);
                }
            }
        }
    }
}

fn in_range(entries: &BTreeMap<Vec<u8>, Vec<u8>>, range: KeyRange<'_>, direction: Direction) -> Entries {
    if matches!((range.start, range.end), (Some(start), Some(end)) if start >= end) {
        return Vec::new();
    }
    let start = range.start.map_or(Bound::Unbounded, Bound::Included);
    let end = range.end.map_or(Bound::Unbounded, Bound::Excluded);
    let mut found: Entries =
        entries.range::<[u8], _>((start, end)).map(|(key, value)| (key.clone(), value.clone())).collect();
    if direction == Direction::Backward {
        found.reverse();
    }
    found
}
