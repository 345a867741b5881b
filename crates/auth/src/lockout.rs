//! [`Lockouts`]: counts of recent failed logins, against guessing of passwords. As in CouchDB, a count belongs to an
//! address, a name and the salt of the password: a new password resets it, and a client cannot lock out users at other
//! addresses. Servers of the same users share their counts ([`Sharing`]), so requests to several servers give no
//! additional attempts.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

use data_encoding::HEXLOWER;

use crate::algorithm::Algorithm;

const COUNTS_MAX: usize = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockoutPolicy {
    pub mode: LockoutMode,
    pub threshold: u64,
    /// Time after the first failure at which the count expires.
    pub max_lifetime_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockoutMode {
    Off,
    Warn,
    Enforce,
}

/// The subject of a count as a keyed hash: only holders of the key can identify it. Displayed as hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Suspect([u8; 16]);

pub struct Sharing {
    pub secret: Box<dyn Fn() -> Vec<u8> + Send + Sync>,
    /// Reports a failed login to the other servers. Must not block.
    pub report: Box<dyn Fn(Suspect) + Send + Sync>,
}

impl Suspect {
    #[must_use]
    pub fn parse(text: &str) -> Option<Suspect> {
        HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok().map(Suspect)
    }

    pub(crate) fn new(key: &[u8], peer: IpAddr, name: &str, salt: &str) -> Suspect {
        let length = (name.len() as u64).to_be_bytes();
        let mac =
            Algorithm::Sha256.mac(key, &[peer.to_string().as_bytes(), b"/", &length, name.as_bytes(), salt.as_bytes()]);
        let mut short = [0; 16];
        short.copy_from_slice(&mac[..16]);
        Suspect(short)
    }
}

impl fmt::Display for Suspect {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&HEXLOWER.encode(&self.0))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Lockouts {
    failures: HashMap<Suspect, Failures>,
    noted_ms: u64,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u64,
    first_ms: u64,
}

impl Lockouts {
    pub(crate) fn are_over(&self, policy: &LockoutPolicy, now_ms: u64) -> bool {
        self.failures.is_empty() || now_ms.saturating_sub(self.noted_ms) >= policy.max_lifetime_ms
    }

    pub(crate) fn is_over(&self, suspect: &Suspect, policy: &LockoutPolicy, now_ms: u64) -> bool {
        let failures = self.failures.get(suspect);
        failures.is_some_and(|failures| failures.lasts(policy, now_ms) && failures.count >= policy.threshold)
    }

    pub(crate) fn note(&mut self, suspect: &Suspect, policy: &LockoutPolicy, now_ms: u64) {
        if policy.mode == LockoutMode::Off {
            return;
        }
        if self.failures.len() >= COUNTS_MAX && !self.failures.contains_key(suspect) {
            self.make_room(policy, now_ms);
        }
        let failures = self.failures.entry(suspect.clone()).or_insert(Failures { count: 0, first_ms: now_ms });
        if !failures.lasts(policy, now_ms) {
            *failures = Failures { count: 0, first_ms: now_ms };
        }
        failures.count += 1;
        self.noted_ms = self.noted_ms.max(now_ms);
    }

    fn make_room(&mut self, policy: &LockoutPolicy, now_ms: u64) {
        self.failures.retain(|_, failures| failures.lasts(policy, now_ms));
        if self.failures.len() < COUNTS_MAX {
            return;
        }
        // The highest counts are kept, so that an attacker cannot evict a count by failing under many other names.
        // Fewer than half of the counts are above the median.
        let mut counts: Vec<u64> = self.failures.values().map(|failures| failures.count).collect();
        let middle = counts.len() / 2;
        let (_, median, above) = counts.select_nth_unstable(middle);
        let median = *median;
        let mut room = (COUNTS_MAX / 2).saturating_sub(above.iter().filter(|count| **count > median).count());
        self.failures.retain(|_, failures| {
            let has_room = failures.count == median && room > 0;
            room -= usize::from(has_room);
            failures.count > median || has_room
        });
    }
}

impl Failures {
    fn lasts(self, policy: &LockoutPolicy, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.first_ms) < policy.max_lifetime_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const POLICY: LockoutPolicy = LockoutPolicy { mode: LockoutMode::Enforce, threshold: 3, max_lifetime_ms: 1000 };

    fn suspect(address: u32, name: &str, salt: &str) -> Suspect {
        Suspect::new(&[1], Ipv4Addr::from(address).into(), name, salt)
    }

    #[test]
    fn the_threshold_locks_until_the_first_failure_is_old() {
        let mut lockouts = Lockouts::default();
        assert!(lockouts.are_over(&POLICY, 0), "there are none");
        let ann = suspect(1, "ann", "s");
        for now_ms in [0, 10, 20] {
            assert!(!lockouts.is_over(&ann, &POLICY, now_ms));
            lockouts.note(&ann, &POLICY, now_ms);
        }
        assert!(lockouts.is_over(&ann, &POLICY, 20));
        assert!(lockouts.is_over(&ann, &POLICY, 999));
        assert_eq!([20, 999, 1019, 1020].map(|now_ms| lockouts.are_over(&POLICY, now_ms)), [false, false, false, true]);
        for other in [suspect(2, "ann", "s"), suspect(1, "anns", ""), suspect(1, "ann", "t")] {
            assert!(!lockouts.is_over(&other, &POLICY, 20));
        }
        assert!(!lockouts.is_over(&ann, &POLICY, 1000));
        lockouts.note(&ann, &POLICY, 1000);
        assert!(!lockouts.is_over(&ann, &POLICY, 1000), "a new count has started");
    }

    #[test]
    fn memory_is_bounded_and_the_worst_stay() {
        let mut lockouts = Lockouts::default();
        let worst = suspect(0, "worst", "");
        for _ in 0..3 {
            lockouts.note(&worst, &POLICY, 0);
        }
        for number in 1..25_000 {
            lockouts.note(&suspect(number, "", ""), &POLICY, 1);
            assert!(lockouts.failures.len() <= COUNTS_MAX);
        }
        assert!(lockouts.is_over(&worst, &POLICY, 1));
    }

    #[test]
    fn nothing_is_counted_when_it_is_off() {
        let mut lockouts = Lockouts::default();
        let ann = suspect(1, "ann", "s");
        lockouts.note(&ann, &LockoutPolicy { mode: LockoutMode::Off, ..POLICY }, 0);
        assert!(lockouts.failures.is_empty());
    }
}
