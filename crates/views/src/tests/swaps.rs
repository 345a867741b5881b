//! `"swap":"online"`: the former view serves queries until the new one is ready.

use settee_design::{DesignDocument, RunError, Swap};
use settee_storage_testing::engine;

use super::host::TestHost;
use super::random::change;
use super::{Rows, counted_core, ddoc, model, settings};
use crate::pace::Urgency;
use crate::query::{Update, ViewQuery};
use crate::shared::Core;
use crate::views::Answer;
use settee_model::testing::Random;

fn online(views: &str) -> DesignDocument {
    DesignDocument { swap: Swap::Online, ..ddoc(views) }
}

fn host() -> TestHost {
    let host = TestHost::new(engine());
    change(&host, &mut Random::of(5), 300, 200);
    host
}

/// The result must equal that of `shown`, and be reported if that is another definition.
#[track_caller]
fn check(core: &Core, host: &TestHost, asked: &DesignDocument, view: &str, shown: &DesignDocument) -> bool {
    let query = ViewQuery::default();
    let mut rows = Rows::default();
    let answer = core.query(host, asked, view, &query, &mut rows).unwrap();
    let expected = model::answer(&host.documents.lock().clone(), shown, view, &query);
    let is_other = asked.view(view) != shown.view(view);
    assert_eq!(rows.stale.take().is_some(), is_other);
    assert_eq!(rows, expected);
    answer == Answer::UpdateWanted
}

#[test]
fn the_view_of_before_answers_until_the_new_one_is_built() {
    let host = host();
    let (core, _) = counted_core(settings(1, 1 << 20));
    let old = online(r#""v": {"map": "value k v", "reduce": "_count"}, "w": {"map": "each list"}"#);
    check(&core, &host, &old, "v", &old);
    check(&core, &host, &old, "w", &old);
    let new = online(r#""v": {"map": "value v k", "reduce": "_count"}, "w": {"map": "each list"}"#);
    assert!(check(&core, &host, &new, "v", &old));
    change(&host, &mut Random::of(6), 100, 200);
    assert_eq!(core.collect(&host, std::slice::from_ref(&new), 0).unwrap(), 0);
    assert!(check(&core, &host, &new, "v", &old));
    assert!(!check(&core, &host, &new, "w", &new));
    core.update(&host, &new, Urgency::Background).unwrap();
    assert!(!check(&core, &host, &new, "v", &new));
    assert_eq!(core.collect(&host, std::slice::from_ref(&new), 0).unwrap(), 1);
}

#[test]
fn the_swap_outlives_the_process() {
    let host = host();
    let old = online(r#""v": {"map": "value k v"}"#);
    let new = online(r#""v": {"map": "each list"}"#);
    check(&counted_core(settings(1, 1 << 20)).0, &host, &old, "v", &old);
    for _ in 0..2 {
        assert!(check(&counted_core(settings(1, 1 << 20)).0, &host, &new, "v", &old));
    }
    counted_core(settings(1, 1 << 20)).0.update(&host, &new, Urgency::Background).unwrap();
    check(&counted_core(settings(1, 1 << 20)).0, &host, &new, "v", &new);
}

#[test]
fn two_edits_in_a_row_show_the_last_built_rows() {
    let host = host();
    let (core, language) = counted_core(settings(1, 1 << 20));
    let [first, second, third] =
        ["value k v", "value v k", "each list"].map(|map| online(&format!(r#""v": {{"map": "{map}"}}"#)));
    check(&core, &host, &first, "v", &first);
    check(&core, &host, &second, "v", &first);
    assert!(check(&core, &host, &third, "v", &first));
    assert!(!check(&core, &host, &first, "v", &first));
    let mapped = language.mapped.load(std::sync::atomic::Ordering::Relaxed);
    core.update(&host, &third, Urgency::Background).unwrap();
    assert!(language.mapped.load(std::sync::atomic::Ordering::Relaxed) > mapped);
    check(&core, &host, &third, "v", &third);
    check(&core, &host, &second, "v", &third);
}

#[test]
fn new_removed_or_renamed_views_have_no_previous_rows() {
    let host = host();
    let (core, _) = counted_core(settings(1, 1 << 20));
    let old = online(r#""v": {"map": "value k v"}, "w": {"map": "value v k"}"#);
    core.update(&host, &old, Urgency::Client).unwrap();
    let new = online(r#""renamed": {"map": "value k v"}, "new": {"map": "each list"}"#);
    check(&core, &host, &new, "renamed", &new);
    check(&core, &host, &new, "new", &new);
    let missing = core.query(&host, &new, "v", &ViewQuery::default(), &mut Rows::default());
    assert!(matches!(missing, Err(crate::ViewError::MissingView)));
    core.update(&host, &new, Urgency::Client).unwrap();
    assert_eq!(core.collect(&host, std::slice::from_ref(&new), 0).unwrap(), 1, "the index of w");
    // A view that returns after its old index was removed is new.
    let back = online(r#""w": {"map": "none"}"#);
    check(&core, &host, &back, "w", &back);
}

#[test]
fn a_changed_reduce_function_is_swapped_as_well_without_mapping() {
    let host = host();
    let (core, language) = counted_core(settings(1, 1 << 20));
    let old = online(r#""v": {"map": "value k v", "reduce": "_count"}"#);
    let new = online(r#""v": {"map": "value k v", "reduce": "_stats"}"#);
    check(&core, &host, &old, "v", &old);
    let mapped = language.mapped.load(std::sync::atomic::Ordering::Relaxed);
    assert!(check(&core, &host, &new, "v", &old));
    core.update(&host, &new, Urgency::Background).unwrap();
    check(&core, &host, &new, "v", &new);
    assert_eq!(language.mapped.load(std::sync::atomic::Ordering::Relaxed), mapped);
}

#[test]
fn deferred_builds_wait_and_keep_their_state() {
    let host = host();
    let (core, _) = counted_core(settings(1, 1 << 20));
    let old = ddoc(r#""v": {"map": "value k v"}"#);
    check(&core, &host, &old, "v", &old);
    let new = ddoc(r#""v": {"map": "value v k"}"#);
    check(&core, &host, &new, "v", &new);
    let newer = online(r#""v": {"map": "each list"}"#);
    check(&core, &host, &newer, "v", &new);
}

#[test]
fn a_new_view_that_fails_leaves_the_old_one_and_is_not_tried_all_the_time() {
    let host = host();
    let (core, language) = counted_core(settings(1, 1 << 20));
    let old = online(r#""v": {"map": "value k v"}"#);
    let new = online(r#""v": {"map": "value v k"}"#);
    check(&core, &host, &old, "v", &old);
    *language.watcher.lock() =
        Some(Box::new(|_| Err(RunError::Fatal { name: "timeout".to_owned(), reason: "test".to_owned() })));
    assert!(check(&core, &host, &new, "v", &old));
    core.update(&host, &new, Urgency::Background).unwrap_err();
    assert!(!check(&core, &host, &new, "v", &old));
    let lazy = ViewQuery { update: Update::Lazy, ..ViewQuery::default() };
    assert_eq!(core.query(&host, &new, "v", &lazy, &mut Rows::default()).unwrap(), Answer::Complete);
}
