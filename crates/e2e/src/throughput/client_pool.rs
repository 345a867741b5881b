//! [`ClientPool`]: clients that write single documents, all in one thread: waking a thread for each response would cost
//! more than the requests themselves.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::load::{document, mixed};
use crate::attack::client::head;

const IO_TIMEOUT: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

const ANSWER_BYTES: usize = 2 << 10;

#[derive(Default)]
pub(super) struct ClientPool(Vec<Client>);

struct Client {
    stream: TcpStream,
    authorization: String,
    database: String,
    random: u64,
    written: u64,
    request: Vec<u8>,
    sent: usize,
    started: Instant,
    answer: Vec<u8>,
    is_waiting: bool,
}

impl ClientPool {
    pub(super) fn join(
        &mut self,
        address: SocketAddr,
        authorization: &str,
        database: String,
        number: u64,
    ) -> Result<()> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        self.0.push(Client {
            stream,
            authorization: authorization.to_owned(),
            database,
            random: number,
            written: 0,
            request: Vec::new(),
            sent: 0,
            started: Instant::now(),
            answer: Vec::with_capacity(ANSWER_BYTES),
            is_waiting: false,
        });
        Ok(())
    }

    /// Returns the number of acknowledged documents, and the milliseconds of the requests from `begin` to `end`.
    pub(super) fn run(mut self, begin: Instant, end: Instant) -> Result<(u64, Vec<f64>)> {
        let mut latencies = Vec::new();
        for client in &mut self.0 {
            client.ask()?;
        }
        while let Some(ready) = self.wait()? {
            for at in ready {
                let client = &mut self.0[at];
                if !client.make_progress()? {
                    continue;
                }
                let now = Instant::now();
                if now >= begin && now < end {
                    latencies.push((now - client.started).as_secs_f64() * 1e3);
                }
                if now < end {
                    client.ask()?;
                }
            }
        }
        Ok((self.0.iter().map(|client| client.written).sum(), latencies))
    }

    fn wait(&self) -> Result<Option<Vec<usize>>> {
        let waiting: Vec<(usize, &Client)> =
            self.0.iter().enumerate().filter(|(_, client)| client.is_waiting).collect();
        if waiting.is_empty() {
            return Ok(None);
        }
        let wants = |client: &Client| if client.sent < client.request.len() { PollFlags::OUT } else { PollFlags::IN };
        let mut polled: Vec<PollFd<'_>> =
            waiting.iter().map(|(_, client)| PollFd::new(&client.stream, wants(client))).collect();
        ensure!(poll(&mut polled, Some(&IO_TIMEOUT))? > 0, "no answer for {} s", IO_TIMEOUT.tv_sec);
        let ready = waiting.iter().zip(&polled).filter(|(_, polled)| !polled.revents().is_empty());
        Ok(Some(ready.map(|((at, _), _)| *at).collect()))
    }
}

impl Client {
    fn ask(&mut self) -> Result<()> {
        let id = format!("{:016x}{:016x}", mixed(&mut self.random), mixed(&mut self.random));
        let (line, body) = (format!("PUT /{}/{id}", self.database), document(self.written, None));
        self.request = head(&line, &self.authorization, body.len());
        self.request.extend_from_slice(body.as_bytes());
        (self.sent, self.started, self.is_waiting) = (0, Instant::now(), true);
        self.answer.clear();
        self.send()
    }

