//! Pause, resumption and cancellation of builds, their reported state, and the removal of unused indexes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use settee_storage_testing::engine;

use super::host::TestHost;
use super::random::{VIEWS, change, compare};
use super::{Rows, ask, counted_core, ddoc, settings};
use crate::clock::Clock;
use crate::control::BuildStatus;
use crate::error::ViewError;
use crate::pace::Urgency;
use crate::query::{Update, ViewQuery};
use crate::shared::Core;
use crate::testing::CountedRules;
use settee_model::testing::Random;

fn host(documents: u64) -> Arc<TestHost> {
    let host = TestHost::new(engine());
    change(&host, &mut Random::of(9), documents, documents);
    Arc::new(host)
}

fn command_at(core: &Arc<Core>, host: &Arc<TestHost>, language: &CountedRules, at: u64, command: fn(&Core, &TestHost)) {
    let (core, host) = (Arc::clone(core), Arc::clone(host));
    *language.watcher.lock() = Some(Box::new(move |mapped| {
        if mapped >= at {
            command(&core, &host);
        }
        Ok(())
    }));
}

fn ended_by(
    host: &Arc<TestHost>,
    urgency: Urgency,
    command: fn(&Core, &TestHost),
) -> (Arc<Core>, CountedRules, ViewError) {
    let (core, language) = counted_core(settings(2, 1 << 20));
    let core = Arc::new(core);
    command_at(&core, host, &language, 600, command);
    let error = core.update(&**host, &ddoc(VIEWS), urgency).unwrap_err();
    *language.watcher.lock() = None;
    (core, language, error)
}

fn status(core: &Core, host: &TestHost) -> BuildStatus {
    core.build_state(host, &ddoc(VIEWS)).unwrap().status
}

#[test]
fn a_paused_build_goes_on_where_it_was() {
    let host = host(2_000);
    let pause = |core: &Core, host: &TestHost| core.pause(host, &ddoc(VIEWS)).unwrap();
    let (core, _, error) = ended_by(&host, Urgency::Background, pause);
    assert!(matches!(error, ViewError::Paused));
    let state = core.build_state(&*host, &ddoc(VIEWS)).unwrap();
    assert_eq!((state.status, state.update_seq, state.waiting_clients), (BuildStatus::Paused, 0, 0));
    assert!(state.checkpoint_seq.unwrap() > 0 && state.updates_pending > 1_000);
    let mut rows = Rows::default();
    assert!(matches!(
        core.query((&*host, None), &ddoc(VIEWS), "plain", &ViewQuery::default(), &mut rows),
        Err(ViewError::Paused)
    ));
    let stale = ViewQuery { update: Update::False, ..ViewQuery::default() };
    assert!(ask(&core, &host, &ddoc(VIEWS), "plain", &stale).unwrap().map.is_empty());
    let directory = core.settings().run_directory.clone();
    let (core, language) = counted_core(super::Settings { run_directory: directory, ..settings(2, 1 << 20) });
    assert_eq!(status(&core, &host), BuildStatus::Paused);
    assert_eq!(core.lag(&*host, &ddoc(VIEWS)).unwrap(), None);
    core.resume(&*host, &ddoc(VIEWS)).unwrap();
    assert_eq!(status(&core, &host), BuildStatus::Lagging);
    core.update(&*host, &ddoc(VIEWS), Urgency::Background).unwrap();
    assert_eq!(status(&core, &host), BuildStatus::Current);
    let there = host.documents.lock().by_id.len() as u64;
    assert!(language.mapped.load(Ordering::Relaxed) <= there - 600, "what was done is not done again");
    compare(&core, &host, &ddoc(VIEWS), &mut Random::of(1), 10);
}

