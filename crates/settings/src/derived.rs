//! [`Derived`]: a cached value that is computed from settings and recomputed after they change.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::Settings;

pub struct Derived<T>(Mutex<Option<(u64, Arc<T>)>>);

impl<T> Default for Derived<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Derived<T> {
    pub fn current(&self, settings: &dyn Settings, read: impl FnOnce(&dyn Settings) -> T) -> Arc<T> {
        // The version is read before the values, so a concurrent change causes a recomputation at the next call.
        let version = settings.version();
        let mut known = self.0.lock();
        if let (Some((old, value)), Some(version)) = (&*known, version)
            && *old == version
        {
            return Arc::clone(value);
        }
        let value = Arc::new(read(settings));
        *known = version.map(|version| (version, Arc::clone(&value)));
        value
    }
}
