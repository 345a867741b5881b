//! A query server process: [`Process`]. Starts it, sends commands and receives responses ([`Process::exchange`]), kills
//! it.
//!
//! Callers interpret commands; here a response is a line of JSON that is neither a log line nor an error.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use settee_design::{CANCELLATION_INTERVAL, Cancellation, Cancelled};
use settee_model::json::{self, Kind, Value};

use crate::settings::{Log, Settings};
use crate::starter;

/// Requested size of each pipe; the default of Linux is a sixteenth of it.
const PIPE_BYTES: usize = 1 << 20;

/// Commands are buffered up to this length before they are written.
const WRITE_BYTES: usize = 128 << 10;

const READ_BYTES: usize = 64 << 10;

/// Maximum length of a line of a server. A response contains all rows of one document, and is copied once or twice; the
/// limit is half of the limit of one function in other languages, which pass on their rows one by one.
const LINE_BYTES: usize = 32 << 20;

/// Pause before reading while the server has pending input: otherwise each of its responses would wake the reader,
/// which costs the server more than a small document.
const NAP: Duration = Duration::from_micros(500);

/// Part of standard error that is kept for explaining an exit.
const TAIL_BYTES: usize = 1_000;

/// Maximum bytes from standard error that one process may write to the log in one use.
const ERROR_LOG_BYTES: usize = 16 << 10;

/// Time for which a process that closed its output may take to exit, so that its exit status is available.
const END_WAIT: Duration = Duration::from_millis(500);

/// Reason why an exchange failed. The process must be discarded after any of these except [`Failure::Refused`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The program could not be started.
    #[error("the query server for {language} cannot be started: {error}")]
    Start { language: Arc<str>, error: io::Error },
    #[error("the query server for {language} ended: {how}")]
    Died { language: Arc<str>, how: String },
    #[error("the query server for {language} gave no answer within {timeout_ms} ms")]
    Timeout { language: Arc<str>, timeout_ms: u64 },
    #[error("the query server for {language} broke the protocol: {label}")]
    Garbled { language: Arc<str>, label: String },
    #[error("{0}")]
    Limit(String),
    #[error("{name}: {reason}")]
    Refused { name: String, reason: String },
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    /// All permitted processes were busy for too long.
    #[error("all processes of the query server for {language} are busy; see [query_server_config] os_process_limit")]
    Busy { language: Arc<str> },
}

pub(crate) enum Problem {
    Garbled(String),
    Limit(String),
}

/// Source of commands and receiver of responses.
pub(crate) trait Exchange {
    /// Appends the next command without a line feed; false if there is none.
    fn next_command(&mut self, out: &mut Vec<u8>) -> bool;

