//! The worker process: [`worker_main`] receives requests of the server and runs user code. Standard input is the
//! control socket and standard output the shared memory. No state is kept between programs; the functions of design
//! documents stay compiled until their slots are reused.

mod clock;
mod connection;
mod design;
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
mod session;

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::rc::Rc;

use settee_design::Limits;

use self::connection::{PART_BYTES, ServerConnection, protocol_error};
use self::design::DesignFunctions;
use self::emit::Emitter;
use self::map::{Halt, MapProgram};
use self::reduce::ReduceProgram;
use crate::protocol::{Frame, Kind, Progress, Reader, Writer};

/// Main function of a worker process, which runs until the server disconnects. The program of a
/// [`crate::WorkerCommand`] must call it first, with the descriptors unchanged; otherwise it fails with a message.
pub fn worker_main() -> ExitCode {
    let (socket, memory) = match process::take_descriptors() {
        Ok(parts) => parts,
        Err(error) => {
            let _ = writeln!(io::stderr(), "this command is for the server to start its JavaScript workers: {error}");
            return ExitCode::from(2);
        }
    };
    let missing = sandbox::enter();
    let connection = Rc::new(ServerConnection::new(socket, memory));
    let mut worker = Worker { connection, program: Program::None, designs: HashMap::new() };
    match worker.serve(&missing) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "JavaScript worker: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Worker {
    connection: Rc<ServerConnection>,
    program: Program,
    designs: HashMap<u64, DesignFunctions>,
}

enum Program {
    None,
    Map(MapProgram),
    Reduce(ReduceProgram),
}

impl Worker {
    fn serve(&mut self, missing: &[String]) -> io::Result<()> {
        self.connection.answer(Kind::Done, missing.join("; ").as_bytes())?;
        while let Some(frame) = self.connection.receive()? {
            self.handle(frame)?;
        }
        Ok(())
    }

    fn handle(&mut self, frame: Frame) -> io::Result<()> {
        match frame.kind {
            Kind::CompileMap | Kind::CompileReduce => {
                self.program = Program::None;
                match self.compile(frame) {
                    Ok(note) => self.connection.answer(Kind::Done, &note),
                    Err(message) => self.connection.answer(Kind::Refused, message.as_bytes()),
                }
            }
            Kind::Map => match self.map(frame)? {
                Ok(output) => self.connection.answer(Kind::Done, &output).map(|()| self.reuse(output)),
                Err(halt) => self.stop(&halt),
            },
            Kind::Reduce | Kind::Rereduce => match self.reduce(frame)? {
                Ok(output) => self.connection.answer(Kind::Done, &output),
                Err(halt) => self.stop(&halt),
            },
            Kind::LoadDesign => {
                self.designs.remove(&frame.count);
                match self.load_design(frame) {
                    Ok(functions) => {
                        self.designs.insert(frame.count, functions);
                        self.connection.answer(Kind::Done, b"")
                    }
                    Err(message) => self.connection.answer(Kind::Refused, message.as_bytes()),
                }
            }
            Kind::Call | Kind::Filter | Kind::List => {
                let mut functions =
                    self.designs.remove(&frame.count).ok_or_else(|| protocol_error("functions never taught"))?;
                match functions.serve(frame)? {
                    Ok(()) => {
                        self.designs.insert(frame.count, functions);
                        Ok(())
                    }
                    Err(halt) => self.stop(&halt),
                }
            }
            Kind::Reset => {
                self.program = Program::None;
                self.designs.clear();
                Ok(())
            }
            Kind::SelfTest => self.self_test(),
            Kind::Next
            | Kind::Rows
            | Kind::Done
            | Kind::Refused
            | Kind::Stopped
            | Kind::Threw
            | Kind::Chunks
            | Kind::Log => Err(protocol_error("an answer instead of a request")),
        }
    }

    fn self_test(&self) -> io::Result<()> {
        let mut report = Vec::new();
        for (attempt, error) in sandbox::self_test() {
            let mut writer = Writer(&mut report);
            writer.bytes(attempt.as_bytes());
            writer.u32(error.map_or(0, i32::cast_unsigned));
        }
        self.connection.answer(Kind::Done, &report)
    }

    fn compile(&mut self, frame: Frame) -> Result<Vec<u8>, String> {
        let request = self.connection.input(frame).map_err(|error| error.to_string())?;
        let mut input = Reader(&request);
        let limits = read_limits(&mut input).ok_or_else(invalid_program)?;
        if frame.kind == Kind::CompileReduce {
            let source = input.text().ok_or_else(invalid_program)?;
            let program = ReduceProgram::compile(source, limits)?;
            let note = vec![u8::from(reduce::uses_keys(source))];
            self.program = Program::Reduce(program);
            return Ok(note);
        }
        let search = input.u32().ok_or_else(invalid_program)?;
        let has_library = input.u32().ok_or_else(invalid_program)? != 0;
        let library = if has_library { Some(input.text().ok_or_else(invalid_program)?) } else { None };
        let functions =
            (0..frame.count).map(|_| input.text().ok_or_else(invalid_program)).collect::<Result<Vec<_>, _>>()?;
        let program = MapProgram::compile(&functions, search, library, limits)?;
        self.program = Program::Map(program);
        Ok(Vec::new())
    }

