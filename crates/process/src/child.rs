//! [`Process`]: one query server process, with its pipes and timeouts.
//! Callers interpret commands; in this module a response is a line of JSON that is neither a log line nor an error.

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
use crate::spawner::SPAWNER;

/// Requested size of each pipe, 16 times the default of Linux.
const PIPE_BYTES: usize = 1 << 20;

const WRITE_BYTES: usize = 128 << 10;

const READ_BYTES: usize = 64 << 10;

/// Maximum length of a line of a server. A response contains all rows of one document and is copied once or twice, so
/// the limit is half of that for languages that pass on rows one by one.
const LINE_BYTES: usize = 32 << 20;

/// Pause before a read while the server has pending input: without it, each response would wake the reader.
const READ_DELAY: Duration = Duration::from_micros(500);

const STDERR_TAIL_BYTES: usize = 1_000;

const STDERR_LOG_BYTES: usize = 16 << 10;

/// Time for which a process that closed its output may take to exit, so that its exit status is available.
const EXIT_TIMEOUT: Duration = Duration::from_millis(500);

/// Cause of a failed exchange. The process must be discarded after any of these except [`Failure::Rejected`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("the query server for {language} cannot be started: {error}")]
    Start { language: Arc<str>, error: io::Error },
    #[error("the query server for {language} ended: {how}")]
    Exited { language: Arc<str>, how: String },
    #[error("the query server for {language} returned no response within {timeout_ms} ms")]
    Timeout { language: Arc<str>, timeout_ms: u64 },
    #[error("the query server for {language} broke the protocol: {label}")]
    ProtocolViolation { language: Arc<str>, label: String },
    #[error("{0}")]
    Limit(String),
    #[error("{name}: {reason}")]
    Rejected { name: String, reason: String },
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    #[error("all processes of the query server for {language} are busy; see [query_server_config] os_process_limit")]
    Busy { language: Arc<str> },
}

pub(crate) enum Problem {
    ProtocolViolation(String),
    Limit(String),
}

pub(crate) trait Exchange {
    /// Appends the next command without a line feed. Returns false after the last command.
    fn next_command(&mut self, out: &mut Vec<u8>) -> bool;

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
    /// Received bytes; those from `processed` on are not processed yet. Invariant: no line feed is in
    /// `processed..scanned`.
    received: Vec<u8>,
    processed: usize,
    scanned: usize,
    line: Vec<u8>,
    stderr_tail: Vec<u8>,
    stderr_log_left: usize,
    is_stderr_log_truncated: bool,
    has_responded: bool,
    cancellation: Cancellation,
}

