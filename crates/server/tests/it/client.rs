//! [`Client`]: an HTTP/1.1 connection that can also send requests that no library would send.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use settee_model::json::Json;

use crate::TIMEOUT;

pub(crate) struct Client {
    reader: BufReader<TcpStream>,
    authorization: Option<&'static str>,
}

#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).unwrap()
    }

    pub(crate) fn try_connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        Ok(Self { reader: BufReader::new(stream), authorization: None })
    }

    pub(crate) fn with(mut self, authorization: &'static str) -> Self {
        self.authorization = Some(authorization);
        self
    }

    pub(crate) fn get(&mut self, path: &str) -> Reply {
        self.request("GET", path, &[], b"").unwrap()
    }

    pub(crate) fn put(&mut self, path: &str, body: &str) -> Reply {
        self.request("PUT", path, &[], body.as_bytes()).unwrap()
    }

    pub(crate) fn post(&mut self, path: &str, body: &str) -> Reply {
        self.request("POST", path, &[("Content-Type", "application/json")], body.as_bytes()).unwrap()
    }

    pub(crate) fn delete(&mut self, path: &str) -> Reply {
        self.request("DELETE", path, &[], b"").unwrap()
    }

    pub(crate) fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Reply> {
        self.send(method, path, headers, body)?;
        self.reply(method)
    }

    pub(crate) fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> io::Result<()> {
        let mut bytes = self.head(method, path, headers);
        if !body.is_empty() {
            bytes.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(body);
        self.write(&bytes)
    }

    pub(crate) fn head(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: settee.test\r\n");
        for (name, value) in self.authorization.iter().map(|value| ("Authorization", *value)).chain(headers.to_vec()) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.into_bytes()
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    pub(crate) fn reply(&mut self, method: &str) -> io::Result<Reply> {
        let mut reply = self.reply_head()?;
        while reply.status == 100 {
            reply = self.reply_head()?;
        }
        if method == "HEAD" || matches!(reply.status, 204 | 304) {
            return Ok(reply);
        }
        if reply.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk()? {
                reply.body.extend_from_slice(&chunk);
            }
        } else if let Some(length) = reply.header("content-length") {
            reply.body = vec![0; length.parse().unwrap()];
            self.reader.read_exact(&mut reply.body)?;
        } else {
            self.reader.read_to_end(&mut reply.body)?;
        }
        Ok(reply)
    }

    pub(crate) fn reply_head(&mut self) -> io::Result<Reply> {
        let line = self.line()?;
        let status = line.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("no status line: {line:?}")))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(Reply { status, headers, body: Vec::new() });
            }
            let (name, value) = line.split_once(": ").unwrap_or((&line, ""));
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
    }

    pub(crate) fn take(&mut self, length: u64) -> io::Take<&mut BufReader<TcpStream>> {
        self.reader.by_ref().take(length)
    }

    pub(crate) fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let line = self.line()?;
        let len = usize::from_str_radix(&line, 16).map_err(|_| io::Error::other(format!("no chunk: {line:?}")))?;
        let mut chunk = vec![0; len + 2];
        self.reader.read_exact(&mut chunk)?;
        assert!(chunk.ends_with(b"\r\n"), "a chunk ends with its line");
        chunk.truncate(len);
        Ok((len > 0).then_some(chunk))
    }

    #[track_caller]
    pub(crate) fn chunks_until(&mut self, end: &str) -> String {
        let mut text = Vec::new();
        while !text.ends_with(end.as_bytes()) {
            let chunk = self.chunk().unwrap();
            let chunk = chunk.unwrap_or_else(|| panic!("the end came first: {}", String::from_utf8_lossy(&text)));
            text.extend_from_slice(&chunk);
        }
        String::from_utf8(text).unwrap()
    }

    pub(crate) fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.reader.read_to_end(&mut rest) {
            Ok(_) => rest.is_empty(),
            Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end_matches("\r\n").to_owned())
    }
}

impl Reply {
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.beginning());
        self
    }

    #[track_caller]
    pub(crate) fn expect_error(self, status: u16, error: &str, reason: &str) -> Self {
        let mut body = br#"{"error":"#.to_vec();
        settee_model::json::write_string(&mut body, error);
        body.extend_from_slice(br#","reason":"#);
        settee_model::json::write_string(&mut body, reason);
        body.extend_from_slice(b"}\n");
        assert_eq!((self.status, self.beginning()), (status, String::from_utf8_lossy(&body).into_owned()));
        self
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn beginning(&self) -> String {
        self.text().chars().take(1000).collect()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Json {
        Json::parse(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.beginning()))
    }
}
