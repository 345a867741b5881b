//! Parameters of the changes feed.

use std::time::Duration;

use settee_database::{Database, Direction};

use super::Query;
use super::attachments::Shown;
use super::filter::Filter;
use crate::Error;
use crate::sequence::{self, Since};

/// How rows are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feed {
    /// What there is, then the end.
    Normal,
    /// As soon as there is something, then the end.
    Longpoll,
    /// One row a line, for as long as the client listens.
    Continuous,
    /// The same as events of `text/event-stream`.
    EventSource,
}

/// Which revisions a row names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// The winner.
    MainOnly,
    /// All leaves.
    AllDocs,
}

/// What keeps a quiet connection, or ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quiet {
    /// Ends after this time without rows.
    Timeout(Duration),
    /// An empty line each time.
    Heartbeat(Duration),
}

/// The parameters of a feed.
#[derive(Clone, Debug)]
pub(crate) struct ChangesParams {
    pub(crate) feed: Feed,
    pub(crate) since: Since,
    pub(crate) limit: Option<u64>,
    pub(crate) direction: Direction,
    pub(crate) style: Style,
    pub(crate) include_docs: bool,
    pub(crate) conflicts: bool,
    pub(crate) shown: Shown,
    pub(crate) seq_interval: u64,
    pub(crate) quiet: Quiet,
    /// Resolved on its own, because its arguments may be in the body.
    pub(crate) filter: Filter,
}

/// The longest time between two signs of life, and the default of `timeout` and `heartbeat=true`.
const DEFAULT_QUIET_MS: u64 = 60_000;

impl ChangesParams {
    /// Resolves the parameters of a request. `last_event_id` is the header of that name, `timeout_ms` the
    /// configured time after which a quiet feed ends.
    pub(crate) fn resolve(
        query: &Query,
        last_event_id: Option<&str>,
        timeout_ms: u64,
        database: &Database,
    ) -> Result<Self, Error> {
        Filter::check_name(query)?;
        let since = last_event_id.or_else(|| query.get("last-event-id")).or_else(|| query.get("since"));
        Ok(Self {
            feed: match query.get("feed") {
                Some("longpoll") => Feed::Longpoll,
                Some("continuous" | "live") => Feed::Continuous,
                Some("eventsource") => Feed::EventSource,
                _ => Feed::Normal,
            },
            since: since.map_or(Ok(Since::Seq(0)), |since| sequence::parse(since, database))?,
            limit: query.get("limit").map(|limit| number("limit", limit)).transpose()?,
            direction: if query.is_true("descending") { Direction::Backward } else { Direction::Forward },
            style: if query.get("style") == Some("all_docs") { Style::AllDocs } else { Style::MainOnly },
            include_docs: query.is_true("include_docs"),
            shown: Shown::switches(query.is_true("attachments"), query.is_true("att_encoding_info")),
            conflicts: query.is_true("conflicts"),
            seq_interval: match query.get("seq_interval") {
                Some(interval) => number("seq_interval", interval)?.max(1),
                None => 1,
            },
            quiet: quiet(query, timeout_ms)?,
            filter: Filter::None,
        })
    }
}

fn quiet(query: &Query, timeout_ms: u64) -> Result<Quiet, Error> {
    match query.get("heartbeat") {
        None | Some("false") => {}
        Some("true") => return Ok(Quiet::Heartbeat(Duration::from_millis(DEFAULT_QUIET_MS))),
        Some(text) => {
            return match text.parse() {
                Ok(ms) if ms > 0 => Ok(Quiet::Heartbeat(Duration::from_millis(ms))),
                _ => Err(Error::bad_request(
                    "Invalid heartbeat value. Expecting a positive integer value (in milliseconds).",
                )),
            };
        }
    }
    let longest = if timeout_ms == 0 { DEFAULT_QUIET_MS } else { timeout_ms };
    let asked = query.get("timeout").map(|timeout| number("timeout", timeout)).transpose()?;
    Ok(Quiet::Timeout(Duration::from_millis(asked.unwrap_or(longest).min(longest))))
}

fn number(name: &str, text: &str) -> Result<u64, Error> {
    text.parse().map_err(|_| Error::bad_request(format!("Invalid value for `{name}`: expected a number, got `{text}`")))
}

#[cfg(test)]
mod tests;
