//! Revision trees compared with a naive model, the set of all paths.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::testing::Random;

fn rev(text: &str) -> Rev {
    Rev::parse(text).unwrap()
}

/// The format is `3-c 2-b 1-a`, newest first; a deletion has the value `false`.
fn path(text: &str) -> Vec<Rev> {
    text.split(' ').map(rev).collect()
}

fn tree(paths: &[&str]) -> RevTree<bool> {
    let mut tree = RevTree::new();
    for text in paths {
        tree.merge(&path(text.trim_start_matches('!')), !text.starts_with('!'));
    }
    tree
}

/// The format of each node is `parent>id`.
fn show<T>(tree: &RevTree<T>) -> String {
    let show = |node: &Node<T>| match node.parent {
        Some(parent) => format!("{}>{}", tree.node(parent).rev, node.rev),
        None => node.rev.to_string(),
    };
    tree.nodes().iter().map(show).collect::<Vec<_>>().join(" ")
}

fn names<T>(tree: &RevTree<T>, nodes: impl IntoIterator<Item = u32>) -> String {
    nodes.into_iter().map(|node| tree.node(node).rev.to_string()).collect::<Vec<_>>().join(" ")
}

#[test]
fn merge() {
    use Merge::{Branched, Extended, Known};
    for (before, merged, outcome, after) in [
        (&[][..], "1-a", Extended, "1-a"),
        (&[], "3-c 2-b", Extended, "2-b 2-b>3-c"),
        (&["1-a"], "1-a", Known, "1-a"),
        (&["1-a"], "2-b 1-a", Extended, "1-a 1-a>2-b"),
        (&["1-a"], "3-c 2-b 1-a", Extended, "1-a 1-a>2-b 2-b>3-c"),
        (&["2-b 1-a"], "2-c 1-a", Branched, "1-a 1-a>2-b 1-a>2-c"),
        (&["2-c 1-a"], "2-b 1-a", Branched, "1-a 1-a>2-b 1-a>2-c"),
        (&["2-b 1-a"], "1-a", Known, "1-a 1-a>2-b"),
        (&["1-a"], "1-b", Branched, "1-a 1-b"),
        (&["2-b 1-a"], "5-e 4-d", Branched, "1-a 1-a>2-b 4-d 4-d>5-e"),
        // Removed ancestors are added again, also by a known revision.
        (&["3-c"], "4-d 3-c 2-b", Extended, "2-b 2-b>3-c 3-c>4-d"),
        (&["3-c"], "3-c 2-b 1-a", Known, "1-a 1-a>2-b 2-b>3-c"),
        (&["3-c 2-b"], "3-c 2-b 1-a", Known, "1-a 1-a>2-b 2-b>3-c"),
        (&["3-c 2-b"], "4-d 3-c 2-b 1-a", Extended, "1-a 1-a>2-b 2-b>3-c 3-c>4-d"),
        (&["4-d", "2-b 1-a"], "4-d 3-c 2-b", Known, "1-a 1-a>2-b 2-b>3-c 3-c>4-d"),
        (&["1-a"], "3-c 1-a", Branched, "1-a 3-c"),
        (&["3-c 2-b 1-a"], "3-c 2-x 1-y", Known, "1-a 1-a>2-b 2-b>3-c"),
        (&["2-b 1-a"], "3-c 2-b 1-x", Extended, "1-a 1-a>2-b 2-b>3-c"),
    ] {
        let mut tree = tree(before);
        let found = tree.merge(&path(merged), true);
        assert_eq!((found, show(&tree).as_str()), (outcome, after), "merging {merged} into {before:?}");
        assert_eq!(
            tree.node(tree.find(&path(merged)[0]).unwrap()).value,
            Some(true),
            "merging {merged} into {before:?}"
        );
    }
}

#[test]
fn merge_keeps_the_value_that_is_there() {
    let mut tree = RevTree::new();
    tree.merge(&path("2-b 1-a"), "b");
    tree.merge(&path("2-b 1-a"), "other");
    tree.merge(&path("1-a"), "a");
    let values: Vec<_> = tree.nodes().iter().map(|node| node.value).collect();
    assert_eq!(values, [Some("a"), Some("b")]);
}

