//! Parameters of the changes feed.

use std::time::Duration;

use settee_database::{Database, Direction, Reader};

use super::Query;
use super::attachments::Shown;
use super::filter::Filter;
use crate::Error;
use crate::sequence::{self, Since};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feed {
    Normal,
    Longpoll,
    Continuous,
    EventSource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// The winner.
    MainOnly,
    AllDocs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdlePolicy {
    /// Ends the feed after this time without rows.
    Timeout(Duration),
    /// Sends an empty line after this time without rows.
    Heartbeat(Duration),
}

#[derive(Clone, Debug)]
pub(crate) struct ChangesParams {
    pub(crate) feed: Feed,
    pub(crate) since: Since,
    pub(crate) limit: Option<u64>,
    /// The number from which CouchDB counts the rows down, which is negative for a negative `limit`.
    countdown: i128,
    pub(crate) direction: Direction,
    pub(crate) style: Style,
    pub(crate) include_docs: bool,
    pub(crate) conflicts: bool,
    pub(crate) shown: Shown,
    pub(crate) seq_interval: u64,
    pub(crate) quiet: IdlePolicy,
    pub(crate) filter_name: String,
    /// Resolved separately, because its arguments may be in the body.
    pub(crate) filter: Filter,
}

/// Maximum time between two rows or heartbeats, and the default of `timeout` and `heartbeat=true`.
const DEFAULT_QUIET_MS: u64 = 60_000;

/// Minimum interval of the heartbeats of `_db_updates`, to which `heartbeat=0` is raised.
const MIN_HEARTBEAT_MS: u64 = 10;

/// CouchDB's number of rows without a `limit`. It determines which rows have a sequence.
const LIMIT: i128 = 1_000_000_000_000_000;

impl ChangesParams {
    /// CouchDB parses the parameters in order, ignores the case of their names, and uses the last of several values;
    /// then it validates the filter, the kind of the feed, and the sequence. A descending feed ignores `since`.
    pub(crate) fn resolve(
        query: &Query,
        last_event_id: Option<&str>,
        timeout_ms: u64,
        of: (&Database, &Reader),
    ) -> Result<Self, Error> {
        let longest_ms = longest(timeout_ms);
        let (mut feed, mut since, mut limit, mut timeout, mut heartbeat) = (None, None, None, None, None);
        let (mut style, mut seq_interval, mut filter) = (Style::MainOnly, 1, "");
        let mut countdown = LIMIT;
        let (mut descending, mut include_docs, mut conflicts) = (false, false, false);
        let (mut attachments, mut att_encoding_info) = (false, false);
        for (name, value) in query.pairs() {
            match (name.to_ascii_lowercase().as_str(), value) {
                ("feed", kind) => feed = Some(kind),
                ("since" | "last-event-id", seq) => since = Some(seq),
                ("limit", text) => {
                    limit = count("limit", text)?;
                    let unbounded = if limit.is_some() { LIMIT } else { -1 };
                    countdown = text.parse().map_or(unbounded, |number: i64| i128::from(number));
                }
                ("timeout", text) => timeout = Some(count("timeout", text)?.unwrap_or(0)),
                ("style", "main_only") => style = Style::MainOnly,
                ("style", "all_docs") => style = Style::AllDocs,
                ("style", _) => return Err(Error::bad_request("Supported `style` types: main_only, all_docs")),
                ("heartbeat", text) => heartbeat = Some(parse_heartbeat(text, longest_ms)?),
                ("seq_interval", text) => {
                    let interval = integer(text).filter(|interval| *interval > 0);
                    seq_interval = interval.ok_or_else(|| Error::bad_request("invalid_seq_interval"))?;
                }
                ("filter", text) => filter = text,
                ("descending", "true") => descending = true,
                ("include_docs", "true") => include_docs = true,
                ("conflicts", "true") => conflicts = true,
                ("attachments", "true") => attachments = true,
                ("att_encoding_info", "true") => att_encoding_info = true,
                _ => {}
            }
        }
        Filter::check_name(filter, query)?;
        let feed = feed_of(feed)?;
        let since = last_event_id.filter(|_| feed == Feed::EventSource).or(since);
        let direction = if descending { Direction::Backward } else { Direction::Forward };
        Ok(Self {
            feed,
            since: start_of(since, direction, of)?,
            limit,
            countdown,
            direction,
            style,
            include_docs,
            shown: Shown::switches(attachments, att_encoding_info),
            conflicts,
            seq_interval,
            quiet: heartbeat.unwrap_or_else(|| timeout_of(timeout, longest_ms)),
            filter_name: filter.to_owned(),
            filter: Filter::None,
        })
    }

    /// Resolves the parameters of `_db_updates`. Their names are case-sensitive, invalid integers have another
    /// error, and `heartbeat=false` and `heartbeat=0` are accepted.
    pub(crate) fn of_updates(
        query: &Query,
        last_event_id: Option<&str>,
        timeout_ms: u64,
        database: &Database,
    ) -> Result<Self, Error> {
        let longest_ms = longest(timeout_ms);
        let (mut feed, mut since, mut limit, mut timeout, mut heartbeat) = (None, None, None, None, None);
        let mut direction = Direction::Forward;
        let integer = |text: &str| integer(text).ok_or_else(|| Error::bad_request("invalid_integer"));
        for (name, value) in query.pairs() {
            match (name, value) {
                ("feed", kind) => feed = Some(kind),
                ("descending", "true") => direction = Direction::Backward,
                ("since", seq) => since = Some(seq),
                ("limit", text) => limit = Some(integer(text)?),
                ("timeout", text) => timeout = Some(integer(text)?),
                ("heartbeat", "true") => heartbeat = Some(longest_ms),
                ("heartbeat", "false") => {}
                ("heartbeat", text) => heartbeat = Some(integer(text)?.clamp(MIN_HEARTBEAT_MS, longest_ms)),
                _ => {}
            }
        }
        let feed = match feed {
            Some("live") => None,
            feed => feed_of(feed).ok(),
        };
        let feed = feed
            .ok_or_else(|| Error::bad_request("Supported `feed` types: normal, continuous, longpoll, eventsource"))?;
        let since = last_event_id.filter(|_| feed == Feed::EventSource).or(since);
        let heartbeat = heartbeat.map(|ms| IdlePolicy::Heartbeat(Duration::from_millis(ms)));
        Ok(Self {
            feed,
            since: start_of(since, direction, (database, &Reader::Administrator))?,
            limit,
            countdown: LIMIT,
            direction,
            style: Style::MainOnly,
            include_docs: false,
            conflicts: false,
            shown: Shown::switches(false, false),
            seq_interval: 1,
            quiet: heartbeat.unwrap_or_else(|| timeout_of(timeout, longest_ms)),
            filter_name: String::new(),
            filter: Filter::None,
        })
    }

    /// Returns true if a live feed ends instead of waiting. CouchDB ends it if no more than 0 rows remain.
    pub(crate) fn never_waits(&self) -> bool {
        self.countdown < 0 && matches!(self.feed, Feed::Continuous | Feed::EventSource)
    }

    /// Returns true if the row after `sent` others has a sequence. CouchDB counts the remaining rows, so that
    /// without a limit usually the first one has it.
    pub(crate) fn has_seq(&self, sent: u64) -> bool {
        (self.countdown - i128::from(sent)) % i128::from(self.seq_interval) == 0
    }
}

fn feed_of(kind: Option<&str>) -> Result<Feed, Error> {
    match kind {
        None | Some("normal") => Ok(Feed::Normal),
        Some("longpoll") => Ok(Feed::Longpoll),
        Some("continuous" | "live") => Ok(Feed::Continuous),
        Some("eventsource") => Ok(Feed::EventSource),
        Some(_) => Err(Error::bad_request("Supported `feed` types: normal, continuous, live, longpoll, eventsource")),
    }
}

fn longest(timeout_ms: u64) -> u64 {
    if timeout_ms == 0 { DEFAULT_QUIET_MS } else { timeout_ms }
}

fn timeout_of(timeout_ms: Option<u64>, longest_ms: u64) -> IdlePolicy {
    IdlePolicy::Timeout(Duration::from_millis(timeout_ms.unwrap_or(longest_ms).min(longest_ms)))
}

fn start_of(since: Option<&str>, direction: Direction, feed: (&Database, &Reader)) -> Result<Since, Error> {
    match (since, direction) {
        (_, Direction::Backward) => Ok(Since::Now),
        (Some(since), Direction::Forward) => sequence::parse(since, feed),
        (None, Direction::Forward) => Ok(Since::Seq(0)),
    }
}

fn parse_heartbeat(text: &str, longest_ms: u64) -> Result<IdlePolicy, Error> {
    let ms = if text == "true" { Some(longest_ms) } else { integer(text) };
    match ms {
        Some(ms) if ms > 0 => Ok(IdlePolicy::Heartbeat(Duration::from_millis(ms.min(longest_ms)))),
        None if !is_integer(text) => {
            Err(Error::bad_request("Invalid heartbeat value. Expecting a positive integer value (in milliseconds)."))
        }
        _ => Err(Error::bad_request("The heartbeat value should be a positive integer (in milliseconds).")),
    }
}

/// Parses the integer of the parameter `name`. CouchDB 3.5 accepts negative integers, which set no limit: `None`.
fn count(name: &str, text: &str) -> Result<Option<u64>, Error> {
    let refused = || Error::bad_request(format!("The {name} parameter should be a non-negative integer"));
    if is_integer(text) { Ok(integer(text)) } else { Err(refused()) }
}

fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Parses a non-negative integer. One that exceeds 64 bits becomes the maximum.
fn integer(text: &str) -> Option<u64> {
    let is_negative = text.starts_with('-') && text.bytes().any(|byte| matches!(byte, b'1'..=b'9'));
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    (is_integer(text) && !is_negative).then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
