//! [`Asked`]: sends the requests of a table and reduces their responses to the compared parts.

use std::fmt;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use settee_model::json::{Json, Value};

use super::Endpoint;
use crate::tests::node::{Ask, World};

/// Longer than any operation that ends. The clock of these tests is simulated.
const ENDLESS: Duration = Duration::from_secs(3600);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) error: String,
    pub(super) reason: String,
}

impl Answer {
    pub(super) fn is_success(&self) -> bool {
        self.status < 400
    }

    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }

    pub(super) fn of(status: u16, body: &str) -> Self {
        let json = Json::parse(body.as_bytes()).ok();
        let member = |name| {
            let value = json.as_ref().filter(|_| status >= 400).and_then(|json| json.value().get(name));
            value.and_then(Value::as_str).map(std::borrow::Cow::into_owned).unwrap_or_default()
        };
        Self { status, error: member("error"), reason: member("reason") }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            0 => f.write_str("no end"),
            status if status < 400 => write!(f, "{status}"),
            status => {
                let reason = self.reason.split_inclusive(": ").next().unwrap_or_default();
                let reason = if reason.ends_with(": ") { format!("{reason}…") } else { reason.to_owned() };
                write!(f, "{status} {}: {reason}", self.error)
            }
        }
    }
}

pub(super) struct Asked<'a> {
    world: &'a World,
    numbers: u64,
}

impl<'a> Asked<'a> {
    pub(super) fn new(world: &'a World) -> Self {
        Self { world, numbers: 0 }
    }

    pub(super) async fn query(&mut self, endpoint: &Endpoint, parameters: &[(&str, &str)]) -> Answer {
        let pairs = parameters.iter().map(|(name, value)| format!("{name}={}", encode(value)));
        let line = format!("{}?{}", endpoint.line, pairs.collect::<Vec<_>>().join("&"));
        self.ask(&line, ["Content-Type: application/json"], endpoint.body.unwrap_or_default()).await
    }

    pub(super) async fn body(&mut self, endpoint: &Endpoint, content_type: &str, body: &str) -> Answer {
        self.ask(endpoint.line, [format!("Content-Type: {content_type}").as_str()], body).await
    }

    /// The default of the header `Accept` is `application/json`.
    pub(super) async fn ask<'h>(
        &mut self,
        line: &str,
        headers: impl IntoIterator<Item = &'h str>,
        body: &str,
    ) -> Answer {
        self.numbers += 1;
        let line = line.replace("{n}", &self.numbers.to_string());
        let mut ask = Ask::new(&line).basic("admin", "pw").header("accept", "application/json");
        // The recordings of other methods without a body were made without its length.
        if !body.is_empty() || line.starts_with("POST ") || line.starts_with("PUT ") {
            ask = ask.body(body);
        }
        for (name, value) in headers.into_iter().filter_map(|header| header.split_once(": ")) {
            ask = ask.header(name, value);
        }
        match tokio::time::timeout(ENDLESS, self.world.ask(ask)).await {
            Ok(reply) => Answer::of(reply.status.as_u16(), &reply.body),
            Err(_) => Answer { status: 0, error: String::new(), reason: String::new() },
        }
    }
}

fn encode(value: &str) -> String {
    utf8_percent_encode(value, NON_ALPHANUMERIC).to_string()
}
