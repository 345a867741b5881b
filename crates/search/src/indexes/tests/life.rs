//! An index from its first search to its removal.

use std::sync::Weak;

use settee_storage::Shard;
use settee_storage_testing::engine;
use settee_views::{BuildStatus, Urgency, ViewError};

use super::*;
use crate::Error;
use crate::indexes::SearchError;

fn world() -> (World, Arc<Database>) {
    let world = World::over(engine());
    let database = world.create(Layout::Whole);
    (world, database)
}

#[test]
fn an_index_follows_its_database() {
    let (world, database) = world();
    let design = design("f");
    assert_eq!(world.all(&database, &design), "");
    let a = write(&database, r#"{"_id":"a","t":"one fox","n":1}"#);
    let b = write(&database, r#"{"_id":"b","t":"a cat","s":"x"}"#);
    write(&database, r#"{"_id":"none"}"#);
    write(&database, r#"{"_id":"_design/x","t":"fox"}"#);
    assert_eq!(world.all(&database, &design), "a(default=one fox,n=1) b(default=a cat,s=x)");
    let found = world.search(&database, &design, Query::term("default", "fox")).unwrap();
    assert_eq!((found.total_hits, shown(&found.hits)), (1, "a(default=one fox,n=1)".to_owned()));
    let a = write(&database, &format!(r#"{{"_id":"a","_rev":"{a}","t":"one dog"}}"#));
    assert_eq!(world.all(&database, &design), "a(default=one dog) b(default=a cat,s=x)");
    let a = write(&database, &format!(r#"{{"_id":"a","_rev":"{a}"}}"#));
    assert_eq!(world.all(&database, &design), "b(default=a cat,s=x)");
    write(&database, &format!(r#"{{"_id":"b","_rev":"{b}","_deleted":true}}"#));
    assert_eq!(world.all(&database, &design), "");
    write(&database, r#"{"_id":"b","t":"again"}"#);
    write(&database, &format!(r#"{{"_id":"a","_rev":"{a}","t":"back"}}"#));
    assert_eq!(world.all(&database, &design), "a(default=back) b(default=again)");
    let replicated = |text: &str| {
        database.update(Work::Documents(vec![update(text, EditMode::Replicated)])).unwrap();
    };
    replicated(r#"{"_id":"c","_rev":"1-a","t":"loser"}"#);
    replicated(r#"{"_id":"c","_rev":"1-b","t":"winner"}"#);
    assert!(world.all(&database, &design).ends_with("c(default=winner)"));
    let again = World::over(Arc::clone(world.catalog.engine()));
    let database = again.catalog.database("db").unwrap();
    assert_eq!(again.all(&database, &design), "a(default=back) b(default=again) c(default=winner)");
    assert_eq!(again.mapped(), 0);
    let info = again.searches.info(&database, &design, SearchKind::Nouveau, "i").unwrap();
    assert_eq!((info.docs, info.update_seq), (3, database.read().unwrap().update_seq().unwrap()));
}

#[test]
fn purges_reach_an_index() {
    let (world, database) = world();
    let design = design("f");
    let revs: Vec<Rev> =
        ["a", "b", "c", "d"].iter().map(|id| write(&database, &format!(r#"{{"_id":"{id}","n":1}}"#))).collect();
    assert_eq!(world.all(&database, &design), "a(n=1) b(n=1) c(n=1) d(n=1)");
    purge(&database, "a", &revs[0]);
    assert_eq!(world.all(&database, &design), "b(n=1) c(n=1) d(n=1)");
    purge(&database, "b", &revs[1]);
    write(&database, r#"{"_id":"b","n":2}"#);
    assert_eq!(world.all(&database, &design), "b(n=2) c(n=1) d(n=1)");
    database.update(Work::SetPurgedInfosLimit(1)).unwrap();
    purge(&database, "c", &revs[2]);
    purge(&database, "d", &revs[3]);
    database.compact(&Tasks::new(|| 0), &mut || ControlFlow::Continue(())).unwrap();
    assert_eq!(database.read().unwrap().purges_forgotten().unwrap(), 3);
    assert_eq!(world.all(&database, &design), "b(n=2)");
    assert_eq!(world.searches.info(&database, &design, SearchKind::Nouveau, "i").unwrap().purge_seq, 4);
}

#[test]
fn partitions_are_searched_apart() {
    let world = World::over(engine());
    let database = world.create(Layout::Partitioned);
    let design = design("f");
    for id in ["a:1", "a:2", "b:1"] {
        write(&database, &format!(r#"{{"_id":"{id}","n":1}}"#));
    }
    assert_eq!(world.search(&database, &design, Query::All).unwrap().total_hits, 3);
    let index = world
        .searches
        .open(&database, &design, SearchKind::Nouveau, "i", Freshness::Any, &SearchLimits::none())
        .unwrap();
    let within = |partition: &str| Request { partition: Some(partition.to_owned()), ..Request::new(Query::All) };
    assert_eq!(index.search(&within("a"), &SearchLimits::none()).unwrap().total_hits, 2);
    assert_eq!(index.search(&within("b"), &SearchLimits::none()).unwrap().total_hits, 1);
    assert_eq!(index.search(&within("c"), &SearchLimits::none()).unwrap().total_hits, 0);
}

#[test]
fn equal_definitions_share_an_index_and_unneeded_ones_go() {
    let (world, database) = world();
    for number in 0..10 {
        write(&database, &format!(r#"{{"_id":"{number}","n":{number}}}"#));
    }
    let one = design("f");
    let same =
        ddoc(r#""nouveau":{"j":{"index":"x"},"i":{"index":"f","default_analyzer":"standard","lucene_version":9}}"#);
    let other = ddoc(r#""nouveau":{"i":{"index":"f","default_analyzer":"english"}}"#);
    world.all(&database, &one);
    assert_eq!(world.mapped(), 10);
    world.all(&database, &same);
    assert_eq!(world.mapped(), 10);
    world.all(&database, &other);
    assert_eq!(world.mapped(), 20);
    let engine = Arc::clone(world.catalog.engine());
    let used = || (0..100).filter(|&shard| engine.approximate_size(Shard(shard)) > 0).count();
    let before = used();
    assert_eq!(world.searches.cleanup(&database, std::slice::from_ref(&same), 0).unwrap(), 1);
    assert_eq!(used(), before - 1);
    assert_eq!(world.views.cleanup(&database, &[], 0).unwrap(), 0);
    world.all(&database, &one);
    assert_eq!(world.mapped(), 20);
    assert_eq!(world.searches.cleanup(&database, &[], 1_000_000).unwrap(), 0);
    world.now_us.fetch_add(2_000_000, Ordering::Relaxed);
    assert_eq!(world.searches.cleanup(&database, &[], 1_000_000).unwrap(), 1);
    world.all(&database, &one);
    world.searches.release(&database);
    world.catalog.delete("db").unwrap();
    assert_eq!(used(), 1, "only the catalog itself");
}

#[test]
fn documents_that_no_index_accepts_are_reported_and_skipped() {
    let (world, database) = world();
    let design = design("f");
    let bad = write(&database, r#"{"_id":"bad","t":"x"}"#);
    let long = "x".repeat(crate::MAX_TERM_BYTES + 1);
    write(&database, r#"{"_id":"good","t":"x"}"#);
    assert_eq!(world.all(&database, &design), "bad(default=x) good(default=x)");
    write(&database, &format!(r#"{{"_id":"bad","_rev":"{bad}","t":"x","bad":true}}"#));
    write(&database, &format!(r#"{{"_id":"long","t":"x","s":"{long}"}}"#));
    write(&database, r#"{"_id":"null","n":null}"#);
    assert_eq!(world.all(&database, &design), "good(default=x)");
    let log = world.log.lock().join("\n");
    for part in ["Failure(\"bad\") bad", "Failure(\"long\")", "Failure(\"null\") the value of field n"] {
        assert!(log.contains(part), "{log}");
    }
}

#[test]
fn a_field_of_two_types_stops_its_index_only() {
    let (world, database) = world();
    let design = design("f");
    write(&database, r#"{"_id":"a","s":"x"}"#);
    world.all(&database, &design);
    let other = write(&database, r#"{"_id":"b","text_s":"y"}"#);
    let refused = || match world.search(&database, &design, Query::All) {
        Err(SearchError::Index(error @ Error::TypeConflict { .. })) => assert!(error.to_string().contains("field s")),
        other => panic!("{other:?}"),
    };
    refused();
    let mapped = world.mapped();
    refused();
    assert_eq!(world.mapped(), mapped, "what cannot succeed is not tried again");
    let index = world
        .searches
        .open(&database, &design, SearchKind::Nouveau, "i", Freshness::Any, &SearchLimits::none())
        .unwrap();
    assert_eq!(index.search(&Request::new(Query::All), &SearchLimits::none()).unwrap().total_hits, 1);
    write(&database, r#"{"_id":"c","s":"z"}"#);
    refused();
    assert!(world.mapped() > mapped);
    write(&database, &format!(r#"{{"_id":"b","_rev":"{other}","s":"y"}}"#));
    assert_eq!(world.all(&database, &design), "a(s=x) b(s=y) c(s=z)");
}

#[test]
fn invalid_definitions_are_reported() {
    let (world, database) = world();
    let design =
        ddoc(r#""nouveau":{"none":{},"bad":{"index":"f","default_analyzer":"nosuch"},"broken":{"index":"broken"}}"#);
    let check = |name: &str, expected: &str| {
        let opened = world.searches.open(
            &database,
            &design,
            SearchKind::Nouveau,
            name,
            Freshness::Current,
            &SearchLimits::none(),
        );
        assert_eq!(opened.err().unwrap().to_string(), expected);
    };
    write(&database, r#"{"_id":"a"}"#);
    check("other", "other not found.");
    check("none", "index `none` must have parameter `index`");
    check("bad", "nosuch is not a valid analyzer name");
    check("broken", "broken");
    assert!(world.searches.update(&database, &design, Urgency::Background).is_err());
    assert_eq!(world.searches.build_state(&database, &design).unwrap().status, BuildStatus::Resting);
}

#[test]
fn builds_are_paused_resumed_and_cancelled() {
    let (world, database) = world();
    let world = Arc::new(world);
    let design = Arc::new(design("f"));
    for number in 0..1500 {
        write(&database, &format!(r#"{{"_id":"{number:04}","n":{number}}}"#));
    }
    let status = || world.searches.build_state(&database, &design).unwrap().status;
    assert_eq!(status(), BuildStatus::Lagging);
    assert_eq!(world.searches.lag(&database, &design).unwrap(), Some(1500));
    let (weak, paused, of): (Weak<World>, _, _) = (Arc::downgrade(&world), Arc::clone(&database), Arc::clone(&design));
    *world.members.watcher.lock() = Some(Box::new(move || {
        let world = weak.upgrade().unwrap();
        assert_eq!(world.tasks.list().len(), 1);
        world.views.pause(&paused, &of).unwrap();
    }));
    let ended = world.search(&database, &design, Query::All).unwrap_err();
    assert!(matches!(ended, SearchError::Build(ViewError::Paused)), "{ended:?}");
    assert_eq!((status(), world.tasks.list().len()), (BuildStatus::Paused, 0));
    let done = world.mapped();
    assert!(done > 0 && done < 1500, "{done}");
    *world.members.watcher.lock() = None;
    assert!(world.search(&database, &design, Query::All).is_err());
    world.views.resume(&database, &design).unwrap();
    world.searches.note_resumed(&database, &design);
    assert_eq!(world.search(&database, &design, Query::All).unwrap().total_hits, 1500);
    assert_eq!((status(), world.mapped()), (BuildStatus::Current, 1500));
    write(&database, r#"{"_id":"new","n":1}"#);
    world.views.cancel(&database, &design).unwrap();
    world.searches.note_cancelled(&database, &design);
    assert_eq!((status(), world.searches.lag(&database, &design).unwrap()), (BuildStatus::Resting, None));
    assert_eq!(world.search(&database, &design, Query::All).unwrap().total_hits, 1501);
    write(&database, r#"{"_id":"late","n":1}"#);
    world.searches.stop();
    let ended = world.search(&database, &design, Query::All).unwrap_err();
    assert!(matches!(ended, SearchError::Build(ViewError::Stopped)), "{ended:?}");
}

#[test]
fn a_client_that_has_gone_leaves_the_build_to_the_next() {
    use crate::limits::tests::Client;

    let (world, database) = world();
    for number in 0..30 {
        write(&database, &format!(r#"{{"_id":"d{number}","t":"fox"}}"#));
    }
    let design = design("f");
    let kind = SearchKind::Nouveau;
    let now = || world.searches.open_now(&database, &design, kind, "i", Freshness::Current).unwrap();
    assert!(now().is_none());
    let client = Arc::new(Client { gone_after: 0, ..Client::new() });
    let limits = SearchLimits::of(Arc::clone(&client) as Arc<dyn crate::limits::Requester>);
    let outcome = world.searches.open(&database, &design, kind, "i", Freshness::Current, &limits);
    assert!(matches!(outcome, Err(SearchError::Index(Error::Disconnected))), "{outcome:?}");
    assert_eq!(client.checks.load(Ordering::Relaxed), 1);
    let limits = SearchLimits::none();
    let index = world.searches.open(&database, &design, kind, "i", Freshness::Current, &limits).unwrap();
    assert_eq!(index.search(&Request::new(Query::All), &limits).unwrap().total_hits, 30);
    assert!(now().is_some());
    write(&database, r#"{"_id":"more","t":"fox"}"#);
    assert!(now().is_none());
    assert!(world.searches.open_now(&database, &design, kind, "i", Freshness::Any).unwrap().is_some());
}