#[test]
fn winner() {
    for (paths, ranked) in [
        (&[][..], ""),
        (&["1-a"], "1-a"),
        (&["1-a", "1-b"], "1-b 1-a"),
        (&["2-b 1-a", "3-a 2-c 1-a", "3-0 2-d 1-a"], "3-a 3-0 2-b"),
        (&["2-b 1-a", "!3-c 2-b"], "3-c"),
        (&["1-a", "!9-x"], "1-a 9-x"),
        (&["!1-a", "!9-x", "!9-y"], "9-y 9-x 1-a"),
        (&["10-a", "9-z"], "10-a 9-z"),
        (&["1-ffffffffffffffffffffffffffffffff", "1-f"], "1-ffffffffffffffffffffffffffffffff 1-f"),
        (&["1-00000000000000000000000000000000", "1-0"], "1-0 1-00000000000000000000000000000000"),
    ] {
        let tree = tree(paths);
        assert_eq!(names(&tree, tree.leaves_by_rank(|live| !live)), ranked, "{paths:?}");
        assert_eq!(names(&tree, tree.winner(|live| !live)), ranked.split(' ').next().unwrap(), "{paths:?}");
    }
}

#[test]
fn stem() {
    for (paths, limit, after, forgotten) in [
        (&["3-c 2-b 1-a"][..], 3, "1-a 1-a>2-b 2-b>3-c", 0),
        (&["1-a", "2-b 1-a", "3-c 2-b 1-a"], 2, "2-b 2-b>3-c", 1),
        (&["1-a", "2-b 1-a", "3-c 2-b 1-a"], 1, "3-c", 2),
        (&["1-a", "2-b 1-a", "3-c 2-b 1-a"], 0, "3-c", 2),
        // One leaf still needs 1-a, so the history of the other remains connected with it.
        (&["3-c 2-b 1-a", "2-x 1-a"], 2, "1-a 1-a>2-b 1-a>2-x 2-b>3-c", 0),
        (&["3-c 2-b 1-a", "2-x 1-a"], 1, "2-x 3-c", 0),
    ] {
        let mut tree = tree(paths);
        assert_eq!(tree.stem(limit).len(), forgotten, "{paths:?}");
        assert_eq!(show(&tree), after, "{paths:?} stemmed to {limit}");
    }
}

#[test]
fn purge() {
    for (paths, purged, after, removed) in [
        (&["1-a"][..], "1-a", "", Some(1)),
        (&["1-a", "2-b 1-a"], "2-b", "", Some(2)),
        (&["2-b 1-a"], "1-a", "1-a 1-a>2-b", None),
        (&["2-b 1-a"], "2-x", "1-a 1-a>2-b", None),
        (&["3-c 2-b 1-a", "3-x 2-b"], "3-c", "1-a 1-a>2-b 2-b>3-x", Some(1)),
        (&["3-c 2-b 1-a", "2-x 1-a"], "3-c", "1-a 1-a>2-x", Some(1)),
        (&["3-c 2-b 1-a", "9-z"], "9-z", "1-a 1-a>2-b 2-b>3-c", Some(1)),
    ] {
        let mut values = tree(paths);
        assert_eq!(values.purge(&rev(purged)).map(|values| values.len()), removed, "{paths:?}");
        assert_eq!(show(&values), after, "{paths:?} without {purged}");
        assert_eq!(tree(paths).remove_leaf(&rev(purged)), removed.map(|_| true), "{paths:?} without {purged}");
    }
}

#[test]
fn leaves_of() {
    let tree = tree(&["3-c 2-b 1-a", "4-y 3-x 2-b", "2-d 1-a", "1-z"]);
    for (node, leaves) in [("1-a", "2-d 3-c 4-y"), ("2-b", "3-c 4-y"), ("3-x", "4-y"), ("3-c", "3-c"), ("1-z", "1-z")] {
        assert_eq!(names(&tree, tree.leaves_of(&[tree.find(&rev(node)).unwrap()])), leaves, "{node}");
    }
}

