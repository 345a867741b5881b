//! [`Client`]: an HTTP/1.1 connection with streamed bodies of any length in both directions.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use settee_model::json::Json;

use super::url::DatabaseUrl;

const TIMEOUT: Duration = Duration::from_secs(300);

const LINE_BYTES: u64 = 64 << 10;

pub(super) struct Client {
    url: DatabaseUrl,
    stream: BufReader<TcpStream>,
}

pub(super) struct Answer<'a> {
    pub(super) status: u16,
    body: Body<'a>,
}

pub(super) struct Body<'a> {
    stream: &'a mut BufReader<TcpStream>,
    left: u64,
    is_chunked: bool,
    is_over: bool,
}

impl Client {
    pub(super) fn connect(url: DatabaseUrl) -> anyhow::Result<Self> {
        let stream = dial(&url)?;
        Ok(Self { url, stream })
    }

    pub(super) fn send(&mut self, method: &str, path: &str, body: &[u8]) -> anyhow::Result<Answer<'_>> {
        let content_type = "application/json";
        let length = body.len() as u64;
        if self.begin(method, path, content_type, length).and_then(|mut out| Ok(out.write_all(body)?)).is_err() {
            // The server may close an idle connection at any time, so the request is retried on a new one.
            self.stream = dial(&self.url)?;
            self.begin(method, path, content_type, length)?.write_all(body)?;
        }
        self.answer(method)
    }

    pub(super) fn send_stream(
        &mut self,
        path: &str,
        content_type: &str,
        length: u64,
        write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>,
    ) -> anyhow::Result<Answer<'_>> {
        // A partially sent body cannot be retried, hence the new connection.
        self.stream = dial(&self.url)?;
        let mut out = BufWriter::new(self.begin("PUT", path, content_type, length)?);
        write(&mut out)?;
        out.flush()?;
        drop(out);
        self.answer("PUT")
    }

    fn begin(&mut self, method: &str, path: &str, content_type: &str, length: u64) -> anyhow::Result<&TcpStream> {
        let DatabaseUrl { authority, authorization, path: database, .. } = &self.url;
        let mut head = format!(
            "{method} {database}{path} HTTP/1.1\r\nHost: {authority}\r\nAccept: application/json\r\n\
             Content-Type: {content_type}\r\nContent-Length: {length}\r\n"
        );
        if let Some(authorization) = authorization {
            head.push_str(&format!("Authorization: {authorization}\r\n"));
        }
        head.push_str("\r\n");
        let mut stream = self.stream.get_ref();
        stream.write_all(head.as_bytes())?;
        Ok(self.stream.get_ref())
    }

    fn answer(&mut self, method: &str) -> anyhow::Result<Answer<'_>> {
        let line = line(&mut self.stream).context("the server sent no response")?;
        let status = line.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)?.parse().ok());
        let status: u16 = status.with_context(|| format!("this is not an HTTP server: {line}"))?;
        let (mut left, mut is_chunked) = (0, false);
        loop {
            let header = self::line(&mut self.stream)?;
            let Some((name, value)) = header.split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => left = value.trim().parse().context("a response has no length")?,
                "transfer-encoding" => is_chunked = value.trim().eq_ignore_ascii_case("chunked"),
                _ => {}
            }
        }
        let is_over = method == "HEAD" || !is_chunked && left == 0;
        Ok(Answer { status, body: Body { stream: &mut self.stream, left, is_chunked, is_over } })
    }
}

impl<'a> Answer<'a> {
    /// Fails unless the status is 2xx.
    pub(super) fn ok(mut self, label: &str) -> anyhow::Result<Body<'a>> {
        if (200..300).contains(&self.status) {
            return Ok(self.body);
        }
        let mut text = String::new();
        Read::by_ref(&mut self.body).take(LINE_BYTES).read_to_string(&mut text)?;
        bail!("{label}: the server responded with {} {}", self.status, text.trim())
    }

    /// Fails unless the status is 2xx.
    pub(super) fn json(self, label: &str) -> anyhow::Result<Json> {
        let mut bytes = Vec::new();
        self.ok(label)?.read_to_end(&mut bytes).with_context(|| label.to_owned())?;
        Json::parse(&bytes).with_context(|| format!("{label}: the response is not JSON"))
    }

    /// Reads the response to its end, so that the connection can be reused.
    pub(super) fn discard(mut self) -> anyhow::Result<u16> {
        io::copy(&mut self.body, &mut io::sink())?;
        Ok(self.status)
    }
}

impl Read for Body<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.is_over || out.is_empty() {
            return Ok(0);
        }
        if self.is_chunked && self.left == 0 {
            self.left = self.next_chunk()?;
            if self.left == 0 {
                self.is_over = true;
                return Ok(0);
            }
        }
        let wanted = out.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let length = self.stream.read(&mut out[..wanted])?;
        if length == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the response was interrupted"));
        }
        self.left -= length as u64;
        if self.left == 0 {
            if self.is_chunked {
                self.end_of_line()?;
            } else {
                self.is_over = true;
            }
        }
        Ok(length)
    }
}

impl Body<'_> {
    fn next_chunk(&mut self) -> io::Result<u64> {
        let text = line(self.stream).map_err(io::Error::other)?;
        let digits = text.split(';').next().unwrap_or_default().trim();
        let length = u64::from_str_radix(digits, 16).map_err(|_| io::Error::other("a chunk has no length"))?;
        if length == 0 {
            self.end_of_line()?;
        }
        Ok(length)
    }

    fn end_of_line(&mut self) -> io::Result<()> {
        let mut end = [0; 2];
        self.stream.read_exact(&mut end)
    }
}

fn dial(url: &DatabaseUrl) -> anyhow::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(&url.authority).with_context(|| format!("{} cannot be reached", url.authority))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(BufReader::with_capacity(64 << 10, stream))
}

fn line(stream: &mut BufReader<TcpStream>) -> anyhow::Result<String> {
    let mut line = String::new();
    stream.take(LINE_BYTES).read_line(&mut line)?;
    ensure!(line.ends_with('\n'), "the connection ended");
    Ok(line.trim_end().to_owned())
}
