//! After a crash an index has the state of one of its commits, and no other files are stored.

use settee_model::testing::Random;
use settee_storage::StorageError;
use settee_storage::faulty::{FaultyEngine, WriteFault};
use settee_storage_testing::engine;

use super::*;

fn documents(step: u64) -> Vec<(String, Vec<Field>)> {
    let of = |number: u64| {
        let fields =
            vec![text("default", &format!("word{step} all")), double(&format!("n{}", step / 2), number as f64)];
        (format!("d{number}"), fields)
    };
    (0..12).map(|number| of(number + step * 3)).collect()
}

fn write_step(writer: &mut Writer, step: u64) -> Result<()> {
    for (id, fields) in documents(step) {
        writer.update(&id, None, fields)?;
    }
    writer.delete(&format!("d{step}"))?;
    writer.commit(&step.to_be_bytes())
}

fn expected(steps: u64) -> String {
    let index = new_index(definition("standard", &[]));
    let mut writer = index.writer(0).unwrap().unwrap();
    (0..steps).for_each(|step| write_step(&mut writer, step).unwrap());
    state(&index)
}

fn state(index: &Index) -> String {
    let mut all = Request { limit: 1_000, ..request(index, "*:*", "_id").unwrap() };
    all.counts = Vec::new();
    let found = ids(&index.search(&all, &SearchLimits::none()).unwrap());
    let words: Vec<_> = (0..12).map(|step| find(index, &format!("word{step}"))).collect();
    format!("{found} / {}", words.join(" / "))
}

#[test]
fn every_crash_leaves_the_index_of_a_commit() {
    const STEPS: u64 = 5;
    let states: Vec<String> = (0..=STEPS).map(expected).collect();
    let engine = Arc::new(FaultyEngine::new());
    let index = index_on(Arc::clone(&engine) as Arc<dyn Engine>, definition("standard", &[]));
    let mut writer = index.writer(0).unwrap().unwrap();
    for step in 0..STEPS {
        write_step(&mut writer, step).unwrap();
    }
    while writer.merge().unwrap() {}
    assert_eq!(state(&index), states[STEPS as usize]);
    let mut seen = std::collections::BTreeSet::new();
    for (number, image) in engine.crash_images().enumerate() {
        let index = index_on(Arc::new(image), definition("standard", &[]));
        let position = index.position().unwrap();
        let steps = position.map_or(0, |position| u64::from_be_bytes(position.try_into().unwrap()) + 1);
        seen.insert(steps);
        assert_eq!(state(&index), states[steps as usize], "{steps}");
        verified(&index).unwrap();
        index.release();
        let Some(mut writer) = index.writer(0).unwrap() else {
            assert_eq!(steps, 0);
            continue;
        };
        let used: Vec<u64> = writer.record.files().map(|file| file.number).collect();
        assert!(index.inner.file_store.stored_files().iter().all(|number| used.contains(number)));
        if number % 9 != 0 {
            continue;
        }
        (steps..STEPS).for_each(|step| write_step(&mut writer, step).unwrap());
        assert_eq!(state(&index), states[STEPS as usize]);
    }
    assert_eq!(seen, (0..=STEPS).collect());
}

#[test]
fn failed_writes_leave_the_last_commit() {
    let mut random = Random::new();
    for nth in random.sample(1..40, 8) {
        let engine = Arc::new(FaultyEngine::new());
        let index = index_on(Arc::clone(&engine) as Arc<dyn Engine>, definition("standard", &[]));
        let mut writer = index.writer(0).unwrap().unwrap();
        write_step(&mut writer, 0).unwrap();
        let error = StorageError::Full("no room".to_owned());
        engine.inject_write(nth, WriteFault::Fail(error));
        let outcome = write_step(&mut writer, 1);
        if let Err(error) = &outcome {
            assert!(matches!(error, Error::Storage(StorageError::Full(_))), "{error:?}");
        }
        drop(writer);
        let steps = u64::from_be_bytes(index.position().unwrap().unwrap().try_into().unwrap()) + 1;
        assert!(steps == 2 || outcome.is_err());
        assert_eq!(state(&index), expected(steps), "{nth}");
        let mut writer = index.writer(0).unwrap().unwrap();
        (steps..3).for_each(|step| write_step(&mut writer, step).unwrap());
        assert_eq!(state(&index), expected(3), "{nth}");
    }
}

#[test]
fn two_writers_are_distinguished() {
    let engine: Arc<dyn Engine> = engine();
    let [index, other] = [(); 2].map(|()| index_on(Arc::clone(&engine), definition("standard", &[])));
    let mut first = index.writer(0).unwrap().unwrap();
    let mut second = other.writer(0).unwrap().unwrap();
    first.update("x", None, vec![text("default", "x")]).unwrap();
    assert!(!other.is_overtaken().unwrap());
    first.commit(b"1").unwrap();
    assert!(other.is_overtaken().unwrap() && !index.is_overtaken().unwrap());
    let _ = second.update("y", None, vec![text("default", "y")]);
    assert!(matches!(second.commit(b"2"), Err(Error::Contended)));
    assert_eq!((find(&index, "*:*").as_str(), find(&other, "*:*").as_str()), ("x", "x"));
}

#[test]
fn dropped_and_foreign_shards_are_not_written() {
    let engine = engine();
    let index = index_on(Arc::clone(&engine) as Arc<dyn Engine>, definition("standard", &[]));
    write(&index, &[("a", vec![text("default", "x")])]);
    engine.drop_shard(SHARD).unwrap();
    assert!(index.writer(0).unwrap().is_none());
    assert!(matches!(index.position(), Err(Error::Storage(StorageError::Dropped))));
}
