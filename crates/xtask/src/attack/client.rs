//! [`Connection`]: one connection that speaks HTTP/1.1, as well as is needed to attack and to measure.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result};

const TIMEOUT: Duration = Duration::from_secs(60);

/// A connection.
pub(super) struct Connection(BufReader<TcpStream>);

/// Address and credentials of `http://name:password@address`.
pub(super) fn split(url: &str) -> Result<(SocketAddr, String)> {
    let rest = url.strip_prefix("http://").context("a server has a URL")?;
    let (credentials, address) = rest.rsplit_once('@').context("there is an admin")?;
    Ok((address.parse().context("a server has an address")?, basic(credentials)))
}

/// The header that says who asks.
fn basic(credentials: &str) -> String {
    format!("Authorization: Basic {}\r\n", base64(credentials.as_bytes()))
}

pub(super) fn base64(bytes: &[u8]) -> String {
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
    pub(super) fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self(BufReader::with_capacity(16 << 10, stream)))
    }

    /// The stream, for who has no patience or does not want to read.
    pub(super) fn stream(&self) -> &TcpStream {
        self.0.get_ref()
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.get_mut().write_all(bytes)
    }

    /// Sends a request with further headers, each with its line end, and answers the status and the body.
    pub(super) fn ask(&mut self, line: &str, headers: &str, body: &[u8]) -> io::Result<(u16, Vec<u8>)> {
        self.write(&head(line, headers, body.len()))?;
        self.write(body)?;
        self.answer()
    }

    pub(super) fn answer(&mut self) -> io::Result<(u16, Vec<u8>)> {
        let status = self.line()?.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let (mut length, mut chunked) = (0, false);
        loop {
            let line = self.line()?.to_ascii_lowercase();
            match line.split_once(": ") {
                None => break,
                Some(("content-length", value)) => length = value.parse().unwrap_or(0),
                Some(("transfer-encoding", _)) => chunked = true,
                Some(_) => {}
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body)?;
        while chunked {
            let size = usize::from_str_radix(&self.line()?, 16).map_err(io::Error::other)?;
            let mut chunk = vec![0; size + 2];
            self.0.read_exact(&mut chunk)?;
            body.extend_from_slice(&chunk[..size]);
            chunked = size > 0;
        }
        Ok((status, body))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.0.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }
}

/// The head of a request.
pub(super) fn head(line: &str, headers: &str, length: usize) -> Vec<u8> {
    let length = if line.starts_with("GET") { String::new() } else { format!("Content-Length: {length}\r\n") };
    format!("{line} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{headers}{length}\r\n").into_bytes()
}
