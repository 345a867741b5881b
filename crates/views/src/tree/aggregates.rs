//! [`rebuild`] builds inner nodes with other reduce functions over the same leaves.

use super::load::{transpose, write_inner_nodes};
use super::write::NodeWriter;
use super::{Child, Root, TreeReader, leaves_in_memory};
use crate::error::Result;
use crate::leaf::Group;
use crate::reduce::Aggregate;

#[derive(Debug)]
pub(crate) struct Rebuilt {
    pub(crate) root: Root,
    pub(crate) obsolete: Vec<u64>,
}

/// Builds a tree with `aggregates` over the leaves of `root`. Reductions at the positions `known` are reused.
pub(crate) fn rebuild(
    tree: TreeReader<'_>,
    root: &Root,
    aggregates: &mut [Aggregate],
    known: &[Option<usize>],
    nodes: &mut NodeWriter<'_>,
) -> Result<Rebuilt> {
    let mut rebuilding = Rebuilding { tree, aggregates, known, nodes, obsolete: Vec::new() };
    let node = match root.height {
        0 => rebuilding.leaves(vec![root.node.clone()])?.pop().expect("one leaf in, one out"),
        height => rebuilding.inner(root.node.id, height)?,
    };
    Ok(Rebuilt {
        root: Root { height: root.height, node: Child { separator: Vec::new(), ..node } },
        obsolete: rebuilding.obsolete,
    })
}

struct Rebuilding<'a, 'w> {
    tree: TreeReader<'a>,
    aggregates: &'a mut [Aggregate],
    known: &'a [Option<usize>],
    nodes: &'a mut NodeWriter<'w>,
    obsolete: Vec<u64>,
}

impl Rebuilding<'_, '_> {
    fn inner(&mut self, id: u64, height: u32) -> Result<Child> {
        let node = self.tree.inner(id)?;
        self.obsolete.extend(id..=id + u64::from(node.pieces));
        let mut children: Vec<Child> = node.children().collect();
        drop(node);
        if height == 1 {
            children = self.leaves(children)?;
        } else {
            for child in &mut children {
                let separator = std::mem::take(&mut child.separator);
                *child = Child { separator, ..self.inner(child.id, height - 1)? };
            }
        }
        let written = write_inner_nodes(self.nodes, self.aggregates, vec![children])?.pop();
        Ok(written.expect("one node in, one out"))
    }

    fn leaves(&mut self, mut children: Vec<Child>) -> Result<Vec<Child>> {
        let mut done = Vec::with_capacity(children.len());
        while !children.is_empty() {
            let later = children.split_off(leaves_in_memory(children.iter()));
            done.append(&mut self.reduce_leaves(std::mem::replace(&mut children, later))?);
        }
        Ok(done)
    }

    fn reduce_leaves(&mut self, mut children: Vec<Child>) -> Result<Vec<Child>> {
        let mut leaves = Vec::new();
        if self.known.contains(&None) {
            leaves = self.tree.leaves(&children.iter().map(|child| child.id).collect::<Vec<_>>())?;
        }
        let groups: Vec<Group<'_>> = leaves.iter().map(Group::whole).collect();
        let mut known = self.known.iter();
        let reductions = transpose(self.aggregates, children.len(), |aggregate| match known.next() {
            Some(Some(before)) => Ok(children.iter().map(|child| child.reductions[*before].clone()).collect()),
            _ => aggregate.reduce(&groups),
        })?;
        for (child, reductions) in children.iter_mut().zip(reductions) {
            child.reductions = reductions;
        }
        Ok(children)
    }
}
