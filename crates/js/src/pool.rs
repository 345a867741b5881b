//! Worker processes, server side: a [`Worker`] processes requests; a [`Lease`] reserves one for the life of a program.
//! Output of a worker is untrusted until this module or its callers have validated it.
#![expect(unsafe_code, reason = "limits the memory of another process")]

use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use settee_design::{CANCELLATION_INTERVAL, Cancellation, Cancelled};
use settee_threads::Spawner;

use crate::protocol::{Frame, Kind, Progress};
use crate::shared_memory::{INITIAL_BYTES, INPUT, OUTPUT, SharedMemory};

/// Workers with more shared memory are not kept.
const REUSED_REGION_BYTES_MAX: usize = 32 << 20;

/// Address space in addition to twice the memory of scripts, for the program, stacks and buffers.
const BASE_ADDRESS_BYTES: u64 = 1 << 30;

/// The program must call [`crate::worker_main`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerCommand {
    /// Absolute path, because workers run in `/`.
    pub program: PathBuf,
    pub args: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSettings {
    pub idle_workers: usize,
    /// Maximum number of concurrent calls of design document functions; further calls wait. The same number of list
    /// functions may run in addition, because those last as long as their clients read.
    pub design_calls: usize,
    pub start_timeout_ms: u64,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self { idle_workers: 4, design_calls: 24, start_timeout_ms: 10_000 }
    }
}

