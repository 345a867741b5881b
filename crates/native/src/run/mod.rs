//! Evaluation of the tree: [`Run`] is one call of a function for one document. Exceptions, unknown state, and exceeded
//! limits end it with [`Stop::BailOut`]: the engine then runs the function on the document from the start.

mod assignment;
mod emit;
mod expressions;
mod index;

use bumpalo::Bump;
use bumpalo::collections::Vec as ArenaVec;

use super::convert::{self, Converter, truthy};
use super::tree::{
    AssignmentTarget, Builtin, Callee, Expression, Function, Loop, Program, Statement, Target, Variable,
};
use super::value::{Lazy, Packed, Val};
use crate::reason::{Reason, Steps, Stop};

pub(super) const MAX_DEPTH: u16 = 250;

/// The text of an exception contains longer names truncated.
const LONGEST_QUOTED_NAME: usize = 40;

enum Flow<'a> {
    Next,
    Break,
    Continue,
    Return(Val<'a>),
}

pub(super) trait Sink {
    fn row(&mut self, key: &[u8], value: &[u8]) -> Result<(), Stop>;
    fn line(&mut self, line: &[u8]);
}

pub(super) struct Run<'a, 's> {
    program: &'a Program,
    pub(super) arena: &'a Bump,
    pub(super) steps: Steps,
    stack: ArenaVec<'a, Packed<'a>>,
    frames: ArenaVec<'a, Frame>,
    frame: usize,
    base: usize,
    depth: u16,
    /// True while the rest of a chain is skipped after an absent value before `?.`.
    is_short_circuited: bool,
    /// Text of the exception that ends the call, if it can be computed.
    thrown: Option<String>,
    rows: ArenaVec<'a, (Val<'a>, Val<'a>)>,
    /// Number of rows that the engine would have waiting.
    waiting: usize,
    row_text: &'s mut Vec<u8>,
    log_bytes: usize,
    sink: &'s mut dyn Sink,
}

#[derive(Clone, Copy)]
struct Frame {
    base: usize,
    parent: usize,
}

impl<'a, 's> Run<'a, 's> {
    pub(super) fn call_program(
        program: &'a Program,
        arena: &'a Bump,
        steps: Steps,
        document: &'a Lazy<'a>,
        row_text: &'s mut Vec<u8>,
        sink: &'s mut dyn Sink,
    ) -> Result<Option<String>, Stop> {
        let main = &program.functions[usize::from(program.main)];
        let mut run = Run {
            program,
            arena,
            steps,
            stack: ArenaVec::with_capacity_in(usize::from(main.slots) + 16, arena),
            frames: ArenaVec::with_capacity_in(8, arena),
            frame: 0,
            base: 0,
            depth: main.depth,
            is_short_circuited: false,
            thrown: None,
            rows: ArenaVec::new_in(arena),
            waiting: 0,
            row_text,
            log_bytes: 0,
            sink,
        };
        run.frames.push(Frame { base: 0, parent: 0 });
        run.stack.push(Packed::Lazy(document));
        run.finish_frame(main, 1);
        match run.block(&main.body) {
            Ok(_) => run.write_rows().map(|()| None),
            Err(stop) => run.thrown.map(Some).ok_or(stop),
        }
    }

