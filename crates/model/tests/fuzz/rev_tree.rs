//! Any sequence of merges gives a valid tree, with leaves independent of their order unless a revision has two parents.

use std::collections::{BTreeMap, BTreeSet};

use settee_model::rev_tree::{Node, RevTree};
use settee_model::{Rev, RevHash};

pub(crate) fn check(data: &[u8]) {
    let paths: Vec<(Vec<Rev>, bool)> = data.chunks(6).filter_map(path).collect();
    let mut tree = RevTree::new();
    for (path, deleted) in &paths {
        tree.merge(path, *deleted);
        check_tree(&tree);
    }
    let mut reversed = RevTree::new();
    for (path, deleted) in paths.iter().rev() {
        reversed.merge(path, *deleted);
    }
    check_tree(&reversed);
    if is_possible(&paths) {
        assert_eq!(leaves(&reversed), leaves(&tree), "the order of merges does not count");
    }
    for limit in [7, 3, 1] {
        tree.stem(limit);
        check_tree(&tree);
    }
    while let Some(rev) = leaves(&tree).pop_first() {
        assert!(tree.remove_leaf(&rev).is_some(), "a leaf can be removed");
        check_tree(&tree);
    }
    assert!(tree.is_empty());
}

/// Returns a path of consecutive generations from six bytes. Few distinct hashes make paths overlap.
fn path(bytes: &[u8]) -> Option<(Vec<Rev>, bool)> {
    let [start, len, hashes @ ..] = bytes else { return None };
    let start = u64::from(start % 8) + 1;
    let revs = hashes.iter().cycle().take(usize::from(len % 5) + 1).zip((1..=start).rev());
    let revs: Vec<Rev> =
        revs.map(|(hash, generation)| Rev::new(generation, RevHash::from_bytes(&[hash % 4]))).collect();
    (!revs.is_empty() && !hashes.is_empty()).then_some((revs, len & 0x80 != 0))
}

/// Hashes of histories guarantee that all paths agree on the parent of a revision.
fn is_possible(paths: &[(Vec<Rev>, bool)]) -> bool {
    let mut parents: BTreeMap<&Rev, &Rev> = BTreeMap::new();
    let mut pairs = paths.iter().flat_map(|(path, _)| path.windows(2));
    pairs.all(|pair| *parents.entry(&pair[0]).or_insert(&pair[1]) == &pair[1])
}

fn leaves(tree: &RevTree<bool>) -> BTreeSet<Rev> {
    tree.leaves().map(|leaf| tree.node(leaf).rev.clone()).collect()
}

fn check_tree(tree: &RevTree<bool>) {
    let nodes = tree.nodes().iter();
    let copy: Vec<Node<bool>> =
        nodes.map(|node| Node { rev: node.rev.clone(), parent: node.parent, value: node.value }).collect();
    let copy = RevTree::from_nodes(copy).expect("a tree survives being taken apart");
    let winner = |tree: &RevTree<bool>| tree.winner(|deleted| *deleted).map(|node| tree.node(node).rev.clone());
    assert_eq!(winner(tree), winner(&copy));
    let ranked = tree.leaves_by_rank(|deleted| *deleted);
    assert_eq!(ranked.len(), tree.leaf_count());
    for leaf in tree.leaves() {
        assert!(tree.is_leaf(leaf));
        let generations: Vec<u64> = tree.history(leaf).map(|node| tree.node(node).rev.generation).collect();
        assert!(generations.windows(2).all(|pair| pair[0] == pair[1] + 1), "generations are consecutive");
    }
}
