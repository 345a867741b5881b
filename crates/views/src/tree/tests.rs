//! Trees compared with sorted lists: loads, updates, traversals, and the invariants of nodes.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use settee_storage::{Batch, CommitToken, Durability, Engine, Expect, KeyRange, Keyspace, Outcome, Shard, Snapshot};
use settee_storage_testing::engine;

use super::aggregates::rebuild;
use super::apply::{Change, apply};
use super::check::{OwnedRow, check};
use super::load::Loader;
use super::walk::{Direction, RowRange, Subtree, Visit, Visitor, walk};
use super::write::{Committer, NodeWriter};
use super::{NodeCache, Root, TreeReader};
use crate::error::Result;
use crate::leaf::{Group, Leaf, Row};
use crate::reduce::Aggregate;
use crate::testing::NoLanguage;
use settee_model::testing::Random;

const SHARD: Shard = Shard(7);

struct Store {
    engine: Shared,
    cache: NodeCache,
    next_node: u64,
    root: Option<Root>,
    aggregates: Vec<Aggregate>,
}

struct Shared(Arc<dyn Engine>);

impl Committer for Shared {
    fn commit(&mut self, batch: Batch) -> Result<()> {
        let version = self.0.snapshot(SHARD)?.state()?.version;
        let outcome = self.0.commit(SHARD, version, CommitToken(0), batch, Durability::Buffered)?;
        assert!(matches!(outcome, Outcome::Committed(_)));
        Ok(())
    }
}

impl Store {
    fn new(reduces: &[&str]) -> Self {
        Self {
            engine: Shared(engine()),
            cache: NodeCache::default(),
            next_node: 1,
            root: None,
            aggregates: aggregates(reduces),
        }
    }

    fn load(&mut self, rows: &BTreeMap<Vec<u8>, OwnedRow>) {
        let mut nodes = NodeWriter::new(&mut self.engine, self.next_node);
        let mut loader = Loader::new(&mut nodes, &mut self.aggregates);
        rows.values().for_each(|row| loader.push(lend(row)).unwrap());
        self.root = loader.finish().unwrap();
        let (batch, next_node) = nodes.finish();
        self.next_node = next_node;
        Committer::commit(&mut self.engine, batch).unwrap();
    }

    fn apply(&mut self, changes: &BTreeMap<Vec<u8>, Option<OwnedRow>>) {
        let changes: Vec<Change<'_>> =
            changes.iter().map(|(row_key, row)| Change { row_key, row: row.as_ref().map(lend) }).collect();
        let mut left = &changes[..];
        loop {
            let snapshot = self.engine.0.snapshot(SHARD).unwrap();
            let tree = TreeReader { snapshot: &*snapshot, shard: SHARD, cache: &self.cache };
            let mut nodes = NodeWriter::new(&mut self.engine, self.next_node);
            let applied = apply(tree, self.root.as_ref(), left, &mut self.aggregates, &mut nodes).unwrap();
            let (batch, next_node) = nodes.finish();
            self.commit(applied.root, &applied.obsolete, batch, next_node);
            assert!(applied.changes > 0 || left.is_empty());
            left = &left[applied.changes..];
            if left.is_empty() {
                return;
            }
        }
    }

    fn commit(&mut self, root: Option<Root>, obsolete: &[u64], mut batch: Batch, next_node: u64) {
        obsolete.iter().for_each(|&id| batch.delete(Keyspace::IndexNodes, &crate::keys::node(id)));
        Committer::commit(&mut self.engine, batch).unwrap();
        self.root = root;
        self.next_node = next_node;
    }

    fn rebuild(&mut self, reduces: &[&str], known: &[Option<usize>]) {
        let Some(root) = self.root.clone() else { return };
        self.aggregates = aggregates(reduces);
        let snapshot = self.engine.0.snapshot(SHARD).unwrap();
        let tree = TreeReader { snapshot: &*snapshot, shard: SHARD, cache: &self.cache };
        let mut nodes = NodeWriter::new(&mut self.engine, self.next_node);
        let rebuilt = rebuild(tree, &root, &mut self.aggregates, known, &mut nodes).unwrap();
        let (batch, next_node) = nodes.finish();
        self.commit(Some(rebuilt.root), &rebuilt.obsolete, batch, next_node);
    }

