//! Tests of the compaction threshold.

use super::*;

#[test]
fn a_compaction_is_due_at_a_minimum_size_and_ratio_of_garbage() {
    let threshold = Threshold { ratio: 2.0, bytes: 1000 };
    let check = |total_bytes, bytes, purges, due| {
        let garbage = Garbage { total_bytes, bytes, purges };
        assert_eq!(threshold.is_reached(garbage), due, "{garbage:?}");
    };
    check(0, 0, 0, false);
    check(2000, 1000, 0, true);
    check(1999, 999, 0, false);
    check(10_000, 4000, 0, false);
    check(999, 999, 0, false);
    check(1000, 1000, 0, true);
    check(0, 0, PURGES_MAX - 1, false);
    check(0, 0, PURGES_MAX, true);
    assert!(!Threshold { ratio: 0.0, bytes: 0 }.is_reached(Garbage::default()));
}
