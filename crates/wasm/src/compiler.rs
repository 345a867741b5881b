//! [`Compiler`] compiles modules in separate processes with limits on time and memory, because a module of a few
//! megabytes can occupy a compiler for minutes and fill gigabytes. A process ([`compiler_main`]) reads one module from
//! standard input and writes machine code to standard output, or the reason of a failure to standard error. It does not
//! execute the module.

use std::io::{self, Read, Write};
use std::num::NonZero;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::{Condvar, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use settee_design::CompileError;
use wasmtime::Engine;

/// Address space of a compiler process, program included.
const MEMORY_BYTES: u64 = 1 << 30;

/// The process gets about a tenth of a processor while requests use all processors.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// Machine code occupies memory of the server.
const CODE_BYTES_MAX: usize = 64 << 20;

const REASON_BYTES_MAX: usize = 4 << 10;

/// Maximum number of concurrent compilations. Half of the processors stay available for requests.
const RUNNING_MAX: usize = 2;

/// Each waiting module occupies a thread.
const WAITING_MAX: usize = 16;

/// The program must call [`compiler_main`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompilerCommand {
    /// Absolute path of the executable.
    pub program: PathBuf,
    pub args: Vec<String>,
    pub timeout_ms: u64,
}

impl CompilerCommand {
    /// Twenty times the duration for ten megabytes of an ordinary module on an idle machine.
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

/// A compiler process, killed on drop.
struct Process(Child);

impl Process {
    fn exchange(&mut self, module: Vec<u8>) -> io::Result<mpsc::Receiver<Written>> {
        let missing = || io::Error::other("no pipes");
        let mut stdin = self.0.stdin.take().ok_or_else(missing)?;
        let stdout = self.0.stdout.take().ok_or_else(missing)?;
        let stderr = self.0.stderr.take().ok_or_else(missing)?;
        let (sender, receiver) = mpsc::channel();
        let threads = || std::thread::Builder::new().name("wasm-compiler".to_owned());
        threads().spawn(move || {
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
            let _ = sender.send(read());
        })?;
        Ok(receiver)
    }
}

impl Process {
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
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn died(status: ExitStatus, stderr_text: &[u8]) -> CompileError {
    let stderr_text = String::from_utf8_lossy(stderr_text);
    let is_memory = stderr_text.contains("memory allocation")
        || stderr_text.contains("out of memory")
        || stderr_text.contains("mmap");
    if is_memory || status.code().is_none() {
        return CompileError::Source(format!("compiling the module takes more than {MEMORY_BYTES} bytes of memory"));
    }
    // The compiler panics for unsupported features, so a retry would fail as well.
    if status.code() == Some(PANICKED) {
        let stderr_text = stderr_text.lines().filter(|line| !line.is_empty()).nth(1).unwrap_or_default();
        return CompileError::Source(format!("the compiler cannot compile the module: {stderr_text}"));
    }
    let stderr_text = stderr_text.lines().last().unwrap_or_default();
    CompileError::Unavailable(format!("the WebAssembly compiler ended with {status}: {stderr_text}"))
}

const PANICKED: i32 = 101;

const REFUSED: i32 = 3;

/// Main function of a compiler process. The program of a [`CompilerCommand`] must call it first.
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
    // If memory is short, the kernel kills this process before the server. Errors are ignored: the memory limit
    // remains.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    // The low priority keeps requests of a millisecond from waiting for a compilation of seconds.
    let _ = setpriority_process(None, NICENESS);
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn limit_process() -> io::Result<()> {
    Ok(())
}
