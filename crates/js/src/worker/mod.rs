//! The worker process: [`worker_main`] waits for requests of the server and runs user code, one request at a time.
//!
//! Standard input is the control socket and standard output the shared memory. The process ends when the server does, and is
//! killed by the server when a function takes too long where the engine cannot be interrupted. It keeps nothing from one
//! program to the next.

mod emit;
mod engine;
mod heap;
mod lazy;
mod map;
mod names;
mod process;
mod qjs;
mod reduce;
mod sandbox;
mod text;

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use settee_design::Limits;

use self::map::{Halt, MapProgram};
use self::reduce::ReduceProgram;
use crate::protocol::{Frame, Kind, Progress, Reader, Writer};
use crate::shared_memory::{INPUT, OUTPUT, SharedMemory};

/// Answers longer than this are sent in parts.
const PART_BYTES: usize = OUTPUT.end - OUTPUT.start;

/// Runs a worker process until the server that started it is gone.
///
/// The server starts the program of its [`crate::WorkerCommand`] and expects it to call this, first thing, with the
/// descriptors as they are. Called otherwise it fails and says so.
pub fn worker_main() -> ExitCode {
    let (socket, memory) = match process::adopt() {
        Ok(parts) => parts,
        Err(error) => {
            let _ = writeln!(io::stderr(), "this command is for the server to start its JavaScript workers: {error}");
            return ExitCode::from(2);
        }
    };
    let missing = sandbox::enter();
    let mut worker = Worker { socket, memory, program: Program::None, turn: 0 };
    match worker.serve(&missing) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "JavaScript worker: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Worker {
    socket: UnixStream,
    memory: SharedMemory,
    program: Program,
    /// Counts requests, so that the progress of two requests differs.
    turn: u16,
}

enum Program {
    None,
    Map(MapProgram),
    Reduce(ReduceProgram),
}

fn broken(what: &str) -> io::Error {
    io::Error::other(what)
}

impl Worker {
    fn serve(&mut self, missing: &[String]) -> io::Result<()> {
        self.answer(Kind::Done, missing.join("; ").as_bytes())?;
        while let Some(frame) = Frame::read_from(&self.socket)? {
            self.memory.follow(usize::try_from(frame.region).map_err(|_| broken("a region too large"))?)?;
            self.turn = self.turn.wrapping_add(1);
            self.report(Progress { document: 0, function: 0 });
            self.handle(frame)?;
        }
        Ok(())
    }

    fn handle(&mut self, frame: Frame) -> io::Result<()> {
        match frame.kind {
            Kind::CompileMap | Kind::CompileReduce => {
                self.program = Program::None;
                match self.compile(frame) {
                    Ok(note) => self.answer(Kind::Done, &note),
                    Err(message) => self.answer(Kind::Refused, message.as_bytes()),
                }
            }
            Kind::Map => match self.map(frame)? {
                Ok(output) => self.answer(Kind::Done, &output).map(|()| self.reuse(output)),
                Err(halt) => self.stop(&halt),
            },
            Kind::Reduce | Kind::Rereduce => match self.reduce(frame)? {
                Ok(output) => self.answer(Kind::Done, &output),
                Err(halt) => self.stop(&halt),
            },
            Kind::Reset => {
                self.program = Program::None;
                Ok(())
            }
            Kind::SelfTest => {
                let mut report = Vec::new();
                for (attempt, error) in sandbox::self_test() {
                    let mut writer = Writer(&mut report);
                    writer.bytes(attempt.as_bytes());
                    writer.u32(error.map_or(0, i32::cast_unsigned));
                }
                self.answer(Kind::Done, &report)
            }
            Kind::Next | Kind::Done | Kind::Refused | Kind::Stopped => Err(broken("an answer instead of a request")),
        }
    }

    fn input(&self, frame: Frame) -> io::Result<&[u8]> {
        let len = usize::try_from(frame.len).map_err(|_| broken("a request too large"))?;
        Ok(self.memory.bytes(INPUT..INPUT + len))
    }

    fn report(&self, progress: Progress) {
        self.memory.counter().store(progress.pack(self.turn), Ordering::Relaxed);
    }