    fn check(&mut self, model: &BTreeMap<Vec<u8>, OwnedRow>) {
        let snapshot = self.engine.0.snapshot(SHARD).unwrap();
        let tree = TreeReader { snapshot: &*snapshot, shard: SHARD, cache: &self.cache };
        let (rows, mut nodes) = check(tree, self.root.as_ref(), &mut self.aggregates);
        assert!(rows.iter().eq(model.values()));
        nodes.sort_unstable();
        assert_eq!(nodes, stored_nodes(&snapshot));
    }

    fn with_tree<T>(&self, read: impl FnOnce(TreeReader<'_>, &Root) -> T) -> Option<T> {
        let snapshot = self.engine.0.snapshot(SHARD).unwrap();
        let tree = TreeReader { snapshot: &*snapshot, shard: SHARD, cache: &self.cache };
        self.root.as_ref().map(|root| read(tree, root))
    }
}

fn aggregates(reduces: &[&str]) -> Vec<Aggregate> {
    reduces
        .iter()
        .map(|reduce| Aggregate::open(&(*reduce).into(), &NoLanguage::shared(), Default::default()).unwrap())
        .collect()
}

fn stored_nodes(snapshot: &Arc<dyn Snapshot>) -> Vec<u64> {
    let mut cursor = snapshot
        .scan(Keyspace::IndexNodes, KeyRange::default(), settee_storage::Direction::Forward, Expect::All)
        .unwrap();
    let mut nodes = Vec::new();
    while let Some((key, _)) = cursor.next().unwrap() {
        nodes.push(crate::keys::node_id(key).unwrap());
    }
    nodes
}

fn lend(row: &OwnedRow) -> Row<'_> {
    Row { row_key: &row.row_key, sort_len: row.sort_len, key: &row.key, value: &row.value }
}

fn random_row(random: &mut Random, space: u64) -> OwnedRow {
    let number = random.below(space);
    let mut row_key = b"prefix-of-all-keys-".to_vec();
    row_key.extend_from_slice(format!("{:03}", number % 97).as_bytes());
    let sort_len = row_key.len();
    row_key.extend_from_slice(format!("doc{number}").as_bytes());
    let value = match random.below(50) {
        0 => format!("\"{}\"", "x".repeat(usize::try_from(random.below(30_000)).unwrap())),
        _ => random.below(1000).to_string(),
    };
    OwnedRow { row_key, sort_len, key: (number % 97).to_string().into_bytes(), value: value.into_bytes() }
}

#[test]
fn random_changes_leave_a_sound_tree_with_the_right_rows() {
    for seed in 0..6 {
        println!("seed {seed}");
        let mut random = Random::of(seed);
        let mut store = Store::new(&["_count", "_last"]);
        let mut model: BTreeMap<Vec<u8>, OwnedRow> = BTreeMap::new();
        let mut height = 0;
        let space = [30, 3_000, 20_000][usize::try_from(seed % 3).unwrap()];
        for round in 0..40 {
            let mut changes = BTreeMap::new();
            let deletes = if round < 20 { 1 } else { 9 };
            for _ in 0..random.below(space / 3) + 1 {
                let row = random_row(&mut random, space);
                let row = (random.below(10) >= deletes).then_some(row).map_or_else(
                    || {
                        let keys: Vec<_> = model.keys().collect();
                        let any: Vec<u8> = keys
                            .get(usize::try_from(random.below(space)).unwrap() % keys.len().max(1))
                            .map_or_else(|| b"none".to_vec(), |key| (*key).clone());
                        (any, None)
                    },
                    |row| (row.row_key.clone(), Some(row)),
                );
                changes.insert(row.0, row.1);
                if changes.len() > 400 {
                    break;
                }
            }
            if round == 39 {
                changes = model.keys().map(|key: &Vec<u8>| (key.clone(), None)).collect();
            }
            for (key, row) in &changes {
                match row {
                    Some(row) => model.insert(key.clone(), row.clone()),
                    None => model.remove(key),
                };
            }
            store.apply(&changes);
            store.check(&model);
            height = height.max(store.root.as_ref().map_or(0, |root| root.height));
        }
        assert!(store.root.is_none());
        assert!(height >= [1, 3, 3][usize::try_from(seed % 3).unwrap()], "{height} levels are too few to test much");
    }
}

