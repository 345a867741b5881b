//! [`DesignCache`]: cache of values that other layers derive from the design documents of an open database. It is valid
//! until a design document changes and is dropped with the database.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Approximate limits of the cache, per database and in total. Values beyond them are derived each time.
const DATABASE_BYTES: usize = 2 << 20;
const ALL_BYTES: usize = 64 << 20;

/// Cache of derived values of one database.
pub(crate) struct DesignCache {
    made: Mutex<Made>,
    /// Size of the caches of all databases.
    total: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Made {
    /// Update sequence of the latest change of a design document on which the values are based.
    design_seq: u64,
    things: HashMap<(TypeId, Box<str>), Arc<dyn Any + Send + Sync>>,
    bytes: usize,
}

impl DesignCache {
    pub(crate) fn new(total: Arc<AtomicUsize>) -> Self {
        Self { made: Mutex::default(), total }
    }

    fn forget(&self, made: &mut Made) {
        self.total.fetch_sub(made.bytes, Ordering::Relaxed);
        *made = Made { design_seq: made.design_seq, ..Made::default() };
    }

    pub(crate) fn find<T: Any + Send + Sync>(&self, name: &str, design_seq: u64) -> Option<Arc<T>> {
        let made = self.made.lock();
        // A newer value is valid as well: its design documents were committed before it was read.
        let key = (TypeId::of::<T>(), name.into());
        let found = made.things.get(&key).filter(|_| made.design_seq >= design_seq)?;
        Arc::clone(found).downcast().ok()
    }

    pub(crate) fn keep<T: Any + Send + Sync>(&self, name: &str, design_seq: u64, thing: &Arc<T>, bytes: usize) {
        let mut made = self.made.lock();
        if design_seq > made.design_seq {
            self.forget(&mut made);
            made.design_seq = design_seq;
        }
        let fits = made.bytes + bytes <= DATABASE_BYTES && self.total.load(Ordering::Relaxed) + bytes <= ALL_BYTES;
        if design_seq == made.design_seq && fits {
            let thing: Arc<dyn Any + Send + Sync> = Arc::<T>::clone(thing);
            if made.things.insert((TypeId::of::<T>(), name.into()), thing).is_none() {
                made.bytes += bytes;
                self.total.fetch_add(bytes, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for DesignCache {
    fn drop(&mut self) {
        self.total.fetch_sub(self.made.get_mut().bytes, Ordering::Relaxed);
    }
}
