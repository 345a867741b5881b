//! [`Derived`]: what somebody made of the settings, for as long as they do not change.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::Settings;

/// A value derived from the settings: derived again when they have changed.
pub struct Derived<T>(Mutex<Option<(u64, Arc<T>)>>);

impl<T> Default for Derived<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Derived<T> {
    /// The value that `read` derives from the settings as they are.
    pub fn current(&self, settings: &dyn Settings, read: impl FnOnce(&dyn Settings) -> T) -> Arc<T> {
        // Taken before the values: who changes them meanwhile is seen the next time.
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
