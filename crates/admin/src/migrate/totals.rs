//! [`Totals`] of the databases that a command has written, and [`Imported`], the part of one database.

const SHOWN: usize = 1000;

#[derive(Debug, Default)]
pub(super) struct Imported {
    pub(super) written: u64,
    pub(super) local: u64,
    pub(super) refused: Listed,
    pub(super) lost: Listed,
    pub(super) notes: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) count: u64,
    pub(super) first: Vec<String>,
}

impl Listed {
    pub(super) fn add(&mut self, item: String) {
        self.count += 1;
        if self.first.len() < SHOWN {
            self.first.push(item);
        }
    }
}

impl Imported {
    pub(super) fn merge(&mut self, other: Self) {
        self.written += other.written;
        self.local += other.local;
        self.notes.extend(other.notes);
        for (list, other) in [(&mut self.refused, other.refused), (&mut self.lost, other.lost)] {
            list.count += other.count;
            let free = SHOWN.saturating_sub(list.first.len());
            list.first.extend(other.first.into_iter().take(free));
        }
    }
}

#[derive(Default)]
pub(super) struct Totals {
    databases: u64,
    failed: u64,
    written: u64,
    refused: u64,
    local: u64,
    lost: u64,
}

impl Totals {
    pub(super) fn add(&mut self, database: &str, imported: anyhow::Result<Imported>, notes: &mut Vec<String>) {
        self.databases += 1;
        match imported {
            Ok(imported) => {
                self.written += imported.written;
                self.refused += imported.refused.count;
                self.local += imported.local;
                self.lost += imported.lost.count;
                notes.extend(imported.notes.iter().map(|note| format!("{database}: {note}")));
                let lists = [(&imported.refused, "revisions were refused"), (&imported.lost, "items are lost")];
                for (list, what) in lists.into_iter().filter(|(list, _)| list.count > 0) {
                    notes.push(format!("{}: {} {what}, among them", database, list.count));
                    notes.extend(list.first.iter().map(|item| format!("    {item}")));
                }
            }
            Err(error) => {
                self.failed += 1;
                notes.push(format!("{database}: FAILED: {error:#}"));
            }
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.failed == 0 && self.refused == 0 && self.lost == 0
    }

    pub(super) fn summary(&self, done: &str, seconds: f64) -> String {
        let Self { databases, failed, written, refused, local, lost } = self;
        let rate = *written as f64 / seconds.max(0.001);
        let mut text = format!(
            "{databases} databases: {written} revisions and {local} local documents were {done} in {seconds:.1} s \
             ({rate:.0}/s)\n"
        );
        if *lost > 0 {
            text.push_str(&format!("{lost} items of the files are lost; everything else was imported\n"));
        }
        if *failed > 0 || *refused > 0 {
            text.push_str(&format!(
                "{failed} databases failed and {refused} revisions were refused. Run the same command again after removing \
                 the cause, with `--from-start` if revisions were refused\n"
            ));
        }
        text
    }
}
