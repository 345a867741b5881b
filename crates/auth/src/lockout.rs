//! [`Lockouts`]: how often logins failed lately, so that guessing passwords ends soon. Counted for an address, a name and
//! the salt of its password, as CouchDB does: a new password starts over, and nobody locks others out from elsewhere.
//! Servers of the same users tell each other ([`Sharing`]), so that asking several of them gives nobody more tries.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

use data_encoding::HEXLOWER;

use crate::algorithm::Algorithm;

/// Failures that are remembered, of all users together.
const REMEMBERED_MAX: usize = 10_000;

/// The lockout after many failures (`[chttpd_auth_lockout]`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockoutPolicy {
    /// Whether it is refused.
    pub mode: LockoutMode,
    /// After how many failures.
    pub threshold: u64,
    /// The time for which a failure counts, from the first one.
    pub max_lifetime_ms: u64,
}

/// The reaction to too many failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockoutMode {
    /// Nothing.
    Off,
    /// They are counted, and every failure is logged.
    Warn,
    /// Logins are refused, also with the right password.
    Enforce,
}

/// The party that fails: who it is shows only to those who know the key. Displayed as hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Suspect([u8; 16]);

/// The other servers of the same users, as one of them sees them.
pub struct Sharing {
    /// What all of them know and nobody else.
    pub secret: Box<dyn Fn() -> Vec<u8> + Send + Sync>,
    /// Tells the others of a failed login. It must not block.
    pub tell: Box<dyn Fn(Suspect) + Send + Sync>,
}

impl Suspect {
    /// The one that was displayed so.
    #[must_use]
    pub fn parse(text: &str) -> Option<Suspect> {
        HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok().map(Suspect)
    }

    /// `key` is of those who are to recognize it.
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

/// The number of failures.
#[derive(Debug, Default)]
pub(crate) struct Lockouts {
    failures: HashMap<Suspect, Failures>,
    /// When the last of them was counted.
    noted_ms: u64,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u64,
    first_ms: u64,
}

impl Lockouts {
    /// Whether none counts any more, whose ever it was.
    pub(crate) fn are_over(&self, policy: &LockoutPolicy, now_ms: u64) -> bool {
        self.failures.is_empty() || now_ms.saturating_sub(self.noted_ms) >= policy.max_lifetime_ms
    }

    /// Whether there were too many.
    pub(crate) fn is_over(&self, suspect: &Suspect, policy: &LockoutPolicy, now_ms: u64) -> bool {
        let failures = self.failures.get(suspect);
        failures.is_some_and(|failures| failures.lasts(policy, now_ms) && failures.count >= policy.threshold)
    }

    /// Counts one more.
    pub(crate) fn note(&mut self, suspect: &Suspect, policy: &LockoutPolicy, now_ms: u64) {
        if policy.mode == LockoutMode::Off {
            return;
        }
        if self.failures.len() >= REMEMBERED_MAX && !self.failures.contains_key(suspect) {
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
        if self.failures.len() < REMEMBERED_MAX {
            return;
        }
        // Those who failed most stay: nobody gets rid of his count by failing under many other names. Those above the middle are
        // less than half of all.
        let mut counts: Vec<u64> = self.failures.values().map(|failures| failures.count).collect();
        let middle = counts.len() / 2;
        let (_, median, above) = counts.select_nth_unstable(middle);
        let median = *median;
        let mut room = (REMEMBERED_MAX / 2).saturating_sub(above.iter().filter(|count| **count > median).count());
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
        assert!(!lockouts.is_over(&ann, &POLICY, 1000), "a new count has begun");
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
            assert!(lockouts.failures.len() <= REMEMBERED_MAX);
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