    fn load_design(&self, frame: Frame) -> Result<DesignFunctions, String> {
        let request = self.connection.input(frame).map_err(|error| error.to_string())?;
        let mut input = Reader(&request);
        let limits = read_limits(&mut input).ok_or_else(invalid_program)?;
        let id = input.text().ok_or_else(invalid_program)?;
        let document = input.text().ok_or_else(invalid_program)?;
        DesignFunctions::new(id, document, limits, Rc::clone(&self.connection))
    }

    /// A long response is sent in parts; the last part is returned.
    fn map(&mut self, frame: Frame) -> io::Result<Result<Vec<u8>, Halt>> {
        let Program::Map(mut program) = std::mem::replace(&mut self.program, Program::None) else {
            return Err(protocol_error("documents without a program"));
        };
        program.engine().enter();
        let count = usize::try_from(frame.count).map_err(|_| protocol_error("too many documents"))?;
        let mut at = 0;
        for index in 0..count {
            let document = u32::try_from(index).map_err(|_| protocol_error("too many documents"))?;
            let text = {
                let request = self.connection.input(frame)?;
                let mut input = Reader(request.get(at..).unwrap_or_default());
                let len = input.u32().ok_or_else(|| protocol_error("a garbled batch"))? as usize;
                input.take(len).ok_or_else(|| protocol_error("a garbled batch"))?;
                at + 4..at + 4 + len
            };
            at = text.end;
            for function in 0..program.functions() {
                let request = self.connection.input(frame)?;
                let mapped = program
                    .map(document, function, &request[text.clone()], |progress| self.connection.report(progress));
                drop(request);
                if let Err(halt) = mapped {
                    return Ok(Err(halt));
                }
                // After each function, because a long program may emit much in total.
                self.send_parts(&program.engine().host().emitter)?;
            }
        }
        program.engine().run_jobs();
        let output = program.engine().host().emitter.take_output();
        self.program = Program::Map(program);
        Ok(Ok(output))
    }

    fn send_parts(&self, emitter: &Emitter) -> io::Result<()> {
        if emitter.output_len() < PART_BYTES {
            return Ok(());
        }
        let output = emitter.take_output();
        output.chunks(PART_BYTES).try_for_each(|part| self.connection.send_part(Kind::Done, part))?;
        emitter.reuse_output(output);
        Ok(())
    }

    fn reuse(&mut self, output: Vec<u8>) {
        if let Program::Map(program) = &self.program {
            program.engine().host().emitter.reuse_output(output);
        }
    }

    fn reduce(&mut self, frame: Frame) -> io::Result<Result<Vec<u8>, Halt>> {
        let Program::Reduce(mut program) = std::mem::replace(&mut self.program, Program::None) else {
            return Err(protocol_error("rows without a program"));
        };
        program.engine().enter();
        let rereduce = frame.kind == Kind::Rereduce;
        // The response starts with the number of reduced groups, which is lower than requested if the reductions got
        // long.
        let mut out = vec![0; size_of::<u64>()];
        let mut reduced: u64 = 0;
        let request = self.connection.input(frame)?;
        let mut input = Reader(&request);
        for index in 0..frame.count {
            if out.len() as u64 >= program.engine().host().limits.bytes_per_part {
                break;
            }
            reduced += 1;
            let keys = input.bytes().ok_or_else(|| protocol_error("a garbled group"))?;
            let values = input.bytes().ok_or_else(|| protocol_error("a garbled group"))?;
            let document = u32::try_from(index).map_err(|_| protocol_error("too many groups"))?;
            self.connection.report(Progress { document, function: 0 });
            if let Err(halt) = program.reduce(keys, values, rereduce, &mut out) {
                return Ok(Err(halt));
            }
        }
        out[..size_of::<u64>()].copy_from_slice(&reduced.to_le_bytes());
        program.engine().run_jobs();
        drop(request);
        for line in program.take_log() {
            Writer(&mut out).bytes(line.as_bytes());
        }
        self.program = Program::Reduce(program);
        Ok(Ok(out))
    }

    fn stop(&mut self, halt: &Halt) -> io::Result<()> {
        let mut text = Vec::new();
        let mut writer = Writer(&mut text);
        writer.u32(halt.stop as u32);
        writer.bytes(halt.name.as_bytes());
        writer.bytes(halt.reason.as_bytes());
        self.connection.answer(Kind::Stopped, &text)
    }
}

fn invalid_program() -> String {
    "the server sent a garbled program".to_owned()
}

fn read_limits(input: &mut Reader<'_>) -> Option<Limits> {
    Some(Limits {
        timeout_ms: input.u64()?,
        memory_bytes: input.u64()?,
        rows_per_document: u32::try_from(input.u64()?).unwrap_or(u32::MAX),
        bytes_per_document: input.u64()?,
        key_bytes: input.u64()?,
        value_bytes: input.u64()?,
        reduction_bytes: input.u64()?,
        bytes_per_part: input.u64()?,
        // The server checks the growth of reductions.
        ..Limits::default()
    })
}
