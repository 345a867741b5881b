//! [`SharedSettings`]: settings shared by all processes on a store. They are one entry of the catalog, so several
//! settings change in one commit, and concurrent changes of two processes are both applied.

use std::collections::BTreeMap;

use settee_storage::codec::{Reader, put_bytes, put_varint};
use settee_storage::{Keyspace, Purpose, Shard};

use crate::catalog::Catalog;
use crate::entry::CATALOG;
use crate::{DatabaseError, Result, keys};

/// Values by section and key.
pub type SharedSettings = BTreeMap<(String, String), String>;

impl Catalog {
    /// Returns the settings in the store, or `None` if none were ever stored.
    pub fn shared_settings(&self) -> Result<Option<SharedSettings>> {
        read_shared_settings(|shard, space, key| Ok(self.engine().snapshot(shard)?.get(space, key)?))
    }

    /// Changes the settings in the store and returns them. `change` takes the current settings and returns the new
    /// ones, or `None` to keep them; it can be called several times. An empty result removes the entry.
    pub fn change_shared_settings(
        &self,
        mut change: impl FnMut(Option<&SharedSettings>) -> Option<SharedSettings>,
    ) -> Result<Option<SharedSettings>> {
        let found = self.shared_settings()?;
        if change(found.as_ref()).is_none() {
            return Ok(found);
        }
        let mut outcome = None;
        self.commit(Purpose::Growth, |snapshot, batch| {
            let found = snapshot.get(Keyspace::Catalog, keys::SETTINGS)?;
            let found = found.map(|bytes| decode(&bytes)).transpose()?;
            let changed = change(found.as_ref());
            match &changed {
                // Without an entry the next process initializes the settings.
                Some(changed) if changed.is_empty() => batch.delete(Keyspace::Catalog, keys::SETTINGS),
                Some(changed) => batch.put(Keyspace::Catalog, keys::SETTINGS, &encode(changed)),
                None => {}
            }
            outcome = changed.or(found);
            Ok(())
        })?;
        Ok(outcome)
    }

    /// Calls `listener` when another process has committed to the catalog. It must return quickly.
    pub fn on_foreign_change(&self, listener: impl Fn() + Send + Sync + 'static) {
        self.engine().subscribe(Box::new(move |shard, _| {
            if shard == CATALOG {
                listener();
            }
        }));
    }
}

/// Reads the settings with a function that reads single values. Fails if the settings are damaged.
pub fn read_shared_settings<E: From<DatabaseError>>(
    get: impl FnOnce(Shard, Keyspace, &[u8]) -> std::result::Result<Option<Vec<u8>>, E>,
) -> std::result::Result<Option<SharedSettings>, E> {
    let found = get(CATALOG, Keyspace::Catalog, keys::SETTINGS)?;
    Ok(found.map(|bytes| decode(&bytes)).transpose()?)
}

fn encode(settings: &SharedSettings) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, settings.len() as u64);
    for ((section, key), value) in settings {
        [section, key, value].into_iter().for_each(|text| put_bytes(&mut out, text.as_bytes()));
    }
    out
}

fn decode(bytes: &[u8]) -> Result<SharedSettings> {
    let mut reader = Reader::new(bytes, "shared settings");
    let count = reader.varint()?;
    let mut text = || Ok::<_, DatabaseError>(reader.text()?.to_owned());
    (0..count).map(|_| Ok(((text()?, text()?), text()?))).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use settee_storage_testing::Store;

    use super::*;

    fn settings(values: &[(&str, &str, &str)]) -> SharedSettings {
        let owned = |(section, key, value): &(&str, &str, &str)| {
            (((*section).to_owned(), (*key).to_owned()), (*value).to_owned())
        };
        values.iter().map(owned).collect()
    }

    #[test]
    fn settings_equal_the_stored_ones() {
        for values in [&[][..], &[("a", "b", "")], &[("", "\u{0}", "x".repeat(300).as_str()), ("s", "k", "\n=")]] {
            let settings = settings(values);
            assert_eq!(decode(&encode(&settings)).unwrap(), settings);
        }
        for broken in [&b""[..], b"\x01", b"\x01\x09a", b"\x01\x01\xff\x01a\x01a"] {
            assert!(decode(broken).is_err(), "{broken:?}");
        }
    }

    #[test]
    fn of_two_processes_one_begins_and_both_change() {
        let store = Store::new();
        let [one, two] = [1 << 32, 2 << 32].map(|seed| Catalog::open(store.process(), seed).unwrap());
        assert_eq!(one.shared_settings().unwrap(), None);
        let notified = Arc::new(AtomicU32::new(0));
        let hearing = Arc::clone(&notified);
        two.on_foreign_change(move || {
            hearing.fetch_add(1, Ordering::Relaxed);
        });
        let begin = |catalog: &Catalog, value| {
            let own = settings(&[("s", "k", value)]);
            catalog.change_shared_settings(|found| found.is_none().then(|| own.clone())).unwrap().unwrap()
        };
        assert_eq!(begin(&one, "first"), settings(&[("s", "k", "first")]));
        two.engine().catch_up().unwrap();
        assert!(notified.load(Ordering::Relaxed) > 0);
        assert_eq!(begin(&two, "second"), settings(&[("s", "k", "first")]));
        let put = |catalog: &Catalog, key: &str| {
            let put = |found: Option<&SharedSettings>| {
                let mut changed = found.cloned().unwrap_or_default();
                changed.insert(("s".to_owned(), key.to_owned()), "x".to_owned());
                Some(changed)
            };
            catalog.change_shared_settings(put).unwrap();
        };
        std::thread::scope(|scope| {
            for (catalog, keys) in [(&one, ["a", "b", "c"]), (&two, ["d", "e", "f"])] {
                scope.spawn(move || keys.into_iter().for_each(|key| put(catalog, key)));
            }
        });
        let expected = ["a", "b", "c", "d", "e", "f", "k"];
        let found = two.shared_settings().unwrap().unwrap();
        assert_eq!(found.keys().map(|(_, key)| key.as_str()).collect::<Vec<_>>(), expected);
        one.change_shared_settings(|_| Some(SharedSettings::new())).unwrap();
        assert_eq!(two.shared_settings().unwrap(), None);
    }
}
