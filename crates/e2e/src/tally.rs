//! [`Tally`]: the counts of a step, and the closing line of a command.

use std::ops::AddAssign;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub passed: u64,
    pub failed: u64,
    /// Names of failed checks with their reasons, for the end of the gate's output.
    pub notes: Vec<String>,
}

impl Tally {
    pub fn of(passed: u64, failed: u64) -> Self {
        Self { passed, failed, notes: Vec::new() }
    }

    pub fn one(passed: bool) -> Self {
        Self::of(u64::from(passed), u64::from(!passed))
    }

    pub fn holds(&self) -> bool {
        self.failed == 0
    }

    pub fn closing_line(&self) -> bool {
        println!("{} passed, {} failed", self.passed, self.failed);
        self.holds()
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.notes.extend(other.notes);
    }
}
