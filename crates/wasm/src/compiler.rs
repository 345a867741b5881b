//! [`Compiler`]: compiles modules in separate processes, one per module, with limits of time and memory. A module of a
//! few megabytes can keep a compiler busy for minutes and fill gigabytes.
//!
//! The process ([`compiler_main`]) reads the module from standard input and writes machine code to standard output, or
//! the reason of a failure to standard error. It does not execute the module. [`engine`](crate::engine) loads the
//! machine code.

use std::io::{self, Read, Write};
use std::num::NonZero;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::{Condvar, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use settee_design::CompileError;
use wasmtime::Engine;

/// Address space of a compiler process, including its program.
const MEMORY_BYTES: u64 = 1 << 30;

/// Niceness of a compiler process. It gets about a tenth of a processor while requests use all processors.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// Maximum size of machine code, which stays in the server's memory.
const CODE_BYTES_MAX: usize = 64 << 20;

const REASON_BYTES_MAX: usize = 4 << 10;

/// Maximum number of concurrent compilations: each takes a processor, of which half must stay available for requests,
/// and memory. Further ones wait.
const RUNNING_MAX: usize = 2;

/// Maximum number of waiting modules, each of which occupies a thread.
const WAITING_MAX: usize = 16;

/// Command of compiler processes. The program must call [`compiler_main`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompilerCommand {
    /// The executable, as an absolute path.
    pub program: PathBuf,
    pub args: Vec<String>,
    pub timeout_ms: u64,
}

impl CompilerCommand {
    /// Default timeout: twenty times the duration for ten megabytes of an ordinary module on an idle machine.
    pub const TIMEOUT_MS: u64 = 20_000;
}

pub(crate) struct Compiler {
    command: CompilerCommand,
    running_max: usize,
    queue: Mutex<Queue>,
    ended: Condvar,
}

#[derive(Default)]
struct Queue {
    running: usize,
    waiting: usize,
}

struct CompilePermit<'a>(&'a Compiler);

/// Complete standard output and standard error of a process.
type Written = io::Result<(Vec<u8>, Vec<u8>)>;

impl Compiler {
    pub(crate) fn new(command: CompilerCommand) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let running_max = (processors / 2).clamp(1, RUNNING_MAX);
        Self { command, running_max, queue: Mutex::default(), ended: Condvar::new() }
    }

    pub(crate) fn compile(&self, module: Vec<u8>) -> Result<Vec<u8>, CompileError> {
        let unavailable = |error: io::Error| CompileError::Unavailable(format!("the WebAssembly compiler: {error}"));
        let _permit = self.acquire_permit()?;
        let mut process = Process(self.start().map_err(unavailable)?);
        let written = process.exchange(module).map_err(unavailable)?;
        let timeout_ms = self.command.timeout_ms;
        let late = || CompileError::Source(format!("compiling the module takes more than {timeout_ms} ms"));
        let deadline = Instant::now() + Duration::from_millis(timeout_ms);
        let written = written.recv_timeout(Duration::from_millis(timeout_ms)).map_err(|_| late())?;
        let (code, reason) = written.map_err(unavailable)?;
        if code.len() > CODE_BYTES_MAX {
            let reason = format!("the machine code of the module has more than {CODE_BYTES_MAX} bytes");
            return Err(CompileError::Source(reason));
        }
        let status = process.wait_until(deadline).map_err(unavailable)?.ok_or_else(late)?;
        match status.code() {
            Some(0) => Ok(code),
            Some(REFUSED) => Err(CompileError::Source(String::from_utf8_lossy(reason.trim_ascii_end()).into_owned())),
            _ => Err(died(status, &reason)),
        }
    }

    fn acquire_permit(&self) -> Result<CompilePermit<'_>, CompileError> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.running >= self.running_max {
            if queue.waiting >= WAITING_MAX {
                let reason = "too many WebAssembly modules are compiled at the same time".to_owned();
                return Err(CompileError::Unavailable(reason));
            }
            queue.waiting += 1;
            let is_full = |queue: &mut Queue| queue.running >= self.running_max;
            queue = self.ended.wait_while(queue, is_full).unwrap_or_else(PoisonError::into_inner);
            queue.waiting -= 1;
        }
        queue.running += 1;
        Ok(CompilePermit(self))
    }

    fn start(&self) -> io::Result<Child> {
        let CompilerCommand { program, args, .. } = &self.command;
        Command::new(program)
            .args(args)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
    }
}

impl Drop for CompilePermit<'_> {
    fn drop(&mut self) {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner).running -= 1;
        self.0.ended.notify_one();
    }
}

