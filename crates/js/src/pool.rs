//! Worker processes from the server's side: starting them, talking to them, killing them, keeping idle ones ([`Pool`]).
//!
//! A [`Worker`] answers requests; a [`Lease`] borrows one for the life of a program. Nothing a worker writes is believed
//! here or by the callers before it was checked. What requests mean is the business of [`crate::language`].
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

/// Workers whose memory grew beyond this are not kept.
const KEPT_REGION_BYTES: usize = 32 << 20;

/// Address space of a worker besides twice the memory of its scripts: its program, stacks, buffers.
const BASE_ADDRESS_BYTES: u64 = 1 << 30;

/// The program that worker processes run. It must call [`crate::worker_main`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerCommand {
    /// The executable, as an absolute path: workers run in `/`.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
}

/// The number of processes that are kept, and how long one may take to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSettings {
    /// Workers that are kept for the next program while nobody uses them.
    pub idle_workers: usize,
    /// Calls of design document functions that may run at a time; further ones wait. The same number of list functions
    /// may run besides, as those last as long as their clients read.
    pub design_calls: usize,
    /// The longest time from starting a process to its first answer.
    pub start_timeout_ms: u64,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self { idle_workers: 4, design_calls: 24, start_timeout_ms: 10_000 }
    }
}

/// Why a request to a worker failed. The worker is of no use after any of these.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkerError {
    #[error("the JavaScript worker could not be started: {0}")]
    Start(io::Error),
    #[error("a call took too long")]
    Stuck(Progress),
    #[error("the JavaScript worker ended: {1}")]
    Died(Progress, String),
    #[error("talking to the JavaScript worker: {0}")]
    Talk(#[from] io::Error),
    #[error("too many functions of design documents run at the same time")]
    Busy,
    #[error("nobody takes the rows")]
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
        // Now: threads and processes inherit the priority of who starts them, and a caller may have a low one.
        let spawner = Mutex::new(start_spawner().ok());
        Arc::new(Self { command, settings, idle: Mutex::default(), spawner })
    }

    /// Borrows an idle worker, or starts one.
    pub(crate) fn lease(self: &Arc<Self>) -> Result<Lease, WorkerError> {
        let idle = self.idle.lock().pop();
        let worker = match idle {
            Some(worker) => worker,
            None => self.start()?,
        };
        Ok(Lease { worker: Some(worker), pool: Arc::clone(self) })
    }

    /// Borrows a worker that has not run anything.
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

    /// Starts a process from a thread of the pool: the kernel kills it when the *thread* that started it ends, and the
    /// caller may be a short-lived one.
    fn spawn(&self, socket: OwnedFd, memory: OwnedFd) -> io::Result<Child> {
        let mut command = Command::new(&self.command.program);
        // No secrets from the environment, and the same clock on every machine: views must not depend on a time zone.
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
            sender.send(order).map_err(|_| io::Error::other("the thread that starts workers is gone"))?;
        }
        answer.recv().map_err(|_| io::Error::other("the thread that starts workers is gone"))?
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
            // The caller may have given up; the child then ends with its socket.
            let _ = order.reply.send(order.command.spawn());
        }
    })?;
    Ok(sender)
}

/// A worker borrowed from the pool. It goes back when this is dropped.
pub(crate) struct Lease {
    worker: Option<Worker>,
    pool: Arc<Pool>,
}

impl Lease {
    pub(crate) fn worker(&mut self) -> &mut Worker {
        self.worker.as_mut().expect("taken only on drop")
    }

    /// Kills the worker instead of giving it back.
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

/// A part of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) kind: Kind,
    /// Whether the worker waits to send more of it.
    pub(crate) more: bool,
}

/// A worker process.
pub(crate) struct Worker {
    child: Child,
    socket: UnixStream,
    memory: SharedMemory,
    missing: String,
    /// That of the client on whose behalf it works.
    cancellation: Cancellation,
}

impl Worker {
    /// Layers of the sandbox that the kernel refused; empty if none.
    pub(crate) fn missing(&self) -> &str {
        &self.missing
    }

    /// Ends waits for answers from now on when this is cancelled.
    pub(crate) fn work_for(&mut self, cancellation: &Cancellation) {
        self.cancellation = cancellation.clone();
    }

    /// Where it stands, as far as it can be believed.
    pub(crate) fn progress(&self) -> Progress {
        Progress::unpack(self.memory.progress())
    }

    /// Prepares for requests whose calls may take `timeout` each, of scripts with `memory_bytes`.
    pub(crate) fn limit(&mut self, timeout: Duration, memory_bytes: u64) -> Result<(), WorkerError> {
        // Read in slices, to look at the progress in between.
        let slice = (timeout / 8).clamp(Duration::from_millis(1), CANCELLATION_INTERVAL);
        self.socket.set_read_timeout(Some(slice))?;
        if memory_bytes != u64::MAX {
            let bytes = memory_bytes.saturating_mul(2).saturating_add(BASE_ADDRESS_BYTES);
            limit_address_space(self.child.id(), bytes.saturating_add(self.memory.len() as u64 * 4));
        }
        Ok(())
    }

    /// Makes room for a request of `len` bytes.
    pub(crate) fn reserve(&mut self, len: usize) -> Result<(), WorkerError> {
        Ok(self.memory.grow(INPUT + len)?)
    }

    /// Writes a piece of the next request.
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

    /// Waits for an answer, or a part of one, and appends its bytes to `out`. Gives up when the worker has not begun
    /// another call for `timeout`.
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
        // Its own interruption of scripts comes first: that tells more.
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
        // It closed its socket, so it is about to end, or has gone mad.
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
    // A second line of defence behind the engine's own limit: where it cannot be had, that one has to do.
    // SAFETY: the structure is valid for the call, and the old limit is not asked for.
    unsafe { libc::prlimit(process, libc::RLIMIT_AS, &raw const limit, std::ptr::null_mut()) };
}

#[cfg(not(target_os = "linux"))]
fn limit_address_space(_process: u32, _bytes: u64) {}
