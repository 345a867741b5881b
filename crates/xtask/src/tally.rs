//! What a step counted ([`Tally`]) and the line that closes a command.

use std::ops::AddAssign;

/// The number of checks that passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl Tally {
    /// One check.
    pub(crate) fn one(passed: bool) -> Self {
        Self { passed: u64::from(passed), failed: u64::from(!passed) }
    }

    pub(crate) fn holds(self) -> bool {
        self.failed == 0
    }

    /// Prints the closing line of a command; false if something failed.
    pub(crate) fn closing_line(self) -> bool {
        println!("{} passed, {} failed", self.passed, self.failed);
        self.holds()
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}