/// A running compiler process. It is killed when this is dropped.
struct Process(Child);

impl Process {
    /// Sends the module; the receiver gets the complete output when the process has closed it.
    fn exchange(&mut self, module: Vec<u8>) -> io::Result<mpsc::Receiver<Written>> {
        let missing = || io::Error::other("no pipes");
        let mut stdin = self.0.stdin.take().ok_or_else(missing)?;
        let stdout = self.0.stdout.take().ok_or_else(missing)?;
        let stderr = self.0.stderr.take().ok_or_else(missing)?;
        let (sender, receiver) = mpsc::channel();
        let threads = || std::thread::Builder::new().name("wasm-compiler".to_owned());
        // Both threads end with the process.
        threads().spawn(move || {
            // The process need not read all of its input.
            let _ = stdin.write_all(&module);
        })?;
        threads().spawn(move || {
            let read = || {
                let (mut code, mut reason) = (Vec::new(), Vec::new());
                stdout.take(CODE_BYTES_MAX as u64 + 1).read_to_end(&mut code)?;
                if code.len() > CODE_BYTES_MAX {
                    return Ok((code, reason));
                }
                stderr.take(REASON_BYTES_MAX as u64).read_to_end(&mut reason)?;
                Ok((code, reason))
            };
            // The receiver is dropped after a timeout.
            let _ = sender.send(read());
        })?;
        Ok(receiver)
    }
}

impl Process {
    /// Waits for the exit status of a process that has closed its output; `None` if it does not end in time.
    fn wait_until(&mut self, deadline: Instant) -> io::Result<Option<ExitStatus>> {
        loop {
            let status = self.0.try_wait()?;
            if status.is_some() || Instant::now() >= deadline {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only if the process has ended and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the reason why a process ended without a result: nearly always its memory limit.
fn died(status: ExitStatus, stderr_text: &[u8]) -> CompileError {
    let stderr_text = String::from_utf8_lossy(stderr_text);
    let is_memory = stderr_text.contains("memory allocation")
        || stderr_text.contains("out of memory")
        || stderr_text.contains("mmap");
    if is_memory || status.code().is_none() {
        return CompileError::Source(format!("compiling the module takes more than {MEMORY_BYTES} bytes of memory"));
    }
    // A panic: the compiler reports unsupported features in this way, so a retry would fail as well.
    if status.code() == Some(PANICKED) {
        let stderr_text = stderr_text.lines().filter(|line| !line.is_empty()).nth(1).unwrap_or_default();
        return CompileError::Source(format!("the compiler cannot compile the module: {stderr_text}"));
    }
    let stderr_text = stderr_text.lines().last().unwrap_or_default();
    CompileError::Unavailable(format!("the WebAssembly compiler ended with {status}: {stderr_text}"))
}

/// Exit status of a program that panicked.
const PANICKED: i32 = 101;

/// Exit status for modules that do not compile.
const REFUSED: i32 = 3;

/// Compiles the module on standard input, writes machine code to standard output, and ends.
///
/// The server starts the program of its [`CompilerCommand`], which must call this function first.
#[must_use]
pub fn compiler_main() -> ExitCode {
    match compile_input() {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(reason)) => {
            let _ = writeln!(io::stderr(), "{reason}");
            ExitCode::from(u8::try_from(REFUSED).unwrap_or(u8::MAX))
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

/// The inner error is a defect of the module.
fn compile_input() -> io::Result<Result<(), String>> {
    limit_process()?;
    let mut module = Vec::new();
    io::stdin().read_to_end(&mut module)?;
    let engine = Engine::new(&crate::engine::config()).map_err(|error| io::Error::other(format!("{error:#}")))?;
    match engine.precompile_module(&module) {
        Ok(code) => io::stdout().write_all(&code).map(Ok),
        Err(error) => Ok(Err(format!("{error:#}"))),
    }
}

#[cfg(target_os = "linux")]
fn limit_process() -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setpriority_process, setrlimit};
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let limit = |bytes| Rlimit { current: Some(bytes), maximum: Some(bytes) };
    setrlimit(Resource::As, limit(MEMORY_BYTES))?;
    setrlimit(Resource::Core, limit(0))?;
    // When memory is short, the kernel ends this process before the server. If that is not available, the memory limit
    // must suffice.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    // A low priority, so that requests of a millisecond do not wait for a compilation of seconds.
    let _ = setpriority_process(None, NICENESS);
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn limit_process() -> io::Result<()> {
    Ok(())
}