    /// Receives the response to the oldest pending command.
    fn answer(&mut self, answer: Value<'_>) -> Result<(), Problem>;

    fn log(&mut self, line: String);
}

pub(crate) struct Process {
    language: Arc<str>,
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    stderr: Option<ChildStderr>,
    settings: Arc<Settings>,
    log: Log,
    pipe_bytes: usize,
    buffer: Vec<u8>,
    /// Bytes that were read and not processed yet, from `taken` on; there is no line feed before `scanned`.
    received: Vec<u8>,
    taken: usize,
    scanned: usize,
    line: Vec<u8>,
    /// The end of standard error.
    tail: Vec<u8>,
    error_log_left: usize,
    is_error_log_cut: bool,
    has_answered: bool,
    /// Cancellation of the client on whose behalf it works.
    cancellation: Cancellation,
}

struct Flow {
    out: Vec<u8>,
    written: usize,
    open: VecDeque<usize>,
    open_bytes: usize,
    is_more: bool,
    last_answer: Instant,
}

impl Process {
    pub(crate) fn start(
        language: &Arc<str>,
        command: &str,
        settings: &Arc<Settings>,
        log: &Log,
    ) -> Result<Self, Failure> {
        let failed = |error| Failure::Start { language: Arc::clone(language), error };
        let mut shell = Command::new("/bin/sh");
        shell
            .arg("-c")
            // The shell parses the command line, as it does for CouchDB, and is replaced by the server.
            .arg(format!("exec {command}"))
            .env_clear()
            .envs(settings.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own, so that it is killed together with its children.
            .process_group(0);
        let mut child = starter::start(shell).map_err(failed)?;
        let (Some(stdin), Some(stdout), stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take()) else {
            return Err(failed(io::Error::other("no pipes")));
        };
        let mut process = Self {
            language: Arc::clone(language),
            child,
            stdin,
            stdout,
            stderr,
            settings: Arc::clone(settings),
            log: Arc::clone(log),
            pipe_bytes: 64 << 10,
            buffer: vec![0; READ_BYTES],
            received: Vec::new(),
            taken: 0,
            scanned: 0,
            line: Vec::new(),
            tail: Vec::new(),
            error_log_left: ERROR_LOG_BYTES,
            is_error_log_cut: false,
            has_answered: false,
            cancellation: Cancellation::never(),
        };
        process.set_up().map_err(failed)?;
        Ok(process)
    }

    fn set_up(&mut self) -> io::Result<()> {
        unblock(&self.stdin)?;
        unblock(&self.stdout)?;
        if let Some(stderr) = &self.stderr {
            unblock(stderr)?;
        }
        self.pipe_bytes = enlarge(&self.stdin).unwrap_or(self.pipe_bytes);
        // Small pipes cost performance only.
        let _ = enlarge(&self.stdout);
        // When memory is short, the kernel shall end this process rather than the server. Its own limit applies in any
        // case.
        #[cfg(target_os = "linux")]
        let _ = std::fs::write(format!("/proc/{}/oom_score_adj", self.child.id()), "1000");
        #[cfg(target_os = "linux")]
        if let Some(bytes) = self.settings.memory_bytes {
            use rustix::process::{Resource, Rlimit, prlimit};
            let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
            // Limits writable memory; reserved address space is not counted.
            let pid = rustix::process::Pid::from_child(&self.child);
            match prlimit(Some(pid), Resource::Data, limit) {
                // It has exited already; its first command reports how.
                Ok(_) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Ends waits for responses when `cancellation` is cancelled.
    pub(crate) fn work_for(&mut self, cancellation: &Cancellation) {
        self.cancellation = cancellation.clone();
    }

    pub(crate) fn begin_use(&mut self) {
        self.error_log_left = ERROR_LOG_BYTES;
        self.is_error_log_cut = false;
    }

    /// Returns true if there is no unsolicited output, which would be mistaken for the response to the next command.
    /// Log lines are permitted.
    pub(crate) fn is_quiet(&mut self) -> bool {
        struct Nothing<'a>(&'a Log, &'a Arc<str>);
        impl Exchange for Nothing<'_> {
            fn next_command(&mut self, _: &mut Vec<u8>) -> bool {
                false
            }

            fn answer(&mut self, _: Value<'_>) -> Result<(), Problem> {
                Ok(())
            }

            fn log(&mut self, line: String) {
                (self.0)(self.1, &line);
            }
        }
        let (log, language) = (Arc::clone(&self.log), Arc::clone(&self.language));
        self.exchange(&mut Nothing(&log, &language)).is_ok() && self.received.is_empty()
    }

    /// Sends one command, and returns its response as compact JSON text.
    pub(crate) fn ask(&mut self, command: &[u8], log: &mut dyn FnMut(String)) -> Result<Vec<u8>, Failure> {
        struct One<'a> {
            command: Option<&'a [u8]>,
            answer: Vec<u8>,
            log: &'a mut dyn FnMut(String),
        }
        impl Exchange for One<'_> {
            fn next_command(&mut self, out: &mut Vec<u8>) -> bool {
                self.command.take().map(|command| out.extend_from_slice(command)).is_some()
            }

            fn answer(&mut self, answer: Value<'_>) -> Result<(), Problem> {
                self.answer.extend_from_slice(answer.raw());
                Ok(())
            }

            fn log(&mut self, line: String) {
                (self.log)(line);
            }
        }
        let mut one = One { command: Some(command), answer: Vec::new(), log };
        self.exchange(&mut one)?;
        Ok(one.answer)
    }

    /// Writes all commands and reads all responses, both as the pipes permit. Each response has the timeout of the
    /// settings, measured from the previous one; the first one may take as long as the start of a process.
    pub(crate) fn exchange(&mut self, exchange: &mut dyn Exchange) -> Result<(), Failure> {
        let mut flow = Flow {
            out: Vec::new(),
            written: 0,
            open: VecDeque::new(),
            open_bytes: 0,
            is_more: true,
            last_answer: Instant::now(),
        };
        // Nothing was requested yet, so only log lines are permitted.
        self.read(&mut flow, exchange)?;
        loop {
            flow.fill(exchange);
            self.write(&mut flow)?;
            if flow.is_done() {
                return Ok(());
            }
            if flow.written_open_bytes() >= self.pipe_bytes - self.pipe_bytes / 4 {
                std::thread::sleep(NAP);
            }
            self.wait(&flow)?;
            self.read(&mut flow, exchange)?;
            self.read_errors();
        }
    }

    /// Waits until reading or writing is possible.
    fn wait(&mut self, flow: &Flow) -> Result<(), Failure> {
        let Settings { timeout_ms, start_timeout_ms, .. } = *self.settings;
        let timeout_ms = if self.has_answered { timeout_ms } else { timeout_ms.max(start_timeout_ms) };
        let left = Duration::from_millis(timeout_ms).saturating_sub(flow.last_answer.elapsed());
        if left.is_zero() {
            return Err(Failure::Timeout { language: Arc::clone(&self.language), timeout_ms });
        }
        self.cancellation.check()?;
        let mut fds = vec![PollFd::new(&self.stdout, PollFlags::IN)];
        if let Some(stderr) = &self.stderr {
            fds.push(PollFd::new(stderr, PollFlags::IN));
        }
        if flow.written < flow.out.len() {
            fds.push(PollFd::new(&self.stdin, PollFlags::OUT));
        }
        // Rounded up, to avoid busy waiting during the last millisecond.
        let left = left.min(CANCELLATION_INTERVAL) + Duration::from_millis(1);
        let timeout = Timespec::try_from(left).expect("some milliseconds fit");
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(self.garbled(format!("its pipes cannot be watched: {error}"))),
        }
    }