struct PipelineState {
    out: Vec<u8>,
    written: usize,
    pending: VecDeque<usize>,
    pending_bytes: usize,
    has_more_commands: bool,
    last_response: Instant,
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
            // The shell parses the command line, as in CouchDB, and `exec` replaces it by the server.
            .arg(format!("exec {command}"))
            .env_clear()
            .envs(settings.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = SPAWNER.spawn(shell).map_err(failed)?;
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
            processed: 0,
            scanned: 0,
            line: Vec::new(),
            stderr_tail: Vec::new(),
            stderr_log_left: STDERR_LOG_BYTES,
            is_stderr_log_truncated: false,
            has_responded: false,
            cancellation: Cancellation::never(),
        };
        process.set_up().map_err(failed)?;
        Ok(process)
    }

    fn set_up(&mut self) -> io::Result<()> {
        set_nonblocking(&self.stdin)?;
        set_nonblocking(&self.stdout)?;
        if let Some(stderr) = &self.stderr {
            set_nonblocking(stderr)?;
        }
        self.pipe_bytes = enlarge_pipe(&self.stdin).unwrap_or(self.pipe_bytes);
        let _ = enlarge_pipe(&self.stdout);
        // If memory is short, the kernel must kill this process rather than Settee.
        #[cfg(target_os = "linux")]
        let _ = std::fs::write(format!("/proc/{}/oom_score_adj", self.child.id()), "1000");
        #[cfg(target_os = "linux")]
        if let Some(bytes) = self.settings.memory_bytes {
            use rustix::process::{Resource, Rlimit, prlimit};
            let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
            // This limit counts writable memory, not reserved address space.
            let pid = rustix::process::Pid::from_child(&self.child);
            match prlimit(Some(pid), Resource::Data, limit) {
                Ok(_) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub(crate) fn set_cancellation(&mut self, cancellation: &Cancellation) {
        self.cancellation = cancellation.clone();
    }

    pub(crate) fn reset_stderr_log(&mut self) {
        self.stderr_log_left = STDERR_LOG_BYTES;
        self.is_stderr_log_truncated = false;
    }

    /// Returns true if no unsolicited response arrived, which the next command would get. Log lines are permitted.
    pub(crate) fn has_no_unsolicited_response(&mut self) -> bool {
        struct NoCommand<'a>(&'a Log, &'a Arc<str>);
        impl Exchange for NoCommand<'_> {
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
        self.exchange(&mut NoCommand(&log, &language)).is_ok() && self.received.is_empty()
    }

    pub(crate) fn request(&mut self, command: &[u8], log: &mut dyn FnMut(String)) -> Result<Vec<u8>, Failure> {
        struct SingleCommand<'a> {
            command: Option<&'a [u8]>,
            answer: Vec<u8>,
            log: &'a mut dyn FnMut(String),
        }
        impl Exchange for SingleCommand<'_> {
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
        let mut one = SingleCommand { command: Some(command), answer: Vec::new(), log };
        self.exchange(&mut one)?;
        Ok(one.answer)
    }

    /// Writes all commands and reads all responses, both as the pipes permit. The timeout of the settings applies to
    /// each response, measured from the previous one; the first response may take as long as a process start.
    pub(crate) fn exchange(&mut self, exchange: &mut dyn Exchange) -> Result<(), Failure> {
        let mut pipeline = PipelineState {
            out: Vec::new(),
            written: 0,
            pending: VecDeque::new(),
            pending_bytes: 0,
            has_more_commands: true,
            last_response: Instant::now(),
        };
        self.read(&mut pipeline, exchange)?;
        loop {
            pipeline.fill(exchange);
            self.write(&mut pipeline)?;
            if pipeline.is_done() {
                return Ok(());
            }
            if pipeline.written_pending_bytes() >= self.pipe_bytes - self.pipe_bytes / 4 {
                std::thread::sleep(READ_DELAY);
            }
            self.wait(&pipeline)?;
            self.read(&mut pipeline, exchange)?;
            self.read_stderr();
        }
    }

    fn wait(&mut self, pipeline: &PipelineState) -> Result<(), Failure> {
        let Settings { timeout_ms, start_timeout_ms, .. } = *self.settings;
        let timeout_ms = if self.has_responded { timeout_ms } else { timeout_ms.max(start_timeout_ms) };
        let left = Duration::from_millis(timeout_ms).saturating_sub(pipeline.last_response.elapsed());
        if left.is_zero() {
            return Err(Failure::Timeout { language: Arc::clone(&self.language), timeout_ms });
        }
        self.cancellation.check()?;
        let mut fds = vec![PollFd::new(&self.stdout, PollFlags::IN)];
        if let Some(stderr) = &self.stderr {
            fds.push(PollFd::new(stderr, PollFlags::IN));
        }
        if pipeline.written < pipeline.out.len() {
            fds.push(PollFd::new(&self.stdin, PollFlags::OUT));
        }
        // Rounding up avoids busy waiting during the last millisecond.
        let left = left.min(CANCELLATION_INTERVAL) + Duration::from_millis(1);
        let timeout = Timespec::try_from(left).expect("some milliseconds fit");
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(self.protocol_violation(format!("its pipes cannot be watched: {error}"))),
        }
    }

    fn write(&mut self, pipeline: &mut PipelineState) -> Result<(), Failure> {
        while pipeline.written < pipeline.out.len() {
            match self.stdin.write(&pipeline.out[pipeline.written..]) {
                Ok(0) => return Ok(()),
                Ok(count) => pipeline.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The process reads no more input. Its output explains the failure better than this error.
                Err(_) => {
                    pipeline.written = pipeline.out.len();
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn read(&mut self, pipeline: &mut PipelineState, exchange: &mut dyn Exchange) -> Result<(), Failure> {
        loop {
            match self.stdout.read(&mut self.buffer) {
                Ok(0) => return Err(self.exited()),
                Ok(count) => {
                    self.received.extend_from_slice(&self.buffer[..count]);
                    self.process_lines(pipeline, exchange)?;
                    if count < READ_BYTES {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(self.exited()),
            }
        }
    }

    fn process_lines(&mut self, pipeline: &mut PipelineState, exchange: &mut dyn Exchange) -> Result<(), Failure> {
        let mut result = Ok(());
        while result.is_ok()
            && let Some(length) = memchr::memchr(b'\n', &self.received[self.scanned..])
        {
            let end = self.scanned + length;
            let line = self.received[self.processed..end].trim_ascii();
            // The buffer is moved out because the response borrows it while errors need the process.
            let mut compacted = std::mem::take(&mut self.line);
            compacted.clear();
            result = match json::compact(line, &mut compacted) {
                _ if line.is_empty() => Ok(()),
                Ok(()) => self.process_line(&compacted, pipeline, exchange),
                Err(error) => Err(self.protocol_violation(format!("it wrote no JSON ({error}): {}", excerpt(line)))),
            };
            self.line = compacted;
            (self.processed, self.scanned) = (end + 1, end + 1);
        }
        if result.is_ok() {
            self.scanned = self.received.len();
        }
        if self.received.len() - self.processed > LINE_BYTES {
            return Err(Failure::Limit(format!("answered with more than {LINE_BYTES} bytes")));
        }
        if self.processed == self.received.len() {
            self.received.clear();
        } else {
            self.received.drain(..self.processed);
        }
        self.scanned -= self.processed;
        self.processed = 0;
        result
    }

    fn process_line(
        &mut self,
        line: &[u8],
        pipeline: &mut PipelineState,
        exchange: &mut dyn Exchange,
    ) -> Result<(), Failure> {
        let value = Value::trusted(line);
        match message(value) {
            Message::Log(text) => {
                exchange.log(text);
                Ok(())
            }
            Message::Error { name, reason } => Err(Failure::Rejected { name, reason }),
            Message::Answer => {
                let Some(length) = pipeline.pending.pop_front() else {
                    return Err(self.protocol_violation(format!("it answered without a request: {}", excerpt(line))));
                };
                pipeline.pending_bytes -= length;
                pipeline.last_response = Instant::now();
                self.has_responded = true;
                exchange.answer(value).map_err(|problem| match problem {
                    Problem::ProtocolViolation(label) => self.protocol_violation(format!("{label}: {}", excerpt(line))),
                    Problem::Limit(label) => Failure::Limit(label),
                })
            }
        }
    }

    fn read_stderr(&mut self) {
        let mut buffer = [0; 4096];
        while let Some(stderr) = &mut self.stderr {
            match stderr.read(&mut buffer) {
                Ok(0) => self.stderr = None,
                Ok(count) => self.log_stderr(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.stderr = None,
            }
        }
    }

    fn log_stderr(&mut self, bytes: &[u8]) {
        let shown = &bytes[..bytes.len().min(self.stderr_log_left)];
        self.stderr_log_left -= shown.len();
        for line in String::from_utf8_lossy(shown).lines().filter(|line| !line.trim().is_empty()) {
            (self.log)(&self.language, line);
        }
        if shown.len() < bytes.len() && !std::mem::replace(&mut self.is_stderr_log_truncated, true) {
            (self.log)(&self.language, "(further output on standard error is omitted)");
        }
        self.stderr_tail.extend_from_slice(bytes);
        let surplus = self.stderr_tail.len().saturating_sub(STDERR_TAIL_BYTES);
        self.stderr_tail.drain(..surplus);
    }

    fn protocol_violation(&self, label: String) -> Failure {
        Failure::ProtocolViolation { language: Arc::clone(&self.language), label }
    }

    fn exited(&mut self) -> Failure {
        let began = Instant::now();
        let status = loop {
            match self.child.try_wait() {
                Ok(None) if began.elapsed() < EXIT_TIMEOUT => std::thread::sleep(READ_DELAY),
                Ok(status) => break status,
                Err(_) => break None,
            }
        };
        self.read_stderr();
        let mut how = status.map_or_else(|| "it closed its output".to_owned(), |status| status.to_string());
        let stderr_tail = String::from_utf8_lossy(&self.stderr_tail);
        let stderr_text = stderr_tail.trim().lines().rev().take(2).collect::<Vec<_>>();
        if !stderr_text.is_empty() {
            how.push_str("; it said: ");
            how.push_str(&stderr_text.into_iter().rev().collect::<Vec<_>>().join(" "));
        }
        Failure::Exited { language: Arc::clone(&self.language), how }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have exited already; its children are killed in any case.
        let group = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl PipelineState {
    fn fill(&mut self, exchange: &mut dyn Exchange) {
        if self.written < self.out.len() {
            return;
        }
        self.out.clear();
        self.written = 0;
        while self.has_more_commands && self.out.len() < WRITE_BYTES {
            let before = self.out.len();
            self.has_more_commands = exchange.next_command(&mut self.out);
            if self.has_more_commands {
                self.out.push(b'\n');
                let length = self.out.len() - before;
                if self.pending.is_empty() {
                    self.last_response = Instant::now();
                }
                self.pending.push_back(length);
                self.pending_bytes += length;
            }
        }
    }

    fn is_done(&self) -> bool {
        !self.has_more_commands && self.pending.is_empty() && self.written == self.out.len()
    }

    fn written_pending_bytes(&self) -> usize {
        self.pending_bytes.saturating_sub(self.out.len() - self.written)
    }
}

enum Message {
    Log(String),
    Error { name: String, reason: String },
    Answer,
}

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

fn set_nonblocking(pipe: &impl AsFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(pipe)?;
    Ok(rustix::fs::fcntl_setfl(pipe, flags | rustix::fs::OFlags::NONBLOCK)?)
}

#[cfg(target_os = "linux")]
fn enlarge_pipe(pipe: &impl AsFd) -> Option<usize> {
    rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES).ok()
}

#[cfg(not(target_os = "linux"))]
fn enlarge_pipe(_: &impl AsFd) -> Option<usize> {
    None
}