#[test]
fn loading_gives_the_same_rows_and_aggregates_can_be_exchanged() {
    let mut random = Random::of(11);
    for count in [0, 1, 10, 2_000, 60_000] {
        let rows: BTreeMap<Vec<u8>, OwnedRow> = (0..count)
            .map(|_| random_row(&mut random, 100_000))
            .map(|mut row| {
                row.value.truncate(3);
                (row.row_key.clone(), row)
            })
            .collect();
        let mut store = Store::new(&["_count"]);
        store.load(&rows);
        store.check(&rows);
        store.rebuild(&["_first", "_count", "_last"], &[None, Some(0), None]);
        store.check(&rows);
        store.rebuild(&["_last"], &[Some(2)]);
        store.check(&rows);
        store.rebuild(&[], &[]);
        store.check(&rows);
    }
}

#[derive(Default)]
struct Collect {
    rows: Vec<Vec<u8>>,
    subtrees: usize,
    taken_rows: u64,
    take: bool,
}

impl Visitor for Collect {
    fn subtree(&mut self, subtree: Subtree<'_>) -> Result<Visit> {
        if !self.take {
            return Ok(Visit::Enter);
        }
        self.subtrees += 1;
        self.taken_rows += subtree.rows();
        Ok(Visit::Taken)
    }

    fn rows(&mut self, leaf: &Leaf, rows: Range<usize>) -> Result<ControlFlow<()>> {
        self.rows.extend(rows.map(|row| leaf.row(row).row_key.to_vec()));
        Ok(ControlFlow::Continue(()))
    }

    fn end_of_range(&mut self) -> Result<ControlFlow<()>> {
        Ok(ControlFlow::Continue(()))
    }
}

#[test]
fn walks_and_ranks_agree_with_a_sorted_list() {
    let mut random = Random::of(5);
    let rows: BTreeMap<Vec<u8>, OwnedRow> =
        (0..30_000).map(|_| random_row(&mut random, 50_000)).map(|row| (row.row_key.clone(), row)).collect();
    let mut store = Store::new(&["_count"]);
    store.load(&rows);
    let keys: Vec<&Vec<u8>> = rows.keys().collect();
    let bound = |random: &mut Random| {
        let mut bound = random_row(random, 50_000).row_key;
        bound.truncate(usize::try_from(random.below(32)).unwrap());
        bound
    };
    for _ in 0..300 {
        let (a, b) = (bound(&mut random), bound(&mut random));
        let range = RowRange { lower: a.clone(), upper: (random.below(5) > 0).then_some(b) };
        let inside =
            |key: &&&Vec<u8>| ***key >= range.lower && range.upper.as_ref().is_none_or(|upper| ***key < *upper);
        let expected: Vec<Vec<u8>> = keys.iter().filter(inside).map(|key| (*key).clone()).collect();
        store.with_tree(|tree, root| {
            assert_eq!(tree.rank(root, &a).unwrap(), keys.iter().filter(|key| ***key < a).count() as u64);
            let mut all = Collect::default();
            assert!(walk(tree, root, &range, Direction::Forward, &mut all).unwrap().is_continue());
            assert_eq!(all.rows, expected);
            let mut counted = Collect { take: true, ..Collect::default() };
            assert!(walk(tree, root, &range, Direction::Backward, &mut counted).unwrap().is_continue());
            assert_eq!(counted.rows.len() as u64 + counted.taken_rows, expected.len() as u64);
            assert!(counted.subtrees < 900, "{} subtrees of {} leaves", counted.subtrees, root.node.rows / 100);
        });
    }
    store.with_tree(|tree, root| {
        let mut all = Collect::default();
        assert!(walk(tree, root, &RowRange::default(), Direction::Backward, &mut all).unwrap().is_continue());
        let mut sorted = all.rows.clone();
        sorted.sort();
        assert!(all.rows.last() < all.rows.first() && sorted.iter().eq(keys.iter().copied()));
    });
}

#[test]
fn groups_of_a_leaf_reduce_on_their_own() {
    let mut random = Random::of(1);
    let mut leaf = Leaf::default();
    let rows: BTreeMap<_, _> =
        (0..50).map(|_| random_row(&mut random, 1_000)).map(|row| (row.row_key.clone(), row)).collect();
    rows.values().for_each(|row| leaf.push(lend(row)));
    let mut aggregate = aggregates(&["_count"]).pop().unwrap();
    let groups = [Group { leaf: &leaf, rows: 0..2 }, Group { leaf: &leaf, rows: 2..9 }];
    let reductions = aggregate.reduce(&groups).unwrap();
    let mut text = Vec::new();
    reductions.iter().for_each(|reduction| aggregate.finish(reduction, &mut text));
    assert_eq!(text, b"27");
}