/// The caller must discard the worker after any of these errors.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkerError {
    #[error("the JavaScript worker could not be started: {0}")]
    Start(io::Error),
    #[error("a call timed out")]
    CallTimeout(Progress),
    #[error("the JavaScript worker ended: {1}")]
    Exited(Progress, String),
    #[error("communication with the JavaScript worker failed: {0}")]
    Io(#[from] io::Error),
    #[error("too many functions of design documents run at the same time")]
    Busy,
    #[error("the rows are no longer needed")]
    SinkClosed,
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    #[error("the JavaScript worker broke the protocol: {0}")]
    ProtocolViolation(&'static str),
}

pub(crate) struct Pool {
    command: WorkerCommand,
    settings: PoolSettings,
    idle: Mutex<Vec<Worker>>,
    spawner: Spawner,
}

impl Pool {
    pub(crate) fn new(command: WorkerCommand, settings: PoolSettings) -> Arc<Self> {
        // The spawner starts now, because threads and processes inherit the priority of their creator, and later
        // callers may have a low one.
        let spawner = Spawner::new("js-spawner");
        spawner.ensure_started();
        Arc::new(Self { command, settings, idle: Mutex::default(), spawner })
    }

    pub(crate) fn lease(self: &Arc<Self>) -> Result<Lease, WorkerError> {
        let idle = self.idle.lock().pop();
        let worker = match idle {
            Some(worker) => worker,
            None => self.start()?,
        };
        Ok(Lease { worker: Some(worker), pool: Arc::clone(self) })
    }

    pub(crate) fn lease_new_process(self: &Arc<Self>) -> Result<Lease, WorkerError> {
        Ok(Lease { worker: Some(self.start()?), pool: Arc::clone(self) })
    }

    pub(crate) fn end_idle(&self) {
        let idle = std::mem::take(&mut *self.idle.lock());
        drop(idle);
    }

    fn start(&self) -> Result<Worker, WorkerError> {
        let timeout = Duration::from_millis(self.settings.start_timeout_ms);
        let memory = SharedMemory::create(INITIAL_BYTES).map_err(WorkerError::Start)?;
        let (socket, theirs) = UnixStream::pair().map_err(WorkerError::Start)?;
        let child =
            self.spawn(theirs.into(), memory.share().map_err(WorkerError::Start)?).map_err(WorkerError::Start)?;
        let (missing, cancellation) = Default::default();
        let mut worker = Worker { child, socket, memory, missing, cancellation };
        let mut missing = Vec::new();
        let started = worker.limit(timeout, u64::MAX).and_then(|()| worker.receive(timeout, &mut missing));
        match started {
            Ok(Answer { kind: Kind::Done, more: false }) => {
                worker.missing = String::from_utf8_lossy(&missing).into_owned();
                Ok(worker)
            }
            Ok(_) => Err(WorkerError::ProtocolViolation("an unexpected first message")),
            Err(WorkerError::Exited(_, status)) => Err(WorkerError::Start(io::Error::other(status))),
            Err(WorkerError::CallTimeout(_)) => {
                Err(WorkerError::Start(io::Error::other("no message before the timeout")))
            }
            Err(error) => Err(error),
        }
    }

    /// A thread of the pool starts the process, because the kernel kills it when the *thread* that started it ends, and
    /// the caller may be short-lived.
    fn spawn(&self, socket: OwnedFd, memory: OwnedFd) -> io::Result<Child> {
        let mut command = Command::new(&self.command.program);
        // The environment is cleared, because it may contain secrets. The time zone is fixed, because views must not
        // depend on it.
        command.args(&self.command.args).env_clear().env("TZ", "UTC0").current_dir("/");
        command.stdin(Stdio::from(socket)).stdout(Stdio::from(memory)).stderr(Stdio::inherit());
        self.spawner.spawn(command)
    }

    fn return_worker(&self, mut worker: Worker) {
        worker.cancellation = Cancellation::never();
        let small = worker.memory.len() <= REUSED_REGION_BYTES_MAX;
        if small && worker.send(Kind::Reset, 0, 0).is_ok() {
            let mut idle = self.idle.lock();
            if idle.len() < self.settings.idle_workers {
                idle.push(worker);
            }
        }
    }
}

pub(crate) struct Lease {
    worker: Option<Worker>,
    pool: Arc<Pool>,
}

impl Lease {
    pub(crate) fn worker(&mut self) -> &mut Worker {
        self.worker.as_mut().expect("taken only on drop")
    }

    pub(crate) fn discard(mut self) {
        self.worker = None;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(worker) = self.worker.take() {
            self.pool.return_worker(worker);
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) kind: Kind,
    /// True if the worker waits for a request to send the next part.
    pub(crate) more: bool,
}

pub(crate) struct Worker {
    child: Child,
    socket: UnixStream,
    memory: SharedMemory,
    missing: String,
    cancellation: Cancellation,
}

impl Worker {
    pub(crate) fn missing(&self) -> &str {
        &self.missing
    }

    pub(crate) fn set_cancellation(&mut self, cancellation: &Cancellation) {
        self.cancellation = cancellation.clone();
    }

    /// The progress is reported by the worker, so it is untrusted.
    pub(crate) fn progress(&self) -> Progress {
        Progress::unpack(self.memory.progress())
    }

    pub(crate) fn limit(&mut self, timeout: Duration, memory_bytes: u64) -> Result<(), WorkerError> {
        // Reads time out early, so that the progress is checked in between.
        let slice = (timeout / 8).clamp(Duration::from_millis(1), CANCELLATION_INTERVAL);
        self.socket.set_read_timeout(Some(slice))?;
        if memory_bytes != u64::MAX {
            let bytes = memory_bytes.saturating_mul(2).saturating_add(BASE_ADDRESS_BYTES);
            limit_address_space(self.child.id(), bytes.saturating_add(self.memory.len() as u64 * 4));
        }
        Ok(())
    }

    pub(crate) fn reserve(&mut self, len: usize) -> Result<(), WorkerError> {
        Ok(self.memory.grow(INPUT + len)?)
    }

    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.memory.write(INPUT + offset, bytes);
    }

    pub(crate) fn send(&mut self, kind: Kind, count: usize, len: usize) -> Result<(), WorkerError> {
        let frame = Frame { kind, count: count as u64, len: len as u64, region: self.memory.len() as u64 };
        match frame.write_to(&self.socket) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(self.exited()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for a part of a response and appends it to `out`. Fails if no other call starts within `timeout`.
    pub(crate) fn receive(&mut self, timeout: Duration, out: &mut Vec<u8>) -> Result<Answer, WorkerError> {
        let frame = self.wait(timeout)?;
        let len = usize::try_from(frame.len).map_err(|_| WorkerError::ProtocolViolation("the response is too long"))?;
        if len > OUTPUT.len() || !self.memory.copy_to(OUTPUT.start..OUTPUT.start + len, out) {
            return Err(WorkerError::ProtocolViolation("the response is too long"));
        }
        Ok(Answer { kind: frame.kind, more: frame.count != 0 })
    }

    fn wait(&mut self, timeout: Duration) -> Result<Frame, WorkerError> {
        let mut bytes = [0; Frame::BYTES];
        let mut filled = 0;
        // The worker's own interruption of scripts has priority, because its error is more specific.
        let grace = (timeout / 4).max(Duration::from_millis(50));
        let (mut seen, mut since) = (self.memory.progress(), Instant::now());
        loop {
            match self.socket.read(&mut bytes[filled..]) {
                Ok(0) => return Err(self.exited()),
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.cancellation.check()?;
                    let progress = self.memory.progress();
                    if progress != seen {
                        (seen, since) = (progress, Instant::now());
                    } else if since.elapsed() >= timeout + grace {
                        return Err(WorkerError::CallTimeout(Progress::unpack(seen)));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Err(self.exited()),
                Err(error) => return Err(error.into()),
            }
            if filled == bytes.len() {
                return Frame::from_bytes(&bytes).ok_or(WorkerError::ProtocolViolation("an invalid message"));
            }
        }
    }

    fn exited(&mut self) -> WorkerError {
        let progress = Progress::unpack(self.memory.progress());
        let _ = self.child.kill();
        let status = match self.child.wait() {
            Ok(status) => match status.signal() {
                Some(signal) => format!("killed by signal {signal}"),
                None => status.to_string(),
            },
            Err(error) => error.to_string(),
        };
        WorkerError::Exited(progress, status)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(target_os = "linux")]
fn limit_address_space(process: u32, bytes: u64) {
    let Ok(process) = libc::pid_t::try_from(process) else {
        return;
    };
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // A second limit in addition to that of the engine; if it is not available, the first one must suffice.
    // SAFETY: the structure is valid for the call, and the old limit is not requested.
    unsafe { libc::prlimit(process, libc::RLIMIT_AS, &raw const limit, std::ptr::null_mut()) };
}

#[cfg(not(target_os = "linux"))]
fn limit_address_space(_process: u32, _bytes: u64) {}
