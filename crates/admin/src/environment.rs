//! Access to the environment of the process: clock, random numbers, environment variables.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

pub fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

pub fn now_ms() -> u64 {
    now_us() / 1000
}

/// Microseconds since the first call. Never goes back.
pub fn monotonic_us() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// The bytes are cryptographically secure. Panics if the system provides no random numbers.
pub fn random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the system provides random numbers");
}

pub fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    random(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// SETTEE_DATA, or `./data`.
pub fn data_directory() -> PathBuf {
    text("SETTEE_DATA").unwrap_or_else(|| "./data".to_owned()).into()
}

pub fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
