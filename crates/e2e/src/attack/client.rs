//! [`Connection`]: an HTTP/1.1 connection for attacks and measurements, bounded by a deadline and a stop flag.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

const TIMEOUT: Duration = Duration::from_secs(60);

/// A connection attempt of more than a second means that the system has dropped an attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A blocked call checks the stop flag in this interval.
const POLL: Duration = Duration::from_millis(200);

pub(crate) struct Connection {
    stream: BufReader<Bounded>,
    is_closing: bool,
}

/// Calls fail at the deadline, and when `stop` is true.
struct Bounded {
    stream: TcpStream,
    timeout: Duration,
    deadline: Instant,
    stop: Option<Arc<AtomicBool>>,
}

pub(crate) fn split(url: &str) -> Result<(SocketAddr, String)> {
    let rest = url.strip_prefix("http://").context("a server has a URL")?;
    let (credentials, address) = rest.rsplit_once('@').context("there is an admin")?;
    Ok((address.parse().context("a server has an address")?, basic(credentials)))
}

fn basic(credentials: &str) -> String {
    format!("Authorization: Basic {}\r\n", base64(credentials.as_bytes()))
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len() / 3 * 4 + 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for digit in 0..4 {
            let value = bits >> (18 - 6 * digit) & 63;
            out.push(if digit <= group.len() { char::from(DIGITS[value as usize]) } else { '=' });
        }
    }
    out
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        Self::begin(address, None)
    }

    pub(super) fn open_until(address: SocketAddr, stop: &Arc<AtomicBool>) -> io::Result<Self> {
        Self::begin(address, Some(Arc::clone(stop)))
    }

    fn begin(address: SocketAddr, stop: Option<Arc<AtomicBool>>) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(POLL))?;
        stream.set_write_timeout(Some(POLL))?;
        let bounded = Bounded { stream, timeout: TIMEOUT, deadline: Instant::now() + TIMEOUT, stop };
        Ok(Self { stream: BufReader::with_capacity(16 << 10, bounded), is_closing: false })
    }

    pub(crate) fn with_timeout(mut self, timeout: Duration) -> Self {
        self.stream.get_mut().timeout = timeout;
        self
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let bounded = self.stream.get_mut();
        bounded.deadline = Instant::now() + bounded.timeout;
        bounded.write_all(bytes)
    }

    pub(super) fn drain(&mut self) -> io::Result<u64> {
        io::copy(&mut self.stream, &mut io::sink())
    }

    /// Each header must have its line end. Returns the status and the body.
    pub(crate) fn ask(&mut self, line: &str, headers: &str, body: &[u8]) -> io::Result<(u16, Vec<u8>)> {
        self.write(&[&head(line, headers, body.len()), body].concat())?;
        self.answer()
    }

    /// Passes the response body to `take` piece by piece, with no limit on its length. Returns the status.
    pub(crate) fn read(&mut self, line: &str, headers: &str, take: &mut dyn FnMut(&[u8])) -> io::Result<u16> {
        self.write(&head(line, headers, 0))?;
        self.answer_to(take)
    }

    pub(super) fn answer(&mut self) -> io::Result<(u16, Vec<u8>)> {
        let mut body = Vec::new();
        let status = self.answer_to(&mut |piece| body.extend_from_slice(piece))?;
        Ok((status, body))
    }

    fn answer_to(&mut self, take: &mut dyn FnMut(&[u8])) -> io::Result<u16> {
        let status = self.line()?.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let (mut length, mut chunked) = (0, false);
        loop {
            let line = self.line()?.to_ascii_lowercase();
            match line.split_once(": ") {
                None => break,
                Some(("content-length", value)) => length = value.parse().unwrap_or(0),
                Some(("transfer-encoding", _)) => chunked = true,
                Some(("connection", "close")) => self.is_closing = true,
                Some(_) => {}
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        take(&body);
        while chunked {
            let size = usize::from_str_radix(&self.line()?, 16).map_err(io::Error::other)?;
            body.resize(size + 2, 0);
            self.stream.read_exact(&mut body)?;
            take(&body[..size]);
            chunked = size > 0;
        }
        Ok(status)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }
}

impl Bounded {
    /// Retries until the call succeeds, the stop flag is set, or the timeout has passed.
    fn until_over<T>(&mut self, mut act: impl FnMut(&mut TcpStream) -> io::Result<T>) -> io::Result<T> {
        loop {
            if self.deadline <= Instant::now() || self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match act(&mut self.stream) {
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                done => return done,
            }
        }
    }
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.until_over(|stream| stream.read(buffer))
    }
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.until_over(|stream| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn head(line: &str, headers: &str, length: usize) -> Vec<u8> {
    let length = if line.starts_with("GET") { String::new() } else { format!("Content-Length: {length}\r\n") };
    format!("{line} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{headers}{length}\r\n").into_bytes()
}