#[test]
fn from_nodes() {
    let node = |text: &str, parent: Option<u32>| Node { rev: rev(text), parent, value: Some(true) };
    let check = |nodes: Vec<Node<bool>>, expected: Result<&str, InvalidTree>| {
        assert_eq!(RevTree::from_nodes(nodes).map(|tree| show(&tree)), expected.map(str::to_owned));
    };
    check(vec![], Ok(""));
    check(vec![node("1-a", None), node("2-b", Some(0))], Ok("1-a 1-a>2-b"));
    check(vec![node("1-b", None), node("2-x", Some(0)), node("1-a", None)], Ok("1-a 1-b 1-b>2-x"));
    check(vec![node("2-b", Some(1)), node("1-a", None)], Err(InvalidTree::Parent { node: 0 }));
    check(vec![node("1-a", Some(0))], Err(InvalidTree::Parent { node: 0 }));
    check(vec![node("1-a", None), node("3-b", Some(0))], Err(InvalidTree::Parent { node: 1 }));
    check(vec![node("1-a", None), node("1-a", None)], Err(InvalidTree::Repeated { node: 1 }));
    check(
        vec![node("1-a", None), Node { value: None, ..node("2-b", Some(0)) }],
        Err(InvalidTree::EmptyLeaf { node: 1 }),
    );
}

#[test]
fn long_history() {
    let mut tree = RevTree::new();
    let revs: Vec<Rev> = (1..=5_000u64).map(|generation| Rev::new(generation, [generation as u8; 16])).collect();
    tree.merge(&revs[..1], 0);
    for (value, pair) in (1..).zip(revs.windows(2)) {
        assert_eq!(tree.merge(&[pair[1].clone(), pair[0].clone()], value), Merge::Extended);
        tree.stem(1_000);
    }
    assert_eq!(tree.nodes().len(), 1_000);
    let winner = tree.winner(|_| false).unwrap();
    assert!(tree.history(winner).map(|node| tree.node(node).rev.generation).eq((4_001..=5_000).rev()));
}

/// Revisions and their known parents: the union of all paths.
#[derive(Default, Clone)]
struct Model {
    parents: BTreeMap<Rev, Option<Rev>>,
    values: BTreeMap<Rev, usize>,
}

impl Model {
    fn merge(&mut self, path: &[Rev], value: usize) -> Merge {
        let first_known = path.iter().position(|rev| self.parents.contains_key(rev));
        let outcome = match first_known {
            Some(0) => Merge::Known,
            Some(age) if self.leaves().contains(&path[age]) => Merge::Extended,
            None if self.parents.is_empty() => Merge::Extended,
            _ => Merge::Branched,
        };
        for (age, rev) in path.iter().enumerate() {
            let parent = self.parents.entry(rev.clone()).or_default();
            if let Some(older) = path.get(age + 1) {
                *parent = Some(older.clone());
            }
        }
        self.values.entry(path[0].clone()).or_insert(value);
        outcome
    }

    fn leaves(&self) -> BTreeSet<Rev> {
        let inner: BTreeSet<&Rev> = self.parents.values().flatten().collect();
        self.parents.keys().filter(|rev| !inner.contains(rev)).cloned().collect()
    }

    fn history(&self, rev: &Rev) -> Vec<Rev> {
        let parent =
            |rev: &Rev| self.parents.get(rev).cloned().flatten().filter(|parent| self.parents.contains_key(parent));
        std::iter::successors(Some(rev.clone()), parent).collect()
    }

    fn retain(&mut self, keep: &BTreeSet<Rev>) -> BTreeSet<usize> {
        self.parents.retain(|rev, _| keep.contains(rev));
        let parents = self.parents.clone();
        for parent in self.parents.values_mut() {
            *parent = parent.take().filter(|parent| parents.contains_key(parent));
        }
        let (kept, gone) = std::mem::take(&mut self.values).into_iter().partition(|(rev, _)| keep.contains(rev));
        self.values = kept;
        BTreeMap::into_values(gone).collect()
    }