#[test]
fn a_cancelled_build_is_dropped_until_a_client_requests_it() {
    let host = host(2_000);
    let cancel = |core: &Core, host: &TestHost| core.cancel(host, &ddoc(VIEWS)).unwrap();
    let (core, language, error) = ended_by(&host, Urgency::Background, cancel);
    assert!(matches!(error, ViewError::Cancelled));
    let state = core.build_state(&*host, &ddoc(VIEWS)).unwrap();
    assert_eq!((state.status, state.checkpoint_seq), (BuildStatus::Resting, None));
    assert_eq!(core.lag(&*host, &ddoc(VIEWS)).unwrap(), None);
    let other = ddoc(r#""v": {"map": "value k v"}"#);
    assert!(core.lag(&*host, &other).unwrap().is_some(), "another definition");
    compare(&core, &host, &ddoc(VIEWS), &mut Random::of(1), 20);
    assert_eq!(status(&core, &host), BuildStatus::Current);
    host.put("more", None);
    assert_eq!(status(&core, &host), BuildStatus::Lagging, "the background sees to it again");
    core.update(&*host, &ddoc(VIEWS), Urgency::Background).unwrap();
    change(&host, &mut Random::of(2), 4_000, 5_000);
    command_at(&core, &host, &language, 2_200, |core, host| core.pause(host, &ddoc(VIEWS)).unwrap());
    core.update(&*host, &ddoc(VIEWS), Urgency::Background).unwrap_err();
    assert!(core.build_state(&*host, &ddoc(VIEWS)).unwrap().checkpoint_seq.is_some());
    core.cancel(&*host, &ddoc(VIEWS)).unwrap();
    assert!(core.build_state(&*host, &ddoc(VIEWS)).unwrap().checkpoint_seq.is_none());
    *language.watcher.lock() = None;
    core.resume(&*host, &ddoc(VIEWS)).unwrap();
    compare(&core, &host, &ddoc(VIEWS), &mut Random::of(1), 10);
}

#[test]
fn an_orderly_end_keeps_the_progress() {
    let host = host(2_000);
    let stop = |core: &Core, _: &TestHost| core.is_stopping.store(true, Ordering::Relaxed);
    let (core, _, error) = ended_by(&host, Urgency::Client, stop);
    assert!(matches!(error, ViewError::Stopped));
    let directory = core.settings().run_directory.clone();
    let (core, language) = counted_core(super::Settings { run_directory: directory, ..settings(2, 1 << 20) });
    compare(&core, &host, &ddoc(VIEWS), &mut Random::of(1), 10);
    let there = host.documents.lock().by_id.len() as u64;
    assert!(language.mapped.load(Ordering::Relaxed) <= there - 600);
}

#[test]
fn several_views_that_lag_share_one_pass() {
    let host = host(1_000);
    let (core, language) = counted_core(settings(1, 1 << 20));
    let mapped = |ddoc: &settee_design::DesignDocument| {
        let before = language.mapped.load(Ordering::Relaxed);
        core.update(&*host, ddoc, Urgency::Client).unwrap();
        language.mapped.load(Ordering::Relaxed) - before
    };
    let live = |host: &TestHost| {
        let documents = host.documents.lock();
        documents.by_id.iter().filter(|(id, document)| document.json.is_some() && !id.starts_with('_')).count() as u64
    };
    assert_eq!(mapped(&ddoc(VIEWS)), live(&host), "four indexes, each document once");
    change(&host, &mut Random::of(2), 20, 1_000);
    mapped(&ddoc(r#""v": {"map": "each list"}"#));
    change(&host, &mut Random::of(3), 400, 1_000);
    assert!(mapped(&ddoc(VIEWS)) <= 420);
    let more = format!(r#"{VIEWS}, "new": {{"map": "value v k"}}"#);
    assert_eq!(mapped(&ddoc(&more)), live(&host));
    compare(&core, &host, &ddoc(VIEWS), &mut Random::of(1), 20);
}

#[test]
fn a_changed_reduce_function_reduces_again_without_mapping() {
    let host = host(1_000);
    let (core, language) = counted_core(settings(1, 1 << 20));
    for reduce in ["_count", "_sum", "_stats", "count"] {
        let ddoc = ddoc(&format!(r#""v": {{"map": "value k v", "reduce": "{reduce}"}}"#));
        core.update(&*host, &ddoc, Urgency::Client).unwrap();
        if reduce == "_count" {
            language.mapped.store(0, Ordering::Relaxed);
        }
    }
    assert_eq!(language.mapped.load(Ordering::Relaxed), 0);
}

#[test]
fn forgotten_indexes_go_after_a_while() {
    let host = host(100);
    let now = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&now);
    let clock = Clock::new(move || clock.load(Ordering::Relaxed));
    let (core, _) = counted_core(super::Settings { clock, ..settings(1, 1 << 20) });
    let (one, two) = (ddoc(r#""v": {"map": "value k v"}"#), ddoc(r#""v": {"map": "each list"}"#));
    core.update(&*host, &one, Urgency::Client).unwrap();
    core.update(&*host, &two, Urgency::Client).unwrap();
    let collect = |at_us: u64, ddocs: &[&settee_design::DesignDocument]| {
        now.store(at_us, Ordering::Relaxed);
        let ddocs: Vec<_> = ddocs.iter().map(|ddoc| (*ddoc).clone()).collect();
        core.collect(&*host, &ddocs, 1_000).unwrap()
    };
    assert_eq!(collect(5_000, &[&one, &two]), 0);
    assert_eq!(collect(6_000, &[&one]), 0);
    assert_eq!(collect(6_500, &[&one, &two]), 0);
    assert_eq!(collect(7_000, &[&one]), 0);
    assert_eq!(collect(7_999, &[&one]), 0);
    core.update(&*host, &two, Urgency::Client).unwrap();
    assert_eq!(collect(8_900, &[&one]), 0);
    assert_eq!(collect(8_999, &[&one]), 1);
    assert_eq!(host.index_count(), 1);
}

#[test]
fn runs_of_indexes_that_are_gone_are_swept_away() {
    let host = host(2_000);
    let pause = |core: &Core, host: &TestHost| core.pause(host, &ddoc(VIEWS)).unwrap();
    let (core, _, _) = ended_by(&host, Urgency::Background, pause);
    let directories = || crate::indexer::runs::directories(&core.settings().run_directory).unwrap();
    assert_eq!(directories().len(), 4);
    assert!(directories().iter().all(|(_, owner)| owner.as_deref() == Some("db")));
    let one = directories()[0].0;
    assert_eq!(core.sweep(|shard| shard != one).unwrap(), 1);
    assert_eq!(core.collect(&*host, &[], 0).unwrap(), 4);
    assert!(directories().is_empty());
}