    fn compile(&mut self, frame: Frame) -> Result<Vec<u8>, String> {
        let garbled = || "the server sent a garbled program".to_owned();
        let mut input = Reader(self.input(frame).map_err(|error| error.to_string())?);
        let mut number = || input.u64().ok_or_else(garbled);
        let limits = Limits {
            timeout_ms: number()?,
            memory_bytes: number()?,
            rows_per_document: u32::try_from(number()?).unwrap_or(u32::MAX),
            bytes_per_document: number()?,
        };
        if frame.kind == Kind::CompileReduce {
            let source = input.text().ok_or_else(garbled)?;
            let program = ReduceProgram::compile(source, limits)?;
            let note = vec![u8::from(reduce::uses_keys(source))];
            self.program = Program::Reduce(program);
            return Ok(note);
        }
        let has_library = input.u32().ok_or_else(garbled)? != 0;
        let library = if has_library { Some(input.text().ok_or_else(garbled)?) } else { None };
        let functions = (0..frame.count).map(|_| input.text().ok_or_else(garbled)).collect::<Result<Vec<_>, _>>()?;
        let program = MapProgram::compile(&functions, library, limits)?;
        self.program = Program::Map(program);
        Ok(Vec::new())
    }

    /// Maps the documents of a request. The answer goes out in parts as it gets long; the last part is returned.
    fn map(&mut self, frame: Frame) -> io::Result<Result<Vec<u8>, Halt>> {
        let Program::Map(mut program) = std::mem::replace(&mut self.program, Program::None) else {
            return Err(broken("documents without a program"));
        };
        program.engine().enter();
        let count = usize::try_from(frame.count).map_err(|_| broken("too many documents"))?;
        let mut at = 0;
        for index in 0..count {
            let mut input = Reader(self.input(frame)?.get(at..).unwrap_or_default());
            let len = input.u32().ok_or_else(|| broken("a garbled batch"))? as usize;
            let text = input.take(len).ok_or_else(|| broken("a garbled batch"))?;
            at += 4 + len;
            let document = u32::try_from(index).map_err(|_| broken("too many documents"))?;
            if let Err(halt) = program.map(document, text, |progress| self.report(progress)) {
                return Ok(Err(halt));
            }
            let emitter = &program.engine().host().emitter;
            if emitter.output_len() >= PART_BYTES {
                let output = emitter.take_output();
                for part in output.chunks(PART_BYTES) {
                    self.send_part(part)?;
                }
                emitter.reuse_output(output);
            }
        }
        program.engine().run_jobs();
        let output = program.engine().host().emitter.take_output();
        self.program = Program::Map(program);
        Ok(Ok(output))
    }

    fn reuse(&mut self, output: Vec<u8>) {
        if let Program::Map(program) = &self.program {
            program.engine().host().emitter.reuse_output(output);
        }
    }

    fn reduce(&mut self, frame: Frame) -> io::Result<Result<Vec<u8>, Halt>> {
        let Program::Reduce(mut program) = std::mem::replace(&mut self.program, Program::None) else {
            return Err(broken("rows without a program"));
        };
        program.engine().enter();
        let rereduce = frame.kind == Kind::Rereduce;
        let mut out = Vec::new();
        let mut input = Reader(self.input(frame)?);
        for index in 0..frame.count {
            let keys = input.bytes().ok_or_else(|| broken("a garbled group"))?;
            let values = input.bytes().ok_or_else(|| broken("a garbled group"))?;
            let document = u32::try_from(index).map_err(|_| broken("too many groups"))?;
            self.report(Progress { document, function: 0 });
            if let Err(halt) = program.reduce(keys, values, rereduce, &mut out) {
                return Ok(Err(halt));
            }
        }
        program.engine().run_jobs();
        self.program = Program::Reduce(program);
        Ok(Ok(out))
    }

    fn stop(&mut self, halt: &Halt) -> io::Result<()> {
        let mut text = Vec::new();
        let mut writer = Writer(&mut text);
        writer.u32(halt.stop as u32);
        writer.bytes(halt.name.as_bytes());
        writer.bytes(halt.reason.as_bytes());
        self.answer(Kind::Stopped, &text)
    }

    /// Sends an answer, in parts if it is long.
    fn answer(&mut self, kind: Kind, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while rest.len() > PART_BYTES {
            let (part, later) = rest.split_at(PART_BYTES);
            self.send(kind, part, 1)?;
            self.await_next()?;
            rest = later;
        }
        self.send(kind, rest, 0)
    }

    fn send_part(&mut self, part: &[u8]) -> io::Result<()> {
        self.send(Kind::Done, part, 1)?;
        self.await_next()
    }

    fn send(&mut self, kind: Kind, part: &[u8], more: u64) -> io::Result<()> {
        self.memory.write(OUTPUT.start, part);
        let frame = Frame { kind, count: more, len: part.len() as u64, region: self.memory.len() as u64 };
        frame.write_to(&self.socket)
    }

    fn await_next(&mut self) -> io::Result<()> {
        match Frame::read_from(&self.socket)? {
            Some(Frame { kind: Kind::Next, .. }) => Ok(()),
            _ => Err(broken("the server did not take the answer")),
        }
    }
}
