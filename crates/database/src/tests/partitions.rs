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
    let check = |partition: &str, live: u64, deleted: u64, bytes: u64| {
        let PartitionInfo { doc_count, doc_del_count, external_bytes, active_bytes } = info(partition);
        assert_eq!((doc_count, doc_del_count, external_bytes), (live, deleted, bytes), "{partition}");
        assert!(active_bytes > external_bytes, "{partition}: {active_bytes}");
    };
    // Three live or deleted winners and the leaf that lost.
    check("a", 2, 1, 7 + 8 + 2 + 7);
    check("ab", 1, 0, 7);
    assert_eq!(info("nobody"), PartitionInfo::default());
    // Each by itself.
    let before = info("ab");
    save(&database, new("b:2", "{\"n\":1}"));
    assert_eq!(info("ab"), before);
}