    fn write(&mut self, flow: &mut Flow) -> Result<(), Failure> {
        while flow.written < flow.out.len() {
            match self.stdin.write(&flow.out[flow.written..]) {
                Ok(0) => return Ok(()),
                Ok(count) => flow.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The process does not read any more; its output is more informative than this error.
                Err(_) => {
                    flow.written = flow.out.len();
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Reads the available output and processes complete lines.
    fn read(&mut self, flow: &mut Flow, exchange: &mut dyn Exchange) -> Result<(), Failure> {
        loop {
            match self.stdout.read(&mut self.buffer) {
                Ok(0) => return Err(self.died()),
                Ok(count) => {
                    self.received.extend_from_slice(&self.buffer[..count]);
                    self.take_lines(flow, exchange)?;
                    if count < READ_BYTES {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(self.died()),
            }
        }
    }

    fn take_lines(&mut self, flow: &mut Flow, exchange: &mut dyn Exchange) -> Result<(), Failure> {
        let mut result = Ok(());
        while result.is_ok()
            && let Some(length) = memchr::memchr(b'\n', &self.received[self.scanned..])
        {
            let end = self.scanned + length;
            let line = self.received[self.taken..end].trim_ascii();
            // Moved out, because the response borrows it while errors need the process.
            let mut compacted = std::mem::take(&mut self.line);
            compacted.clear();
            result = match json::compact(line, &mut compacted) {
                _ if line.is_empty() => Ok(()),
                Ok(()) => self.take_line(&compacted, flow, exchange),
                Err(error) => Err(self.garbled(format!("it wrote no JSON ({error}): {}", excerpt(line)))),
            };
            self.line = compacted;
            (self.taken, self.scanned) = (end + 1, end + 1);
        }
        if result.is_ok() {
            self.scanned = self.received.len();
        }
        if self.received.len() - self.taken > LINE_BYTES {
            return Err(Failure::Limit(format!("answered with more than {LINE_BYTES} bytes")));
        }
        if self.taken == self.received.len() {
            self.received.clear();
        } else {
            self.received.drain(..self.taken);
        }
        self.scanned -= self.taken;
        self.taken = 0;
        result
    }

    fn take_line(&mut self, line: &[u8], flow: &mut Flow, exchange: &mut dyn Exchange) -> Result<(), Failure> {
        let value = Value::trusted(line);
        match message(value) {
            Message::Log(text) => {
                exchange.log(text);
                Ok(())
            }
            Message::Error { name, reason } => Err(Failure::Refused { name, reason }),
            Message::Answer => {
                let Some(length) = flow.open.pop_front() else {
                    return Err(self.garbled(format!("it answered without a request: {}", excerpt(line))));
                };
                flow.open_bytes -= length;
                flow.last_answer = Instant::now();
                self.has_answered = true;
                exchange.answer(value).map_err(|problem| match problem {
                    Problem::Garbled(label) => self.garbled(format!("{label}: {}", excerpt(line))),
                    Problem::Limit(label) => Failure::Limit(label),
                })
            }
        }
    }

    fn read_errors(&mut self) {
        let mut buffer = [0; 4096];
        while let Some(stderr) = &mut self.stderr {
            match stderr.read(&mut buffer) {
                Ok(0) => self.stderr = None,
                Ok(count) => self.take_errors(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.stderr = None,
            }
        }
    }

    fn take_errors(&mut self, bytes: &[u8]) {
        let shown = &bytes[..bytes.len().min(self.error_log_left)];
        self.error_log_left -= shown.len();
        for line in String::from_utf8_lossy(shown).lines().filter(|line| !line.trim().is_empty()) {
            (self.log)(&self.language, line);
        }
        if shown.len() < bytes.len() && !std::mem::replace(&mut self.is_error_log_cut, true) {
            (self.log)(&self.language, "(further output on standard error is omitted)");
        }
        self.tail.extend_from_slice(bytes);
        let surplus = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..surplus);
    }

    fn garbled(&self, label: String) -> Failure {
        Failure::Garbled { language: Arc::clone(&self.language), label }
    }

    fn died(&mut self) -> Failure {
        let began = Instant::now();
        let status = loop {
            match self.child.try_wait() {
                Ok(None) if began.elapsed() < END_WAIT => std::thread::sleep(NAP),
                Ok(status) => break status,
                Err(_) => break None,
            }
        };
        self.read_errors();
        let mut how = status.map_or_else(|| "it closed its output".to_owned(), |status| status.to_string());
        let tail = String::from_utf8_lossy(&self.tail);
        let stderr_text = tail.trim().lines().rev().take(2).collect::<Vec<_>>();
        if !stderr_text.is_empty() {
            how.push_str("; it said: ");
            how.push_str(&stderr_text.into_iter().rev().collect::<Vec<_>>().join(" "));
        }
        Failure::Died { language: Arc::clone(&self.language), how }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have exited; its children are killed in any case.
        let group = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Flow {
    fn fill(&mut self, exchange: &mut dyn Exchange) {
        if self.written < self.out.len() {
            return;
        }
        self.out.clear();
        self.written = 0;
        while self.is_more && self.out.len() < WRITE_BYTES {
            let before = self.out.len();
            self.is_more = exchange.next_command(&mut self.out);
            if self.is_more {
                self.out.push(b'\n');
                let length = self.out.len() - before;
                if self.open.is_empty() {
                    self.last_answer = Instant::now();
                }
                self.open.push_back(length);
                self.open_bytes += length;
            }
        }
    }

    fn is_done(&self) -> bool {
        !self.is_more && self.open.is_empty() && self.written == self.out.len()
    }

    /// Returns the bytes of written commands without a response.
    fn written_open_bytes(&self) -> usize {
        self.open_bytes.saturating_sub(self.out.len() - self.written)
    }
}

enum Message {
    Log(String),
    Error { name: String, reason: String },
    Answer,
}

/// Distinguishes responses from log lines and errors, in the forms of all versions of the protocol.
fn message(value: Value<'_>) -> Message {
    match value.kind() {
        Kind::Array => {
            let mut elements = value.elements();
            let Some(first) = elements.next().filter(|first| first.kind() == Kind::String) else {
                return Message::Answer;
            };
            if first.is_string("log") {
                return Message::Log(elements.next().map(Value::to_text).unwrap_or_default());
            }
            if first.is_string("error") || first.is_string("fatal") {
                let name = elements.next().map(Value::to_text).unwrap_or_default();
                let reason = elements.next().map(Value::to_text).unwrap_or_default();
                return Message::Error { name, reason };
            }
            Message::Answer
        }
        Kind::Object => {
            if let Some(line) = value.get("log") {
                return Message::Log(line.to_text());
            }
            let Some(error) = value.get("error") else {
                return Message::Answer;
            };
            let part = |name| error.get(name).filter(|_| error.is_object()).map(Value::to_text);
            let name = part("id").unwrap_or_else(|| error.to_text());
            let reason = part("reason").or_else(|| value.get("reason").map(Value::to_text)).unwrap_or_default();
            Message::Error { name, reason }
        }
        Kind::Null | Kind::Bool | Kind::Number | Kind::String => Message::Answer,
    }
}

pub(crate) fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(400)]);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(60) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

fn unblock(pipe: &impl AsFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(pipe)?;
    Ok(rustix::fs::fcntl_setfl(pipe, flags | rustix::fs::OFlags::NONBLOCK)?)
}

#[cfg(target_os = "linux")]
fn enlarge(pipe: &impl AsFd) -> Option<usize> {
    rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES).ok()
}

#[cfg(not(target_os = "linux"))]
fn enlarge(_: &impl AsFd) -> Option<usize> {
    None
}
