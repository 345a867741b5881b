//! [`Compiler`]: has modules compiled by processes of their own, one for each module, with a time and a memory that they may
//! take. A module of a few megabytes can keep a compiler busy for minutes and fill gigabytes.
//!
//! The process ([`compiler_main`]) reads the module from standard input and writes machine code to standard output, or the
//! reason why there is none to standard error. It runs no code of the module. What it wrote is loaded by
//! [`engine`](crate::engine).

use std::io::{self, Read, Write};
use std::num::NonZero;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::{Condvar, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use settee_design::CompileError;
use wasmtime::Engine;

/// The address space of a compiler, its program included.
const MEMORY_BYTES: u64 = 1 << 30;

/// How much a compiler gives way: beside requests that have use for all processors it gets about a tenth of one.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// The longest machine code: it stays in the server's memory.
const CODE_BYTES_MAX: usize = 64 << 20;

/// The longest reason that is shown.
const REASON_BYTES_MAX: usize = 4 << 10;

/// The most modules that are compiled at a time: each takes a processor, of which half stay for requests, and memory. Others wait.
const RUNNING_MAX: usize = 2;

/// Modules that wait at a time, each on a thread that others may need.
const WAITING_MAX: usize = 16;

/// The program that compiles modules. It must call [`compiler_main`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompilerCommand {
    /// The executable, as an absolute path.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// The time that compiling one module may take.
    pub timeout_ms: u64,
}

impl CompilerCommand {
    /// Twenty times what ten megabytes of an ordinary module take on an idle machine.
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

/// One of those that compile.
struct Turn<'a>(&'a Compiler);

/// Everything that a process wrote, to standard output and to standard error.
type Written = io::Result<(Vec<u8>, Vec<u8>)>;

impl Compiler {
    pub(crate) fn new(command: CompilerCommand) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let running_max = (processors / 2).clamp(1, RUNNING_MAX);
        Self { command, running_max, queue: Mutex::default(), ended: Condvar::new() }
    }

    /// The machine code of a module.
    pub(crate) fn compile(&self, module: Vec<u8>) -> Result<Vec<u8>, CompileError> {
        let unavailable = |error: io::Error| CompileError::Unavailable(format!("the WebAssembly compiler: {error}"));
        let _turn = self.take_turn()?;
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

    fn take_turn(&self) -> Result<Turn<'_>, CompileError> {
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
        Ok(Turn(self))
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

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner).running -= 1;
        self.0.ended.notify_one();
    }
}

/// A running compiler. It ends when this is dropped.
struct Process(Child);

impl Process {
    /// Gives it the module, and everything that it writes to the answer when it has closed its output.
    fn exchange(&mut self, module: Vec<u8>) -> io::Result<mpsc::Receiver<Written>> {
        let missing = || io::Error::other("no pipes");
        let mut stdin = self.0.stdin.take().ok_or_else(missing)?;
        let stdout = self.0.stdout.take().ok_or_else(missing)?;
        let stderr = self.0.stderr.take().ok_or_else(missing)?;
        let (sender, receiver) = mpsc::channel();
        let threads = || std::thread::Builder::new().name("wasm-compiler".to_owned());
        // Both threads end with the process.
        threads().spawn(move || {
            // What it does not read it does not need.
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
            // The receiver has gone when the time was over.
            let _ = sender.send(read());
        })?;
        Ok(receiver)
    }
}

impl Process {
    /// How it has ended that has closed its output; `None` when it does not end in time.
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

/// Why a process without an answer has ended: nearly always because it may not have more memory.
fn died(status: ExitStatus, said: &[u8]) -> CompileError {
    let said = String::from_utf8_lossy(said);
    let is_memory = said.contains("memory allocation") || said.contains("out of memory") || said.contains("mmap");
    if is_memory || status.code().is_none() {
        return CompileError::Source(format!("compiling the module takes more than {MEMORY_BYTES} bytes of memory"));
    }
    // A panic: what the compiler cannot do it says in this way. It would do so again.
    if status.code() == Some(PANICKED) {
        let said = said.lines().filter(|line| !line.is_empty()).nth(1).unwrap_or_default();
        return CompileError::Source(format!("the compiler cannot compile the module: {said}"));
    }
    let said = said.lines().last().unwrap_or_default();
    CompileError::Unavailable(format!("the WebAssembly compiler ended with {status}: {said}"))
}

/// The exit status of a program that panicked.
const PANICKED: i32 = 101;

/// The exit status for modules that do not compile.
const REFUSED: i32 = 3;

/// Compiles the module on standard input, writes machine code to standard output, and ends.
///
/// The server starts the program of its [`CompilerCommand`] and expects it to call this, first thing.
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

/// The inner error is one of the module.
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
    // When memory is short, this goes before the server. Where that cannot be said, its own limit has to do.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    // Requests that take a millisecond do not stand behind one that takes seconds.
    let _ = setpriority_process(None, NICENESS);
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn limit_process() -> io::Result<()> {
    Ok(())
}
