//! The requirements for every [`Language`]. Crates that implement a language call [`run_all`] in their tests.
//! A [`Subject`] contains the functions of the suite in its language; [`Ways`] declares the permitted differences.

mod design;
mod failures;
mod index;
mod map;
mod reduce;
mod subject;
mod values;

pub use design::{filters_answer_for_each_document, lists_take_rows, other_functions_are_called};
pub use failures::{
    exceptions_cost_their_document_only, functions_that_hang_are_ended, rows_and_bytes_are_limited,
    rows_are_handed_on_in_parts, sources_that_do_not_compile_are_refused,
};
pub use index::{documents_that_fail_have_no_fields, functions_index_fields};
pub use map::{
    batches_may_be_empty, libraries_can_be_required, logs_come_with_the_rows, programs_do_not_disturb_each_other,
    programs_work_at_the_same_time, rows_come_in_order,
};
pub use reduce::{groups_are_reduced, many_groups_are_reduced, reductions_that_fail, reductions_that_hang_are_ended};
pub use subject::{
    IndexFunctions, LibraryFunctions, MapExceptions, MapFunctions, Numbers, ReduceExceptions, ReduceFunctions, Subject,
    Ways,
};
pub use values::{random_values_survive, values_survive};

type Property = fn(&Subject<'_>);

const PROPERTIES: &[(&str, Property)] = &[
    ("rows come in order", rows_come_in_order),
    ("batches may be empty", batches_may_be_empty),
    ("values survive", values_survive),
    ("random values survive", random_values_survive),
    ("logs come with the rows", logs_come_with_the_rows),
    ("libraries can be required", libraries_can_be_required),
    ("programs do not disturb each other", programs_do_not_disturb_each_other),
    ("programs work at the same time", programs_work_at_the_same_time),
    ("sources that do not compile are refused", sources_that_do_not_compile_are_refused),
    ("exceptions cost their document only", exceptions_cost_their_document_only),
    ("rows and bytes are limited", rows_and_bytes_are_limited),
    ("rows are handed on in parts", rows_are_handed_on_in_parts),
    ("functions index fields", functions_index_fields),
    ("documents that fail have no fields", documents_that_fail_have_no_fields),
    ("functions that hang are ended", functions_that_hang_are_ended),
    ("groups are reduced", groups_are_reduced),
    ("many groups are reduced", many_groups_are_reduced),
    ("reductions that fail", reductions_that_fail),
    ("reductions that hang are ended", reductions_that_hang_are_ended),
    ("other functions are called", other_functions_are_called),
    ("filters answer for each document", filters_answer_for_each_document),
    ("lists take rows", lists_take_rows),
];

/// Tests every property and prints their names. Panics if a property is violated.
pub fn run_all(subject: &Subject<'_>) {
    for (name, property) in PROPERTIES {
        println!("conformance of {}: {name}", subject.language.name());
        property(subject);
    }
}
