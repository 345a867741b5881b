//! [`Attack`]: an entry of the catalogue, and its start.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;

use super::target::Target;

pub(super) struct Attack {
    pub(super) name: &'static str,
    pub(super) threads: usize,
    pub(super) settings: &'static [&'static str],
    /// Maximum factor by which the second client may wait longer than without the attack.
    pub(super) slower_max: f64,
    /// Maximum duration of a request of `requests`; checked by the long form.
    pub(super) longest: Duration,
    pub(super) setup: &'static [(&'static str, &'static str)],
    pub(super) prepare: fn(&Target) -> Result<()>,
    /// Each attacker sends the requests in turn, each on a new connection.
    pub(super) requests: &'static [HostileRequest],
    /// Replaces the requests and is called repeatedly.
    pub(super) act: Option<fn(&Target)>,
}

pub(super) struct HostileRequest {
    pub(super) line: &'static str,
    /// Each header has its line end.
    pub(super) headers: &'static str,
    pub(super) body: Text,
    pub(super) expect: Expect,
}

pub(super) enum Text {
    Is(&'static str),
    Made(fn(&Target) -> Vec<u8>),
}

#[derive(Clone, Copy)]
pub(super) enum Expect {
    Anything,
    /// An answer with this status and with this text in its body, at least once. Otherwise the server may shed load: by
    /// 429, 503, or the end of the connection.
    Answer(u16, &'static str),
    /// The attacker reads nothing and disconnects after this time.
    LeavesAfter(Duration),
}

pub(super) const fn attack(name: &'static str, threads: usize) -> Attack {
    Attack {
        name,
        threads,
        settings: &[],
        slower_max: 10.0,
        longest: Duration::from_secs(60),
        setup: &[],
        prepare: nothing,
        requests: &[],
        act: None,
    }
}

pub(super) const fn ask(line: &'static str, body: Text) -> HostileRequest {
    HostileRequest { line, headers: "", body, expect: Expect::Anything }
}

impl HostileRequest {
    pub(super) const fn expects(self, expect: Expect) -> Self {
        Self { expect, line: self.line, headers: self.headers, body: self.body }
    }
}

fn nothing(_: &Target) -> Result<()> {
    Ok(())
}

pub(super) fn sixteen_documents(target: &Target) -> Result<()> {
    let docs: Vec<String> = (0..16).map(|number| format!("{{\"_id\":\"{number}\"}}")).collect();
    target.make("POST /public/_bulk_docs", format!("{{\"docs\":[{}]}}", docs.join(",")).as_bytes())
}

impl Attack {
    /// The attackers end soon after [`Target::stop`].
    pub(super) fn start(&'static self, target: &Arc<Target>) -> Vec<JoinHandle<()>> {
        let one = |number: usize| {
            let target = Arc::clone(target);
            thread::spawn(move || {
                let mut places = (0..self.requests.len()).cycle().skip(number % self.requests.len().max(1));
                while !target.is_over() {
                    match (self.act, places.next()) {
                        (Some(act), _) => act(&target),
                        (None, Some(place)) => target.ask(place, &self.requests[place]),
                        (None, None) => return,
                    }
                }
            })
        };
        (0..self.threads).map(one).collect()
    }
}
