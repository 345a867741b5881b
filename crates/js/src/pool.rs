//! Worker processes, server side: starting, communication, termination, and a pool of idle ones ([`Pool`]).
//!
//! A [`Worker`] processes requests; a [`Lease`] reserves one for the life of a program. Output of a worker is untrusted
//! until this module or its callers have validated it. [`crate::language`] interprets requests.
#![expect(unsafe_code, reason = "limits the memory of another process")]

use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use settee_design::{CANCELLATION_INTERVAL, Cancellation, Cancelled};

use crate::protocol::{Frame, Kind, Progress};
use crate::shared_memory::{INITIAL_BYTES, INPUT, OUTPUT, SharedMemory};

/// Workers whose memory has grown beyond this are not kept.
const KEPT_REGION_BYTES: usize = 32 << 20;

/// Address space of a worker in addition to twice the memory of its scripts, for its program, stacks and buffers.
const BASE_ADDRESS_BYTES: u64 = 1 << 30;

/// Command of worker processes. The program must call [`crate::worker_main`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerCommand {
    /// The executable, as an absolute path: workers run in `/`.
    pub program: PathBuf,
    pub args: Vec<String>,
}

/// Number of kept processes, and the timeout for starting one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSettings {
    /// Maximum number of idle workers that are kept.
    pub idle_workers: usize,
    /// Maximum number of concurrent calls of design document functions; further calls wait. The same number of list
    /// functions may run in addition, because those last as long as their clients read.
    pub design_calls: usize,
    /// Maximum time from starting a process to its first response.
    pub start_timeout_ms: u64,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self { idle_workers: 4, design_calls: 24, start_timeout_ms: 10_000 }
    }
}

/// Reason why a request to a worker failed. The worker must be discarded after any of these.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkerError {
    #[error("the JavaScript worker could not be started: {0}")]
    Start(io::Error),
    #[error("a call timed out")]
    Stuck(Progress),
    #[error("the JavaScript worker ended: {1}")]
    Died(Progress, String),
    #[error("communication with the JavaScript worker failed: {0}")]
    Talk(#[from] io::Error),
    #[error("too many functions of design documents run at the same time")]
    Busy,
    #[error("the rows are no longer needed")]
    Unwanted,
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    #[error("the JavaScript worker broke the protocol: {0}")]
    Garbled(&'static str),
}

/// Starts workers and keeps idle ones.
pub(crate) struct Pool {
    command: WorkerCommand,
    settings: PoolSettings,
    idle: Mutex<Vec<Worker>>,
    spawner: Mutex<Option<mpsc::Sender<SpawnOrder>>>,
}

struct SpawnOrder {
    command: Command,
    reply: mpsc::Sender<io::Result<Child>>,
}

impl Pool {
    pub(crate) fn new(command: WorkerCommand, settings: PoolSettings) -> Arc<Self> {
        // Started now, because threads and processes inherit the priority of their creator, and a later caller may have
        // a low one.
        let spawner = Mutex::new(start_spawner().ok());
        Arc::new(Self { command, settings, idle: Mutex::default(), spawner })
    }

    /// Leases an idle worker, or starts one.
    pub(crate) fn lease(self: &Arc<Self>) -> Result<Lease, WorkerError> {
        let idle = self.idle.lock().pop();
        let worker = match idle {
            Some(worker) => worker,
            None => self.start()?,
        };
        Ok(Lease { worker: Some(worker), pool: Arc::clone(self) })
    }

    /// Leases a worker that has not run anything.
    pub(crate) fn fresh_lease(self: &Arc<Self>) -> Result<Lease, WorkerError> {
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
            Ok(_) => Err(WorkerError::Garbled("a strange greeting")),
            Err(WorkerError::Died(_, status)) => Err(WorkerError::Start(io::Error::other(status))),
            Err(WorkerError::Stuck(_)) => Err(WorkerError::Start(io::Error::other("no greeting in time"))),
            Err(error) => Err(error),
        }
    }

    /// Starts a process from a thread of the pool, because the kernel kills it when the *thread* that started it ends,
    /// and the caller may be short-lived.
    fn spawn(&self, socket: OwnedFd, memory: OwnedFd) -> io::Result<Child> {
        let mut command = Command::new(&self.command.program);
        // The environment is cleared, because it may contain secrets. The time zone is fixed, because views must not
        // depend on it.
        command.args(&self.command.args).env_clear().env("TZ", "UTC0").current_dir("/");
        command.stdin(Stdio::from(socket)).stdout(Stdio::from(memory)).stderr(Stdio::inherit());
        let (reply, answer) = mpsc::channel();
        let order = SpawnOrder { command, reply };
        {
            let mut spawner = self.spawner.lock();
            let sender = match spawner.as_ref() {
                Some(sender) => sender,
                None => spawner.insert(start_spawner()?),
            };
            sender.send(order).map_err(|_| io::Error::other("the thread that starts workers has ended"))?;
        }
        answer.recv().map_err(|_| io::Error::other("the thread that starts workers has ended"))?
    }

    fn give_back(&self, mut worker: Worker) {
        worker.cancellation = Cancellation::never();
        let small = worker.memory.len() <= KEPT_REGION_BYTES;
        if small && worker.send(Kind::Reset, 0, 0).is_ok() {
            let mut idle = self.idle.lock();
            if idle.len() < self.settings.idle_workers {
                idle.push(worker);
            }
        }
    }
}

