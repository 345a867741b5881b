//! Partitioned databases say so for ever, and count what is in a partition.

use super::{edit, memory, new, open, rev, save};
use crate::{DatabaseOptions, Layout, PartitionInfo};

#[test]
fn the_layout_is_kept() {
    let engine = memory();
    for (name, layout) in [("whole", Layout::Whole), ("parted", Layout::Partitioned)] {
        open(&engine).create(name, DatabaseOptions { created_ms: 7, instance: 9, layout, q: 1 }).unwrap();
        let database = open(&engine).database(name).unwrap();
        assert_eq!((database.layout(), database.created_ms(), database.instance()), (layout, 7, 9));
    }
}

#[test]
fn a_partition_counts_its_own_documents() {
    let database = super::database();
    for id in ["a:1", "a:2", "a:3", "ab:1", "a", "a;", "b:1", "_design/a:1"] {
        save(&database, new(id, "{\"n\":1}"));
    }
    let first = database.read().unwrap().head("a:2").unwrap().unwrap().rev;
    save(&database, edit("a:2", Some(&first), true, "{}"));
    save(&database, super::replicated("a:1", &[rev("1-x")], false, "{\"n\":12}"));
    let info = |partition: &str| database.read().unwrap().partition_info(partition).unwrap();
    // Three live or deleted winners and the leaf that lost.
    assert_eq!(info("a"), PartitionInfo { doc_count: 2, doc_del_count: 1, external_bytes: 7 + 8 + 2 + 7 });
    assert_eq!(info("ab"), PartitionInfo { doc_count: 1, doc_del_count: 0, external_bytes: 7 });
    assert_eq!(info("nobody"), PartitionInfo::default());
}
