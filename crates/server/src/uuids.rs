//! [`Uuids`]: the ids for `/_uuids` and for documents without one, by the algorithms of CouchDB's section `[uuids]`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use data_encoding::HEXLOWER;

/// Must be cryptographically secure.
pub(crate) trait Entropy: Send + Sync {
    fn fill(&self, bytes: &mut [u8]);
}

impl<F: Fn(&mut [u8]) + Send + Sync> Entropy for F {
    fn fill(&self, bytes: &mut [u8]) {
        self(bytes);
    }
}

/// Lower-case digits, the form of CouchDB's salts, uuids and secrets.
pub(crate) fn random_hex(entropy: &dyn Entropy, bytes: usize) -> String {
    let mut random = vec![0; bytes];
    entropy.fill(&mut random);
    HEXLOWER.encode(&random)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    /// 26 random digits and 6 that increase in random steps: ids of one run sort together (CouchDB's default).
    Sequential,
    Random,
    /// 14 digits of microseconds since 1970 and 18 random ones.
    UtcRandom,
    /// 14 digits of microseconds since 1970 and a suffix that distinguishes nodes (`[uuids] utc_id_suffix`).
    UtcId {
        suffix: String,
    },
    /// RFC 9562 version 7 without hyphens; ids of one millisecond increase.
    UuidV7,
}

impl Algorithm {
    /// CouchDB's names; `None` for an unknown one.
    pub(crate) fn named(name: &str, utc_id_suffix: &str) -> Option<Algorithm> {
        Some(match name {
            "sequential" => Algorithm::Sequential,
            "random" => Algorithm::Random,
            "utc_random" => Algorithm::UtcRandom,
            "utc_id" => Algorithm::UtcId { suffix: utc_id_suffix.to_owned() },
            "uuid_v7" => Algorithm::UuidV7,
            _ => return None,
        })
    }
}

pub(crate) struct Uuids {
    state: Mutex<State>,
    entropy: Arc<dyn Entropy>,
    now_us: Box<dyn Fn() -> u64 + Send + Sync>,
}

struct State {
    algorithm: Algorithm,
    prefix: String,
    /// Below 0x1000000; 0 before the first id of the prefix.
    sequence: u32,
    last_us: u64,
    last_ms: u64,
    /// 12 bits that order the ids of `last_ms`.
    counter: u16,
}

/// CouchDB draws a new prefix when the next step might not fit into six digits.
const SEQUENCE_END: u32 = 0x00ff_f000;

impl Uuids {
    /// `now_us` returns microseconds since 1970.
    pub(crate) fn new(
        algorithm: Algorithm,
        entropy: Arc<dyn Entropy>,
        now_us: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Uuids {
        let state =
            State { algorithm, prefix: String::new(), sequence: SEQUENCE_END, last_us: 0, last_ms: 0, counter: 0 };
        Uuids { state: Mutex::new(state), entropy, now_us: Box::new(now_us) }
    }

    pub(crate) fn take(&self, count: usize) -> Vec<String> {
        let mut state = self.state();
        (0..count).map(|_| self.make(&mut state)).collect()
    }

    /// Applies to all later ids. A sequence restarts, as in CouchDB.
    pub(crate) fn set_algorithm(&self, algorithm: Algorithm) {
        let mut state = self.state();
        state.algorithm = algorithm;
        state.sequence = SEQUENCE_END;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make(&self, state: &mut State) -> String {
        match &state.algorithm {
            Algorithm::Sequential => self.sequential(state),
            Algorithm::Random => random_hex(&*self.entropy, 16),
            Algorithm::UtcRandom => format!("{:014x}{}", self.tick_us(state), random_hex(&*self.entropy, 9)),
            Algorithm::UtcId { suffix } => {
                let suffix = suffix.clone();
                format!("{:014x}{suffix}", self.tick_us(state))
            }
            Algorithm::UuidV7 => self.uuid_v7(state),
        }
    }

    fn sequential(&self, state: &mut State) -> String {
        if state.sequence >= SEQUENCE_END {
            state.prefix = random_hex(&*self.entropy, 13);
            state.sequence = 0;
        }
        state.sequence += self.step();
        format!("{}{:06x}", state.prefix, state.sequence)
    }

    /// CouchDB's step, which makes ids hard to guess: 1 to 0xffd.
    fn step(&self) -> u32 {
        let mut random = [0; 4];
        self.entropy.fill(&mut random);
        u32::from_le_bytes(random) % 0xffd + 1
    }

    /// Strictly increasing, because with a suffix only the time distinguishes ids.
    fn tick_us(&self, state: &mut State) -> u64 {
        state.last_us = (self.now_us)().max(state.last_us + 1);
        state.last_us
    }

    fn uuid_v7(&self, state: &mut State) -> String {
        let mut random = [0; 10];
        self.entropy.fill(&mut random);
        let [seed @ .., a, b, c, d, e, f, g, h] = random;
        let now_ms = (self.now_us)() / 1000;
        if now_ms <= state.last_ms && state.counter < 0xfff {
            state.counter += 1;
        } else {
            state.last_ms = now_ms.max(state.last_ms + 1);
            // The upper half of the counter stays free, so that a busy millisecond seldom advances into the next.
            state.counter = u16::from_be_bytes(seed) & 0x7ff;
        }
        let head = (state.last_ms << 16) | 0x7000 | u64::from(state.counter);
        let tail = u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 2 | 0x8000_0000_0000_0000;
        format!("{head:016x}{tail:016x}")
    }
}

#[cfg(test)]
mod tests;