    #[cold]
    fn throw_absent(&mut self, name: &[u8], of: &str) -> Stop {
        // The engine truncates long names, and formats others differently.
        if name.len() <= LONGEST_QUOTED_NAME && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
            let name = String::from_utf8_lossy(name);
            self.thrown = Some(format!("TypeError: cannot read property '{name}' of {of}"));
        }
        Stop::BailOut(Reason::Exception)
    }

    fn finish_frame(&mut self, function: &Function, given: usize) {
        let base = self.stack.len() - given;
        if given > usize::from(function.parameters) {
            self.stack.truncate(base + usize::from(function.parameters));
        }
        self.stack.resize(base + usize::from(function.slots), Packed::Undefined);
        for slot in &function.unset {
            self.stack[base + usize::from(*slot)] = Packed::Unset;
        }
    }

    pub(super) fn convert(&mut self) -> Converter<'a, '_> {
        Converter { arena: self.arena, steps: &mut self.steps }
    }

    pub(super) fn call(&mut self, callee: Callee, arguments: &[Val<'a>]) -> Result<Val<'a>, Stop> {
        let program = self.program;
        let function = &program.functions[usize::from(self.called(callee)?)];
        self.steps.charge(4)?;
        self.steps.charge_bytes(usize::from(function.slots) * size_of::<Val<'_>>())?;
        let depth = self.depth + function.depth;
        if depth > MAX_DEPTH {
            return Err(Stop::BailOut(Reason::Depth));
        }
        let mut parent = self.frame;
        for _ in 0..callee.levels {
            parent = self.frames[parent].parent;
        }
        let saved = (self.frame, self.base, self.depth);
        let base = self.stack.len();
        self.stack.extend(arguments.iter().map(|argument| argument.pack(self.arena)));
        self.finish_frame(function, arguments.len());
        self.frames.push(Frame { base, parent });
        (self.frame, self.base, self.depth) = (self.frames.len() - 1, base, depth);
        let flow = self.block(&function.body)?;
        self.frames.pop();
        self.stack.truncate(base);
        (self.frame, self.base, self.depth) = saved;
        Ok(if let Flow::Return(value) = flow { value } else { Val::Undefined })
    }

    /// Calls of values other than functions are left to the engine.
    pub(super) fn called(&self, callee: Callee) -> Result<u16, Stop> {
        match callee.target {
            Target::Function(function) => Ok(function),
            Target::Variable(slot) => match self.stack[self.slot_index(Variable { levels: callee.levels, slot })] {
                Packed::Function(function) => Ok(function),
                _ => Err(Stop::BailOut(Reason::Call)),
            },
        }
    }

    fn slot_index(&self, variable: Variable) -> usize {
        if variable.levels == 0 {
            return self.base + usize::from(variable.slot);
        }
        let mut frame = self.frame;
        for _ in 0..variable.levels {
            frame = self.frames[frame].parent;
        }
        self.frames[frame].base + usize::from(variable.slot)
    }

    fn block(&mut self, statements: &'a [Statement]) -> Result<Flow<'a>, Stop> {
        for statement in statements {
            match self.statement(statement)? {
                Flow::Next => {}
                other => return Ok(other),
            }
        }
        Ok(Flow::Next)
    }

    fn statement(&mut self, statement: &'a Statement) -> Result<Flow<'a>, Stop> {
        match statement {
            Statement::Expression(Expression::Builtin(Builtin::Emit, arguments)) => self.emit_call(arguments)?,
            Statement::Expression(expression) => {
                self.eval(expression)?;
            }
            Statement::Block(statements) => return self.block(statements),
            Statement::If(test, then, otherwise) => {
                if truthy(self.eval(test)?) {
                    return self.statement(then);
                } else if let Some(otherwise) = otherwise {
                    return self.statement(otherwise);
                }
            }
            Statement::Loop(parts) => return self.run_loop(parts),
            Statement::ForIn(target, object, body) => return self.for_in(target, object, body),
            Statement::ForOf(target, object, body) => return self.for_of(target, object, body),
            Statement::Switch(value, cases) => return self.switch(value, cases),
            Statement::Try(block, _) => {
                let flow = self.statement(block);
                if flow.is_err() {
                    self.thrown = None;
                }
                return flow;
            }
            Statement::Return(None) => return Ok(Flow::Return(Val::Undefined)),
            Statement::Return(Some(value)) => return Ok(Flow::Return(self.eval(value)?)),
            Statement::Break => return Ok(Flow::Break),
            Statement::Continue => return Ok(Flow::Continue),
            Statement::BailOut => return Err(Stop::BailOut(Reason::Throw)),
            Statement::Empty => {}
        }
        Ok(Flow::Next)
    }

    fn run_loop(&mut self, parts: &'a Loop) -> Result<Flow<'a>, Stop> {
        if let Some(init) = &parts.init {
            self.statement(init)?;
        }
        let mut tested = parts.body_first;
        loop {
            self.steps.charge(2)?;
            if !tested
                && let Some(test) = &parts.test
                && !truthy(self.eval(test)?)
            {
                return Ok(Flow::Next);
            }
            tested = false;
            match self.statement(&parts.body)? {
                Flow::Break => return Ok(Flow::Next),
                Flow::Return(value) => return Ok(Flow::Return(value)),
                Flow::Next | Flow::Continue => {}
            }
            if let Some(update) = &parts.update {
                self.eval(update)?;
            }
        }
    }

    fn for_in(
        &mut self,
        target: &'a AssignmentTarget,
        object: &'a Expression,
        body: &'a Statement,
    ) -> Result<Flow<'a>, Stop> {
        let object = self.eval(object)?;
        let mut names = ArenaVec::new_in(self.arena);
        let mut length = None;
        match object {
            Val::Lazy(lazy) => names = lazy.names(self.arena),
            Val::Object(object) => names = object.names(self.arena),
            Val::Array(array) if !array.is_match => length = Some(array.len(self.arena)),
            Val::Text(text) if text.is_ascii() => length = Some(text.len()),
            Val::Undefined | Val::Null | Val::Bool(_) | Val::Number(_) | Val::Date(_) => {}
            Val::Text(_) | Val::Array(_) | Val::Unset | Val::Pattern(_) | Val::Function(_) => {
                return Err(Stop::BailOut(Reason::Loop));
            }
        }
        for index in 0..length.unwrap_or_default() {
            self.steps.charge(1)?;
            #[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 elements")]
            let name = self.convert().number_text(index as f64)?;
            names.push(name);
        }
        for name in names {
            self.steps.charge(2)?;
            self.assign(target, Val::Text(name))?;
            match self.statement(body)? {
                Flow::Break => break,
                Flow::Return(value) => return Ok(Flow::Return(value)),
                Flow::Next | Flow::Continue => {}
            }
        }
        match object {
            // Modifications during an iteration are left to the engine.
            Val::Array(array) if length != Some(array.len(self.arena)) => Err(Stop::BailOut(Reason::Loop)),
            _ => Ok(Flow::Next),
        }
    }

    fn for_of(
        &mut self,
        target: &'a AssignmentTarget,
        object: &'a Expression,
        body: &'a Statement,
    ) -> Result<Flow<'a>, Stop> {
        let Val::Array(array) = self.eval(object)? else {
            return Err(Stop::BailOut(Reason::Loop));
        };
        let mut index = 0;
        while let Some(value) = array.get(self.arena, index) {
            self.steps.charge(2)?;
            self.assign(target, value)?;
            match self.statement(body)? {
                Flow::Break => break,
                Flow::Return(value) => return Ok(Flow::Return(value)),
                Flow::Next | Flow::Continue => {}
            }
            index += 1;
        }
        Ok(Flow::Next)
    }

    fn switch(
        &mut self,
        value: &'a Expression,
        cases: &'a [(Option<Expression>, Vec<Statement>)],
    ) -> Result<Flow<'a>, Stop> {
        let value = self.eval(value)?;
        let mut chosen = None;
        for (index, (test, _)) in cases.iter().enumerate() {
            if let Some(test) = test
                && convert::strict_equal(value, self.eval(test)?)
            {
                chosen = Some(index);
                break;
            }
        }
        let chosen = chosen.or_else(|| cases.iter().position(|(test, _)| test.is_none()));
        for (_, statements) in &cases[chosen.unwrap_or(cases.len())..] {
            match self.block(statements)? {
                Flow::Next => {}
                Flow::Break => return Ok(Flow::Next),
                other => return Ok(other),
            }
        }
        Ok(Flow::Next)
    }
}

pub(super) fn element_index(key: Val<'_>) -> Option<usize> {
    let Val::Number(number) = key else {
        return None;
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "what does not fit does not come back")]
    let index = number as u32;
    #[expect(clippy::float_cmp, reason = "the comparison is about exactly that")]
    let exact = f64::from(index) == number && index != u32::MAX;
    exact.then_some(index as usize)
}

pub(super) fn count<'a>(number: usize) -> Val<'a> {
    #[expect(clippy::cast_precision_loss, reason = "fewer than 2^53")]
    let number = number as f64;
    Val::Number(number)
}
