//! [`Exporter`]: posts the spans of requests to a collector in OTLP's JSON over HTTP, without TLS. If the collector is
//! slow or unreachable, spans are dropped.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use settee_api::{Attribute, Parent, Span, Tracer};
use settee_model::json::write_string;

use crate::config::Configuration;
use crate::environment;

/// Further unsent spans are dropped.
const BUFFERED_SPANS_MAX: usize = 8192;

const SPANS_PER_REQUEST: usize = 512;

const INTERVAL: Duration = Duration::from_secs(2);

/// Applies to the connection to the collector and to each read and write.
const TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct Exporter {
    sender: SyncSender<Message>,
    /// Sampling ratio of the requests without a sampling decision of their own.
    ratio: f64,
}

enum Message {
    Ended { span: Span, at_us: u64 },
    Flush(mpsc::Sender<()>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Endpoint {
    authority: String,
    path: String,
}

impl Exporter {
    pub(crate) fn start(configuration: &Configuration) -> anyhow::Result<Option<Self>> {
        let Some(url) = settee_settings::tracing::ENDPOINT.text(configuration) else { return Ok(None) };
        let endpoint = Endpoint::parse(&url).context("[tracing] endpoint cannot be used")?;
        let ratio =
            settee_settings::tracing::RATIO.of(configuration).parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
        let ratio = ratio.context("[tracing] ratio must be a number from 0 to 1")?;
        let service = settee_settings::tracing::SERVICE_NAME.of(configuration);
        let (sender, receiver) = mpsc::sync_channel(BUFFERED_SPANS_MAX);
        let work = move || run(&receiver, &endpoint, &service);
        std::thread::Builder::new()
            .name("traces".to_owned())
            .spawn(work)
            .context("cannot start the thread for traces")?;
        Ok(Some(Self { sender, ratio }))
    }

    /// Waits at most [`TIMEOUT`] for the collector.
    pub(crate) fn flush(&self) {
        let (done, is_done) = mpsc::channel();
        if self.sender.try_send(Message::Flush(done)).is_ok() {
            let _ = is_done.recv_timeout(TIMEOUT);
        }
    }
}

impl Tracer for Exporter {
    fn begin(&self, parent: Option<Parent>) -> Option<(u128, u64)> {
        let is_wanted = match parent {
            Some(parent) => parent.is_sampled,
            None => self.ratio >= 1.0 || (environment::random_u64() as f64) < self.ratio * u64::MAX as f64,
        };
        let random = || u128::from(environment::random_u64()) << 64 | u128::from(environment::random_u64());
        is_wanted.then(|| (parent.map_or_else(random, |parent| parent.trace), environment::random_u64() | 1))
    }

    fn end(&self, span: Span) {
        let _ = self.sender.try_send(Message::Ended { span, at_us: environment::now_us() });
    }
}

impl Endpoint {
    fn parse(url: &str) -> anyhow::Result<Self> {
        let Some(rest) = url.strip_prefix("http://") else {
            bail!("{url}: only http:// is possible; run a collector on this machine and let it send on with TLS");
        };
        let (authority, path) = rest.split_once('/').map_or((rest, ""), |(authority, path)| (authority, path));
        ensure!(!authority.is_empty() && !authority.contains('@'), "{url}: a host and a port are needed");
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let authority = if has_port { authority.to_owned() } else { format!("{authority}:4318") };
        let path = if path.is_empty() { "/v1/traces".to_owned() } else { format!("/{path}") };
        Ok(Self { authority, path })
    }

    fn post(&self, body: &str) -> anyhow::Result<()> {
        let address = self.authority.to_socket_addrs()?.next().context("the host has no address")?;
        let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let (path, authority, length) = (&self.path, &self.authority, body.len());
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        )?;
        let mut head = [0; 12];
        stream.read_exact(&mut head)?;
        ensure!(head.starts_with(b"HTTP/1.") && head[9] == b'2', "answered {}", String::from_utf8_lossy(&head));
        Ok(())
    }
}

fn run(receiver: &Receiver<Message>, endpoint: &Endpoint, service: &str) {
    let (mut spans, mut waiting, mut was_reported) = (Vec::new(), Vec::new(), false);
    loop {
        let message = receiver.recv_timeout(INTERVAL);
        let is_over = matches!(message, Err(RecvTimeoutError::Disconnected));
        let mut is_due = message.is_err();
        match message {
            Ok(Message::Ended { span, at_us }) => spans.push((span, at_us)),
            Ok(Message::Flush(done)) => {
                waiting.push(done);
                is_due = true;
            }
            Err(_) => {}
        }
        if !spans.is_empty() && (is_due || spans.len() >= SPANS_PER_REQUEST) {
            let sent = endpoint.post(&encode(&spans, service));
            if let Err(error) = &sent
                && !was_reported
            {
                tracing::warn!(error = format!("{error:#}"), "traces do not reach the collector");
            }
            was_reported = sent.is_err();
            spans.clear();
        }
        if is_due {
            for done in waiting.drain(..) {
                let _ = done.send(());
            }
        }
        if is_over {
            return;
        }
    }
}

/// Shape: `ExportTraceServiceRequest` in JSON.
fn encode(spans: &[(Span, u64)], service: &str) -> String {
    let mut text = String::from(r#"{"resourceSpans":[{"resource":{"attributes":["#);
    attribute(&mut text, "service.name", &Attribute::Text(service.to_owned()));
    text.push(',');
    attribute(&mut text, "service.version", &Attribute::Text(env!("CARGO_PKG_VERSION").to_owned()));
    text.push_str(r#"]},"scopeSpans":[{"scope":{"name":"settee"},"spans":["#);
    for (index, (span, at_us)) in spans.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        let _ = write!(text, r#"{{"traceId":"{:032x}","spanId":"{:016x}","#, span.trace, span.id);
        if let Some(parent) = span.parent {
            let _ = write!(text, r#""parentSpanId":"{parent:016x}","#);
        }
        let (begun_us, code) = (at_us.saturating_sub(span.duration_us), if span.is_failed { 2 } else { 0 });
        let _ = write!(
            text,
            r#""name":{},"kind":2,"startTimeUnixNano":"{begun_us}000","endTimeUnixNano":"{at_us}000","status":{{"code":{code}}},"attributes":["#,
            quoted(&span.name)
        );
        for (index, (name, value)) in span.attributes.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            attribute(&mut text, name, value);
        }
        text.push_str("]}");
    }
    text.push_str("]}]}]}");
    text
}

fn attribute(text: &mut String, name: &str, value: &Attribute) {
    let value = match value {
        Attribute::Text(value) => format!(r#""stringValue":{}"#, quoted(&crate::log::redact(value))),
        Attribute::Number(value) => format!(r#""intValue":"{value}""#),
    };
    let _ = write!(text, r#"{{"key":"{name}","value":{{{value}}}}}"#);
}

fn quoted(text: &str) -> String {
    let mut out = Vec::new();
    write_string(&mut out, text);
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use settee_model::json::Json;

    use super::*;

    #[test]
    fn endpoints() {
        for (url, expected) in [
            ("http://127.0.0.1:4318", Some(("127.0.0.1:4318", "/v1/traces"))),
            ("http://collector/", Some(("collector:4318", "/v1/traces"))),
            ("http://[::1]:9/otlp/v1/traces", Some(("[::1]:9", "/otlp/v1/traces"))),
            ("https://collector:4318", None),
            ("http://", None),
            ("http://ann:secret@host:1", None),
        ] {
            let found = Endpoint::parse(url).ok();
            let found = found.as_ref().map(|found| (found.authority.as_str(), found.path.as_str()));
            assert_eq!(found, expected, "{url}");
        }
    }

    #[test]
    fn spans_in_json() {
        let span = Span {
            trace: 0xab,
            id: 7,
            parent: Some(9),
            name: "GET /{db}".to_owned(),
            duration_us: 500,
            is_failed: true,
            attributes: vec![
                ("url.path", Attribute::Text("/db/\"x\"".to_owned())),
                ("http.response.status_code", Attribute::Number(500)),
            ],
        };
        let text = encode(&[(span.clone(), 1_000_500), (Span { parent: None, ..span }, 2_000_500)], "settee");
        Json::parse(text.as_bytes()).unwrap();
        for expected in [
            r#""traceId":"000000000000000000000000000000ab","spanId":"0000000000000007","parentSpanId":"0000000000000009""#,
            r#""startTimeUnixNano":"1000000000","endTimeUnixNano":"1000500000","status":{"code":2}"#,
            r#"{"key":"url.path","value":{"stringValue":"/db/\"x\""}}"#,
            r#"{"key":"http.response.status_code","value":{"intValue":"500"}}"#,
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert_eq!(text.matches("parentSpanId").count(), 1);
    }
}
