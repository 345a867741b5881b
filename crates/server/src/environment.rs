//! The outside world that the other crates do not see: clock, random numbers, environment variables.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::config::AdminSeed;

/// The time in microseconds of the Unix epoch.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// The time in milliseconds of the Unix epoch.
pub(crate) fn now_ms() -> u64 {
    now_us() / 1000
}

/// Fills `bytes` with random ones fit for secrets.
///
/// # Panics
/// When the system has no random numbers: nothing safe can be done then.
pub(crate) fn random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the system gives random numbers");
}

/// A random number.
pub(crate) fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    random(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// How much the calling thread gives way: with it, a busy server leaves about a tenth of a processor to it.
const NICENESS: i32 = 10;

/// Lets other threads go before the calling one. Where that is not possible it is no harm.
pub(crate) fn give_way() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICENESS);
}

/// The admin that `COUCHDB_USER` and `COUCHDB_PASSWORD` ask for.
pub(crate) fn admin() -> Option<AdminSeed> {
    let name = std::env::var("COUCHDB_USER").ok().filter(|name| !name.is_empty())?;
    let password = std::env::var("COUCHDB_PASSWORD").ok().filter(|password| !password.is_empty())?;
    Some(AdminSeed { name, password })
}