    #[track_caller]
    fn check(&self, tree: &RevTree<usize>) {
        let found: BTreeMap<Rev, Option<Rev>> = tree
            .nodes()
            .iter()
            .map(|node| (node.rev.clone(), node.parent.map(|parent| tree.node(parent).rev.clone())))
            .collect();
        assert_eq!(found, self.parents);
        assert!(tree.nodes().is_sorted_by(|a, b| a.rev < b.rev));
        let values = tree.nodes().iter().filter_map(|node| Some((node.rev.clone(), node.value?))).collect();
        assert_eq!(self.values, values);
        let leaves = tree.leaves().map(|leaf| tree.node(leaf).rev.clone()).collect();
        assert_eq!(self.leaves(), leaves);
        for (index, node) in (0..).zip(tree.nodes()) {
            assert_eq!(tree.find(&node.rev), Some(index));
            assert_eq!(tree.is_leaf(index), self.leaves().contains(&node.rev));
            let history: Vec<Rev> = tree.history(index).map(|node| tree.node(node).rev.clone()).collect();
            assert_eq!(history, self.history(&node.rev));
        }
        let mut ranked: Vec<Rev> = self.leaves().into_iter().collect();
        let deleted = |value: &usize| value.is_multiple_of(3);
        ranked.sort_by_key(|rev| (!deleted(&self.values[rev]), rev.generation, rev.hash.as_bytes().to_vec()));
        ranked.reverse();
        let found: Vec<Rev> = tree.leaves_by_rank(deleted).iter().map(|&leaf| tree.node(leaf).rev.clone()).collect();
        assert_eq!(found, ranked);
        assert_eq!(tree.winner(deleted).map(|leaf| &tree.node(leaf).rev), ranked.first());
        let again = RevTree::from_nodes(tree.nodes().to_vec()).unwrap();
        assert_eq!(again, *tree);
    }
}

/// Few distinct revisions make paths overlap; some have unknown ancestors or a gap.
fn random_path(random: &mut Random, generations: usize, width: usize) -> Vec<Rev> {
    let newest = random.below(generations) + 1;
    let length = random.below(newest) + 1;
    // The parent is a function of the child, so that almost every revision has one ancestry.
    let mut number = random.below(width);
    let mut path = Vec::new();
    for generation in (newest + 1 - length..=newest).rev() {
        path.push(Rev::new(generation as u64, [number as u8; 16]));
        number = if random.one_in(40) { random.below(width) } else { number / 2 };
        if random.one_in(60) {
            break;
        }
    }
    path
}

#[test]
fn a_growth_equals_merging_one_by_one() {
    let mut random = Random::new();
    let mut indexed = 0;
    for round in 0..400 {
        let (generations, width) = (random.below(14) + 1, random.below(200) + 1);
        let mut limit = random.below(16);
        let (mut tree, mut growth) = (RevTree::new(), Growth::new(RevTree::new()));
        for value in 0..random.below(400) {
            let path = random_path(&mut random, generations, width);
            let known = match tree.find(&path[0]) {
                Some(node) if tree.node(node).value.is_none() => Known::Nothing,
                Some(node) if tree.history(node).take(path.len()).count() < path.len() => Known::NotAllAncestors,
                Some(_) => Known::Everything,
                None => Known::Nothing,
            };
            assert_eq!(growth.known(&path), known, "round {round}: {path:?}");
            let before = tree.clone();
            tree.merge(&path, value);
            let mut forgotten = tree.stem(limit);
            let mut grown = growth.merge(&path, value, limit);
            forgotten.sort_unstable();
            grown.forgotten.sort_unstable();
            assert_eq!(grown, Grown { changed: before != tree, forgotten }, "round {round}: {path:?} within {limit}");
            let deleted = |value: &usize| value.is_multiple_of(3);
            assert_eq!(growth.has_leaf(deleted), tree.has_leaf(deleted));
            let (one, other) = (tree.winner(deleted).unwrap(), growth.winner(deleted).unwrap());
            assert_eq!(tree.node(one), &Node { parent: tree.node(one).parent, ..growth.node(other).clone() });
            let asked = &random_path(&mut random, generations, width)[0];
            let of_tree = tree.find(asked).map(|node| (tree.is_leaf(node), tree.node(node).value));
            let of_growth = growth.find(asked).map(|node| (growth.is_leaf(node), growth.node(node).value));
            assert_eq!(of_growth, of_tree, "round {round}: {asked}");
            if random.one_in(50) {
                assert_eq!(growth.settle(), &tree, "round {round}");
            }
            if random.one_in(100) {
                limit = random.below(16);
            }
            if random.one_in(100) && !tree.is_empty() {
                let leaf = tree.leaves().next().map(|leaf| tree.node(leaf).rev.clone()).unwrap();
                assert_eq!(growth.settle_mut().purge(&leaf), tree.purge(&leaf));
            }
            if tree.is_empty() {
                break;
            }
        }
        indexed += u32::from(growth.settled().is_none());
        assert_eq!(growth.settle(), &tree, "round {round}");
    }
    assert!(indexed > 100, "{indexed} of 400");
}

