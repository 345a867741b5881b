//! [`check`] verifies the invariants of a tree, [`rows`] reads it without shortcuts, for tests.

use super::{Child, INNER_BYTES, LEAF_BYTES, Root, TreeReader};
use crate::leaf::Group;
use crate::leaf::common_len;
use crate::reduce::Aggregate;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OwnedRow {
    pub(crate) row_key: Vec<u8>,
    pub(crate) sort_len: usize,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

pub(crate) fn check(
    tree: TreeReader<'_>,
    root: Option<&Root>,
    aggregates: &mut [Aggregate],
) -> (Vec<OwnedRow>, Vec<u64>) {
    let mut checker = TreeChecker { tree, aggregates, rows: Vec::new(), nodes: Vec::new() };
    if let Some(root) = root {
        checker.node(&root.node, root.height, &[], None);
    }
    assert!(checker.rows.is_sorted_by(|a, b| a.row_key < b.row_key), "rows are in order");
    (checker.rows, checker.nodes)
}

struct TreeChecker<'a> {
    tree: TreeReader<'a>,
    aggregates: &'a mut [Aggregate],
    rows: Vec<OwnedRow>,
    nodes: Vec<u64>,
}

impl TreeChecker<'_> {
    fn node(&mut self, child: &Child, height: u32, lower: &[u8], upper: Option<&[u8]>) {
        assert_eq!(child.reductions.len(), self.aggregates.len());
        if height == 0 {
            return self.leaf(child, lower, upper);
        }
        let node = self.tree.inner(child.id).expect("nodes are readable");
        self.nodes.extend(child.id..=child.id + u64::from(node.pieces));
        let children: Vec<Child> = node.children().collect();
        let size: usize = children.iter().map(Child::size_bytes).sum();
        assert!(children.len() < 40 || size <= 4 * INNER_BYTES, "{} children have {size} bytes", children.len());
        assert_eq!(child.rows, children.iter().map(|child| child.rows).sum::<u64>());
        assert_eq!(child.bytes, children.iter().map(|child| child.bytes).sum::<u64>());
        for (index, aggregate) in self.aggregates.iter_mut().enumerate() {
            let parts = children.iter().map(|child| &child.reductions[index][..]).collect();
            let reductions = aggregate.rereduce(&[parts]).expect("reducing works");
            assert_eq!(child.reductions[index], reductions[0]);
        }
        for (index, child) in children.iter().enumerate() {
            let upper = children.get(index + 1).map(|next| &next.separator[..]).or(upper);
            let lower = if index == 0 { lower } else { &child.separator };
            assert!(child.separator.as_slice() <= lower || index == 0, "separators hold");
            self.node(child, height - 1, lower, upper);
        }
    }

    fn leaf(&mut self, child: &Child, lower: &[u8], upper: Option<&[u8]>) {
        let leaf = self.tree.leaf(child.id).expect("nodes are readable");
        self.nodes.extend(child.id..=child.id + u64::from(leaf.pieces));
        assert!(!leaf.is_empty());
        let last = leaf.row(leaf.len() - 1);
        let last_bytes = last.row_key.len() + last.key.len() + last.value.len();
        assert!(leaf.len() == 1 || leaf.size_bytes() - last_bytes < 2 * LEAF_BYTES);
        assert_eq!((child.rows, child.bytes), (leaf.len() as u64, leaf.content_bytes()));
        for (index, aggregate) in self.aggregates.iter_mut().enumerate() {
            let reductions = aggregate.reduce(&[Group::whole(&leaf)]).expect("reducing works");
            assert_eq!(child.reductions[index], reductions[0]);
        }
        for row in leaf.rows() {
            assert!(lower <= row.row_key && upper.is_none_or(|upper| row.row_key < upper), "row is in its leaf");
            assert_eq!(common_len(row.row_key, row.row_key), row.row_key.len());
            self.rows.push(OwnedRow {
                row_key: row.row_key.to_vec(),
                sort_len: row.sort_len,
                key: row.key.to_vec(),
                value: row.value.to_vec(),
            });
        }
    }
}