fn start_spawner() -> io::Result<mpsc::Sender<SpawnOrder>> {
    let (sender, orders) = mpsc::channel::<SpawnOrder>();
    std::thread::Builder::new().name("js-spawner".to_owned()).spawn(move || {
        for mut order in orders {
            // The caller may have timed out; the child then ends with its socket.
            let _ = order.reply.send(order.command.spawn());
        }
    })?;
    Ok(sender)
}

/// A leased worker; returned to the pool when dropped.
pub(crate) struct Lease {
    worker: Option<Worker>,
    pool: Arc<Pool>,
}

impl Lease {
    pub(crate) fn worker(&mut self) -> &mut Worker {
        self.worker.as_mut().expect("taken only on drop")
    }

    /// Kills the worker instead of returning it.
    pub(crate) fn discard(mut self) {
        self.worker = None;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(worker) = self.worker.take() {
            self.pool.give_back(worker);
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) kind: Kind,
    /// True if the worker waits to send more of it.
    pub(crate) more: bool,
}

pub(crate) struct Worker {
    child: Child,
    socket: UnixStream,
    memory: SharedMemory,
    missing: String,
    /// Cancellation of the client on whose behalf it works.
    cancellation: Cancellation,
}

impl Worker {
    /// Returns the layers of the sandbox that the kernel rejected; empty if none.
    pub(crate) fn missing(&self) -> &str {
        &self.missing
    }

    /// Ends waits for responses when `cancellation` is cancelled.
    pub(crate) fn work_for(&mut self, cancellation: &Cancellation) {
        self.cancellation = cancellation.clone();
    }

    /// Returns the progress as reported by the worker, which is untrusted.
    pub(crate) fn progress(&self) -> Progress {
        Progress::unpack(self.memory.progress())
    }

    /// Sets the limits of requests: `timeout` per call, and `memory_bytes` for scripts.
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

    /// Ensures capacity for a request of `len` bytes.
    pub(crate) fn reserve(&mut self, len: usize) -> Result<(), WorkerError> {
        Ok(self.memory.grow(INPUT + len)?)
    }

    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.memory.write(INPUT + offset, bytes);
    }

    /// Sends a request whose bytes were written.
    pub(crate) fn send(&mut self, kind: Kind, count: usize, len: usize) -> Result<(), WorkerError> {
        let frame = Frame { kind, count: count as u64, len: len as u64, region: self.memory.len() as u64 };
        match frame.write_to(&self.socket) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(self.died()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for a response, or a part of one, and appends its bytes to `out`. Fails if the worker has not started
    /// another call within `timeout`.
    pub(crate) fn receive(&mut self, timeout: Duration, out: &mut Vec<u8>) -> Result<Answer, WorkerError> {
        let frame = self.wait(timeout)?;
        let len = usize::try_from(frame.len).map_err(|_| WorkerError::Garbled("an answer too long"))?;
        if len > OUTPUT.len() || !self.memory.copy_to(OUTPUT.start..OUTPUT.start + len, out) {
            return Err(WorkerError::Garbled("an answer too long"));
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
                Ok(0) => return Err(self.died()),
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.cancellation.check()?;
                    let progress = self.memory.progress();
                    if progress != seen {
                        (seen, since) = (progress, Instant::now());
                    } else if since.elapsed() >= timeout + grace {
                        return Err(WorkerError::Stuck(Progress::unpack(seen)));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Err(self.died()),
                Err(error) => return Err(error.into()),
            }
            if filled == bytes.len() {
                return Frame::from_bytes(&bytes).ok_or(WorkerError::Garbled("a strange message"));
            }
        }
    }

    fn died(&mut self) -> WorkerError {
        let progress = Progress::unpack(self.memory.progress());
        // It closed its socket: it is about to end, or is defective.
        let _ = self.child.kill();
        let status = match self.child.wait() {
            Ok(status) => match status.signal() {
                Some(signal) => format!("killed by signal {signal}"),
                None => status.to_string(),
            },
            Err(error) => error.to_string(),
        };
        WorkerError::Died(progress, status)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Fails only if the process has ended and was waited for.
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
