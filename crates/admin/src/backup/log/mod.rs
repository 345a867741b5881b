//! The commit log in a [`Store`]. [`ship`] uploads it, and [`replay`] brings a restored backup to any time that it
//! covers.
//!
//! ```text
//! log/STREAM/POSITION   a piece: the commits from this position on, see [`piece`]
//! log/STREAM/through    time up to which the pieces are complete
//! ```
//!
//! A stream is a log without a gap, which starts with a backup. A server starts a new one at every start, and whenever
//! it cannot prove that the next commits continue the last piece.

mod piece;
pub(super) mod replay;
pub(super) mod ship;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;

use anyhow::Context as _;
use settee_model::json::{Json, Value};

use super::remote::retention::LOG;
use super::remote::{self, Store};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Through {
    /// Every commit acknowledged before this time is in the pieces.
    time_us: u64,
    position: u64,
    /// The server stopped, and committed nothing after that position.
    is_closed: bool,
}

impl Through {
    fn name(stream: &str) -> String {
        format!("{LOG}/{stream}/through")
    }

    fn put(self, store: &Store, stream: &str) -> anyhow::Result<()> {
        let Self { time_us, position, is_closed } = self;
        let text = format!("{{\"time_us\":{time_us},\"position\":{position},\"closed\":{is_closed}}}\n");
        store.put(&Self::name(stream), text.into_bytes())
    }

    fn get(store: &Store, stream: &str) -> anyhow::Result<Option<Self>> {
        let Some(text) = store.get(&Self::name(stream))? else { return Ok(None) };
        let unreadable = || format!("{} in {} cannot be read", Self::name(stream), store.shown());
        let json = Json::parse(&text).ok().with_context(unreadable)?;
        let number = |name: &str| json.value().get(name).and_then(Value::as_i64).and_then(|n| u64::try_from(n).ok());
        Ok(Some(Self {
            time_us: number("time_us").with_context(unreadable)?,
            position: number("position").with_context(unreadable)?,
            is_closed: json.value().get("closed").and_then(Value::as_bool).with_context(unreadable)?,
        }))
    }
}

pub(super) fn covered(store: &Store) -> anyhow::Result<Vec<(u64, u64)>> {
    let mut found: Vec<(String, (u64, u64))> = Vec::new();
    for name in remote::names(store)? {
        let Some(log) = remote::manifest(store, &name)?.log else { continue };
        if found.last().is_none_or(|(stream, _)| *stream != log.stream) {
            let through = Through::get(store, &log.stream)?;
            found.extend(through.map(|through| (log.stream, (log.taken_us, through.time_us))));
        }
    }
    Ok(found.into_iter().map(|(_, covered)| covered).filter(|(from, to)| from < to).collect())
}

fn piece_name(stream: &str, after: u64) -> String {
    format!("{LOG}/{stream}/{after:020}")
}
