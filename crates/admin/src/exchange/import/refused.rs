//! [`RejectedRows`]: refused rows as JSON lines in a file.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Context as _;
use parking_lot::Mutex;
use settee_model::json::write_string;

const SHOWN: u64 = 20;

pub(super) struct RejectedRows(Mutex<State>);

struct State {
    file: Option<BufWriter<File>>,
    shown: u64,
}

impl RejectedRows {
    pub(super) fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        // A resumed run appends to the file.
        let open = |path: &Path| File::options().create(true).append(true).open(path);
        let file = path.map(|path| open(path).with_context(|| format!("{} cannot be written", path.display())));
        Ok(Self(Mutex::new(State { file: file.transpose()?.map(BufWriter::new), shown: 0 })))
    }

    /// `document` is the content of the row, if that is JSON.
    pub(super) fn add(&self, line: u64, why: &str, document: Option<&[u8]>) -> anyhow::Result<()> {
        let mut state = self.0.lock();
        let state = &mut *state;
        if let Some(file) = &mut state.file {
            let mut text = format!("{{\"line\":{line},\"reason\":").into_bytes();
            write_string(&mut text, why);
            if let Some(document) = document {
                text.extend_from_slice(b",\"doc\":");
                // A line end within JSON is only whitespace between members.
                text.extend(
                    document.trim_ascii().iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }),
                );
            }
            text.extend_from_slice(b"}\n");
            return file.write_all(&text).context("the file of refused rows cannot be written");
        }
        state.shown += 1;
        match state.shown {
            ..=SHOWN => eprintln!("refused: line {line}: {why}"),
            shown if shown == SHOWN + 1 => eprintln!("further refusals are not shown; --refused FILE keeps all"),
            _ => {}
        }
        Ok(())
    }

    pub(super) fn finish(&self) -> anyhow::Result<()> {
        let mut state = self.0.lock();
        state.file.as_mut().map_or(Ok(()), Write::flush).context("the file of refused rows cannot be written")
    }
}