    fn send(&mut self) -> Result<()> {
        while self.sent < self.request.len() {
            match self.stream.write(&self.request[self.sent..]) {
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn make_progress(&mut self) -> Result<bool> {
        if self.sent < self.request.len() {
            self.send()?;
            return Ok(false);
        }
        let mut piece = [0; ANSWER_BYTES];
        match self.stream.read(&mut piece) {
            Ok(0) => bail!("a connection was closed"),
            Ok(bytes) => self.answer.extend_from_slice(&piece[..bytes]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let Some(status) = status(&self.answer)? else { return Ok(false) };
        ensure!(status == 201, "a document was not written: {}", String::from_utf8_lossy(&self.answer));
        self.written += 1;
        self.is_waiting = false;
        Ok(true)
    }
}

/// `None` while the response is incomplete. Its body must have a length, as for single documents.
fn status(answer: &[u8]) -> Result<Option<u16>> {
    const LENGTH: &[u8] = b"content-length: ";
    let Some(end) = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { return Ok(None) };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (head, body) = (&answer[..end], answer.len() - end - 4);
    let status = text(head.get(9..12).unwrap_or_default()).parse().context("there is no status")?;
    let mut lines = head.split(|byte| *byte == b'\n');
    let length =
        lines.find_map(|line| line.get(LENGTH.len()..).filter(|_| line[..LENGTH.len()].eq_ignore_ascii_case(LENGTH)));
    let length: usize = text(length.context("there is no length")?).trim().parse().context("that is not a length")?;
    ensure!(body <= length, "there is more than one answer");
    Ok((body == length).then_some(status))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use std::io::BufRead as _;
    use std::io::BufReader;
    use std::net::TcpListener;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn an_answer_is_whole_with_its_last_byte() {
        let answer = b"HTTP/1.1 201 Created\r\nServer: x\r\nContent-Length: 5\r\nDate: y\r\n\r\n{ok}\n";
        for end in 0..answer.len() {
            assert_eq!(status(&answer[..end]).unwrap(), None, "{end}");
        }
        assert_eq!(status(answer).unwrap(), Some(201));
        assert!(status(&[answer, &b"x"[..]].concat()).is_err());
        assert!(status(b"HTTP/1.1 201 Created\r\n\r\n").is_err());
        assert!(status(b"HTTP\r\n\r\n").is_err());
    }

    fn serve(listener: &TcpListener, status: &str) -> usize {
        let mut stream = listener.accept().unwrap().0;
        let (mut reader, mut served) = (BufReader::new(stream.try_clone().unwrap()), 0);
        loop {
            let (mut line, mut length) = (String::new(), 0);
            while line != "\r\n" {
                line.clear();
                if reader.read_line(&mut line).unwrap_or_default() == 0 {
                    return served;
                }
                if let Some(value) = line.strip_prefix("Content-Length: ") {
                    length = value.trim().parse().unwrap();
                }
            }
            reader.read_exact(&mut vec![0; length]).unwrap();
            served += 1;
            for piece in [&format!("HTTP/1.1 {status} x\r\ncontent-le"), "ngth: 2\r\n\r\n{}"] {
                if stream.write_all(piece.as_bytes()).is_err() {
                    return served;
                }
            }
        }
    }

    fn crowd_of(listeners: &[TcpListener]) -> ClientPool {
        let mut client_pool = ClientPool::default();
        for (number, listener) in listeners.iter().enumerate() {
            client_pool.join(listener.local_addr().unwrap(), "", "db".to_owned(), number as u64).unwrap();
        }
        client_pool
    }

    #[test]
    fn each_writes_when_it_has_its_answer() {
        let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        for length in (0..20).map(|doublings| Duration::from_millis(10 << doublings)) {
            let begin = Instant::now();
            let (served, written, latencies) = thread::scope(|scope| {
                let servers = listeners.each_ref().map(|listener| scope.spawn(|| serve(listener, "201")));
                let (written, latencies) = crowd_of(&listeners).run(begin, begin + length).unwrap();
                (servers.map(|server| server.join().unwrap()), written, latencies)
            });
            assert_eq!(served.iter().sum::<usize>() as u64, written);
            assert!(served.iter().all(|served| *served > 0), "{served:?}");
            assert!(latencies.len() as u64 <= written);
            if served.iter().all(|served| *served > 1) && !latencies.is_empty() {
                return;
            }
        }
        panic!("one client never writes twice");
    }

    #[test]
    fn a_rejection_ends_the_run() {
        let listeners = [TcpListener::bind("127.0.0.1:0").unwrap()];
        thread::scope(|scope| {
            scope.spawn(|| serve(&listeners[0], "409"));
            let now = Instant::now();
            let error = crowd_of(&listeners).run(now, now + Duration::from_secs(60)).unwrap_err();
            assert!(error.to_string().contains("not written: HTTP/1.1 409"), "{error}");
        });
    }
}
