//! [`verify_index`] checks that the trees of a stored index are readable and consistent, except for reductions.

use settee_storage::{Engine, Shard};

use crate::error::{Result, ViewError};
use crate::index::Record;
use crate::tree::{Child, NodeCache, TreeReader};

/// Reads all nodes of the index in `shard`, and returns the number of its rows.
pub fn verify_index(engine: &dyn Engine, shard: Shard) -> Result<u64> {
    let snapshot = engine.snapshot(shard)?;
    let Some(meta) = Record::read(snapshot.as_ref())?.meta else { return Ok(0) };
    let cache = NodeCache::default();
    let tree = TreeReader { snapshot: snapshot.as_ref(), shard, cache: &cache };
    for root in [&meta.rows, &meta.entries].into_iter().flatten() {
        node(tree, &root.node, root.height)?;
    }
    Ok(meta.total_rows())
}

fn node(tree: TreeReader<'_>, known: &Child, height: u32) -> Result<()> {
    let (rows, bytes) = if height == 0 {
        let leaf = tree.own_leaf(known.id)?;
        if !leaf.rows().map(|row| row.row_key.to_vec()).is_sorted_by(|a, b| a < b) {
            return Err(ViewError::Corrupt("order of rows"));
        }
        (leaf.len() as u64, leaf.content_bytes())
    } else {
        let inner = tree.inner(known.id)?;
        let (mut rows, mut bytes) = (0, 0);
        for child in inner.children() {
            node(tree, &child, height - 1)?;
            rows += child.rows;
            bytes += child.bytes;
        }
        (rows, bytes)
    };
    if (rows, bytes) == (known.rows, known.bytes) { Ok(()) } else { Err(ViewError::Corrupt("number of rows")) }
}