#[test]
fn ten_thousand_conflicts_cost_a_few_steps_each() {
    const CONFLICTS: u64 = 10_000;
    let hash = |number: u64| -> [u8; 16] { (u128::from(number) << 64 | u128::from(number)).to_be_bytes() };
    let root = Rev::new(1, hash(0));
    let check = |name: &str, limit: usize, path: &dyn Fn(u64) -> Vec<Rev>| {
        let mut growth = Growth::new(RevTree::new());
        for number in 0..CONFLICTS {
            growth.merge(&path(number * 7919 % CONFLICTS), (), limit);
        }
        assert!(growth.settle().leaf_count() >= 1, "{name}");
        let steps = growth.steps() / CONFLICTS;
        assert!(steps < 40, "{name}: {steps} steps for each conflict");
    };
    check("roots", 1_000, &|number| vec![Rev::new(1, hash(number))]);
    check("children of one revision", 1_000, &|number| vec![Rev::new(2, hash(number)), root.clone()]);
    check("grandchildren", 1_000, &|number| {
        vec![Rev::new(3, hash(number)), Rev::new(2, hash(number)), Rev::new(1, hash(0))]
    });
    check("conflicts and their deletions", 1_000, &|number| {
        let half = number / 2;
        if number % 2 == 0 {
            vec![Rev::new(1, hash(half))]
        } else {
            vec![Rev::new(2, hash(half)), Rev::new(1, hash(half))]
        }
    });
    check("more ancestors than are remembered", 2, &|number| {
        (1..=5).rev().map(|generation| Rev::new(generation, hash(number))).collect()
    });
    check("one long history", 5, &|_| (1..=20).rev().map(|generation| Rev::new(generation, hash(0))).collect());
}

fn random_world(random: &mut Random) -> Vec<Vec<Rev>> {
    let mut world: Vec<Vec<Rev>> = Vec::new();
    for number in 0..random.below(30) + 1 {
        let base =
            if world.is_empty() || random.one_in(8) { Vec::new() } else { world[random.below(world.len())].clone() };
        let generation = base.first().map_or(random.below(3) as u64 + 1, |rev| rev.generation + 1);
        let hash = if random.one_in(2) {
            crate::RevHash::from_bytes(format!("{}{number}", random.below(10)).as_bytes())
        } else {
            [random.below(256) as u8, number as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0].into()
        };
        world.push(std::iter::once(Rev { generation, hash }).chain(base).collect());
    }
    world
}

#[test]
fn random_trees_equal_the_model() {
    let mut random = Random::new();
    for _ in 0..300 {
        let world = random_world(&mut random);
        let mut arrivals: Vec<(Vec<Rev>, usize)> = Vec::new();
        for _ in 0..random.below(20) + 1 {
            let number = random.below(world.len());
            let known = random.below(world[number].len()) + 1;
            arrivals.push((world[number][..known].to_vec(), number));
        }
        let (mut tree, mut model) = (RevTree::new(), Model::default());
        for (path, value) in &arrivals {
            assert_eq!(tree.merge(path, *value), model.merge(path, *value), "outcome of {path:?}");
            model.check(&tree);
        }
        random.shuffle(&mut arrivals);
        let mut other = RevTree::new();
        for (path, value) in &arrivals {
            other.merge(path, *value);
        }
        assert_eq!(other, tree, "another order makes no difference");

        if random.one_in(2) {
            let limit = random.below(4) + 1;
            let keep = model.leaves().iter().flat_map(|leaf| model.history(leaf).into_iter().take(limit)).collect();
            let gone: BTreeSet<usize> = tree.stem(limit).into_iter().collect();
            assert_eq!(gone, model.retain(&keep));
        } else {
            let leaves: Vec<Rev> = model.leaves().into_iter().collect();
            let purged = &leaves[random.below(leaves.len())];
            let others = leaves.iter().filter(|leaf| *leaf != purged);
            let keep = others.flat_map(|leaf| model.history(leaf)).collect();
            let gone: BTreeSet<usize> = tree.purge(purged).unwrap().into_iter().collect();
            assert_eq!(gone, model.retain(&keep));
        }
        model.check(&tree);
        for (path, value) in &arrivals {
            assert_eq!(tree.merge(path, *value), model.merge(path, *value), "outcome of {path:?}");
            model.check(&tree);
        }
    }
}
