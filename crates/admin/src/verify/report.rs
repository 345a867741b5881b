//! [`Report`]: the final report.

use std::fmt::Write as _;
use std::path::Path;

const SHOWN_MAX: usize = 200;

#[derive(Debug, Default)]
pub(super) struct Report {
    damage: Vec<String>,
    notes: Vec<String>,
}

impl Report {
    pub(super) fn damage(&mut self, description: String) {
        self.damage.push(description);
    }

    pub(super) fn note(&mut self, description: String) {
        self.notes.push(description);
    }

    pub(super) fn is_good(&self) -> bool {
        self.damage.is_empty()
    }

    pub(super) fn text(&self, data: &Path) -> String {
        let mut text = String::new();
        for note in &self.notes {
            let _ = writeln!(text, "note     {note}");
        }
        for damage in self.damage.iter().take(SHOWN_MAX) {
            let _ = writeln!(text, "DAMAGED  {damage}");
        }
        if self.damage.len() > SHOWN_MAX {
            let _ = writeln!(text, "DAMAGED  and {} more", self.damage.len() - SHOWN_MAX);
        }
        let _ = match self.damage.len() {
            0 => writeln!(text, "No damage was found."),
            count => writeln!(
                text,
                "{count} faults. Create a new data directory from everything that can be read: settee salvage --data {} --to NEW",
                data.display()
            ),
        };
        text
    }
}
