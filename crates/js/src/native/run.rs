//! Walking the tree: [`Run`] is one call of a function for one document.
//!
//! Whatever the language would answer with an exception, whatever depends on what is not known here, and whatever takes
//! too long ends the run with [`Stop::GiveUp`]: then the engine runs the function on the document, as if nothing had been
//! tried. Functions of the subset keep nothing from one document to the next, so that makes no difference.

use bumpalo::Bump;
use bumpalo::collections::Vec as ArenaVec;

use super::convert::{self, Maker, truthy};
use super::inherited;
use super::tree::{
    Binary, Callee, Class, Element, Expression, Function, Logical, Loop, Place, Program, Property, Statement, Unary,
    Variable,
};
use super::value::{Array, Lazy, Object, Packed, Steps, Val};
use super::write;

/// Evaluation nested deeper than this is left to the engine.
pub(super) const MAX_DEPTH: u16 = 250;

/// Rows that wait for the end of the call; more are written at once, as the workers do.
const WAITING_ROWS: usize = 4096;

/// Keys of so many elements are written without making an array.
const SHORT_KEY: usize = 6;

/// Names of members up to this length stand in the texts of exceptions as they are.
const LONGEST_NAMED: usize = 40;

/// Bytes of log lines of one call; more are dropped, as the workers do.
const LOG_BYTES: usize = 64 << 10;

/// Why evaluation does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The engine shall do it. Also, with [`Run::short`], that the rest of a chain is not evaluated.
    GiveUp,
}

/// How a statement ended.
enum Flow<'a> {
    Next,
    Break,
    Continue,
    Return(Val<'a>),
}

/// Takes the rows and lines of a call.
pub(super) trait Sink {
    /// Takes a row.
    fn row(&mut self, key: &[u8], value: &[u8]) -> Result<(), Stop>;
    /// Takes a line.
    fn line(&mut self, line: &[u8]);
}

/// One call.
pub(super) struct Run<'a, 's> {
    program: &'a Program,
    pub(super) arena: &'a Bump,
    pub(super) steps: Steps,
    stack: ArenaVec<'a, Packed<'a>>,
    frames: ArenaVec<'a, Frame>,
    frame: usize,
    base: usize,
    depth: u16,
    /// Set while a chain is left because something before `?.` is not there.
    short: bool,
    /// The exception that ends the call, if it is one whose text is known.
    thrown: Option<String>,
    /// Rows that are written at the end of the call.
    rows: ArenaVec<'a, (Val<'a>, Val<'a>)>,
    /// How many rows the engine would have waiting.
    waiting: usize,
    row_text: &'s mut Vec<u8>,
    log_bytes: usize,
    sink: &'s mut dyn Sink,
}

#[derive(Clone, Copy)]
struct Frame {
    base: usize,
    /// The frame of the function around this one.
    parent: usize,
}

impl<'a, 's> Run<'a, 's> {
    /// Calls the program's function with the document `text`, which must begin with a brace. Answers the text of an
    /// exception, if it ended with one.
    pub(super) fn call_program(
        program: &'a Program,
        arena: &'a Bump,
        steps: Steps,
        text: &'a [u8],
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
            short: false,
            thrown: None,
            rows: ArenaVec::new_in(arena),
            waiting: 0,
            row_text,
            log_bytes: 0,
            sink,
        };
        run.frames.push(Frame { base: 0, parent: 0 });
        run.stack.push(Packed::Lazy(Lazy::new(arena, text)));
        run.finish_frame(main, 1);
        match run.block(&main.body) {
            Ok(_) => run.write_rows().map(|()| None),
            Err(Stop::GiveUp) => run.thrown.map(Some).ok_or(Stop::GiveUp),
        }
    }

    /// A member of nothing is asked for: an exception, whose text is the engine's.
    #[cold]
    fn throw_absent(&mut self, name: &[u8], of: &str) -> Stop {
        // The engine cuts long names, and writes others in its own way.
        if name.len() <= LONGEST_NAMED && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
            let name = String::from_utf8_lossy(name);
            self.thrown = Some(format!("TypeError: cannot read property '{name}' of {of}"));
        }
        Stop::GiveUp
    }

    /// Fills up the slots of a frame whose arguments were pushed.
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

    pub(super) fn make(&mut self) -> Maker<'a, '_> {
        Maker { arena: self.arena, steps: &mut self.steps }
    }

    /// Calls a function with arguments.
    pub(super) fn call(&mut self, callee: Callee, arguments: &[Val<'a>]) -> Result<Val<'a>, Stop> {
        let program = self.program;
        let function = &program.functions[usize::from(callee.function)];
        if let Some(variable) = callee.variable
            && !matches!(self.stack[self.place(variable)], Packed::Function)
        {
            return Err(Stop::GiveUp);
        }
        self.steps.pay(4)?;
        self.steps.take_bytes(usize::from(function.slots) * size_of::<Val<'_>>())?;
        let depth = self.depth + function.depth;
        if depth > MAX_DEPTH {
            return Err(Stop::GiveUp);
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

    fn place(&self, variable: Variable) -> usize {
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
            Statement::ForIn(place, object, body) => return self.for_in(place, object, body),
            Statement::ForOf(place, object, body) => return self.for_of(place, object, body),
            Statement::Switch(value, cases) => return self.switch(value, cases),
            Statement::Try(block) => {
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
            Statement::GiveUp => return Err(Stop::GiveUp),
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
            self.steps.pay(2)?;
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

    fn for_in(&mut self, place: &'a Place, object: &'a Expression, body: &'a Statement) -> Result<Flow<'a>, Stop> {
        let object = self.eval(object)?;
        let mut names = ArenaVec::new_in(self.arena);
        let mut length = None;
        match object {
            Val::Lazy(lazy) => names = lazy.names(self.arena),
            Val::Object(object) => names = object.names(self.arena),
            Val::Array(array) if !array.is_match => length = Some(array.len(self.arena)),
            Val::Text(text) if text.is_ascii() => length = Some(text.len()),
            Val::Undefined | Val::Null | Val::Bool(_) | Val::Number(_) | Val::Date(_) => {}
            Val::Text(_) | Val::Array(_) | Val::Unset | Val::Pattern(_) | Val::Function => return Err(Stop::GiveUp),
        }
        for index in 0..length.unwrap_or_default() {
            self.steps.pay(1)?;
            #[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 elements")]
            let name = self.make().number_text(index as f64)?;
            names.push(name);
        }
        for name in names {
            self.steps.pay(2)?;
            self.assign(place, Val::Text(name))?;
            match self.statement(body)? {
                Flow::Break => break,
                Flow::Return(value) => return Ok(Flow::Return(value)),
                Flow::Next | Flow::Continue => {}
            }
        }
        match object {
            // What is added or taken away meanwhile is a matter of the engine.
            Val::Array(array) if length != Some(array.len(self.arena)) => Err(Stop::GiveUp),
            _ => Ok(Flow::Next),
        }
    }

    fn for_of(&mut self, place: &'a Place, object: &'a Expression, body: &'a Statement) -> Result<Flow<'a>, Stop> {
        let Val::Array(array) = self.eval(object)? else {
            return Err(Stop::GiveUp);
        };
        let mut index = 0;
        while let Some(value) = array.get(self.arena, index) {
            self.steps.pay(2)?;
            self.assign(place, value)?;
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

    /// Evaluates an expression.
    #[inline(always)]
    pub(super) fn eval(&mut self, expression: &'a Expression) -> Result<Val<'a>, Stop> {
        self.eval_packed(expression).map(Packed::open)
    }

    fn eval_packed(&mut self, expression: &'a Expression) -> Result<Packed<'a>, Stop> {
        match expression {
            Expression::Variable(variable) => match self.stack[self.place(*variable)] {
                Packed::Unset | Packed::Function => Err(Stop::GiveUp),
                value => Ok(value),
            },
            Expression::Member(object, name) => {
                let object = self.eval_packed(object)?;
                self.packed_member(object, name)
            }
            Expression::Logical(operator, sides) => {
                let left = self.eval_packed(&sides.0)?;
                if decided(*operator, left.open()) { Ok(left) } else { self.eval_packed(&sides.1) }
            }
            Expression::Conditional(parts) => {
                if truthy(self.eval(&parts.0)?) {
                    self.eval_packed(&parts.1)
                } else {
                    self.eval_packed(&parts.2)
                }
            }
            _ => {
                let value = self.eval_other(expression)?;
                Ok(value.pack(self.arena))
            }
        }
    }

    fn packed_member(&mut self, object: Packed<'a>, name: &[u8]) -> Result<Packed<'a>, Stop> {
        if let Packed::Lazy(lazy) = object {
            return match lazy.get(self.arena, name, &mut self.steps)? {
                Some(value) => Ok(value),
                None if inherited::by_objects(name) => Err(Stop::GiveUp),
                None => Ok(Packed::Undefined),
            };
        }
        let value = self.member(object.open(), name)?;
        Ok(value.pack(self.arena))
    }

    #[inline(always)]
    fn eval_other(&mut self, expression: &'a Expression) -> Result<Val<'a>, Stop> {
        match expression {
            Expression::Text(text) => Ok(Val::Text(text)),
            Expression::Number(number) => Ok(Val::Number(*number)),
            Expression::Null => Ok(Val::Null),
            Expression::Undefined => Ok(Val::Undefined),
            Expression::Bool(value) => Ok(Val::Bool(*value)),
            Expression::Binary(operator, sides) => {
                let left = self.eval(&sides.0)?;
                let right = self.eval(&sides.1)?;
                self.binary(*operator, left, right)
            }
            Expression::Builtin(builtin, arguments) => self.builtin(*builtin, arguments),
            Expression::Array(elements) => self.array(elements),
            Expression::Index(sides) => self.index(sides),
            Expression::Method(object, method, arguments) => {
                let object = self.eval(object)?;
                self.method(object, *method, arguments)
            }
            Expression::Unary(operator, operand) => self.unary(*operator, operand),
            Expression::Assign(place, value) => self.assign_expression(place, value),
            Expression::Update(place, amount, prefix) => self.update(place, *amount, *prefix),
            _ => self.eval_rare(expression),
        }
    }

    fn eval_rare(&mut self, expression: &'a Expression) -> Result<Val<'a>, Stop> {
        match expression {
            Expression::SetFunction(slot) => {
                self.stack[self.base + usize::from(*slot)] = Packed::Function;
                Ok(Val::Undefined)
            }
            Expression::Compound(place, operator, value) => self.compound(place, *operator, value),
            Expression::CompoundLogical(place, operator, value) => self.compound_logical(place, *operator, value),
            Expression::Guard(object) => match self.eval(object)? {
                Val::Undefined | Val::Null => {
                    self.short = true;
                    Err(Stop::GiveUp)
                }
                value => Ok(value),
            },
            Expression::Chain(chain) => match self.eval(chain) {
                Err(Stop::GiveUp) if std::mem::take(&mut self.short) => Ok(Val::Undefined),
                result => result,
            },
            Expression::Visit(visit) => self.visit(visit),
            Expression::Call(callee, arguments) => {
                let arguments = self.arguments(arguments)?;
                self.call(*callee, &arguments)
            }
            Expression::InstanceOf(value, class) => {
                let value = self.eval(value)?;
                Ok(Val::Bool(match class {
                    Class::Array => matches!(value, Val::Array(_)),
                    Class::Object => matches!(value, Val::Array(_) | Val::Lazy(_) | Val::Object(_) | Val::Date(_)),
                }))
            }
            Expression::Template(parts) => self.template(parts),
            Expression::Object(properties) => self.object(properties),
            Expression::Sequence(expressions) => {
                let mut last = Val::Undefined;
                for expression in expressions {
                    last = self.eval(expression)?;
                }
                Ok(last)
            }
            Expression::Pattern(pattern) => Ok(Val::Pattern(pattern)),
            _ => Err(Stop::GiveUp),
        }
    }

    /// Evaluates arguments, any number of them.
    pub(super) fn arguments(&mut self, arguments: &'a [Expression]) -> Result<ArenaVec<'a, Val<'a>>, Stop> {
        let mut values = ArenaVec::with_capacity_in(arguments.len(), self.arena);
        for argument in arguments {
            values.push(self.eval(argument)?);
        }
        Ok(values)
    }

    /// Evaluates arguments; missing ones are undefined.
    pub(super) fn first_arguments<const N: usize>(
        &mut self,
        arguments: &'a [Expression],
    ) -> Result<[Val<'a>; N], Stop> {
        let mut values = [Val::Undefined; N];
        for (index, argument) in arguments.iter().enumerate() {
            let value = self.eval(argument)?;
            if let Some(place) = values.get_mut(index) {
                *place = value;
            }
        }
        Ok(values)
    }

    /// A member of a value.
    pub(super) fn member(&mut self, object: Val<'a>, name: &[u8]) -> Result<Val<'a>, Stop> {
        let found = match object {
            Val::Lazy(lazy) => lazy.get(self.arena, name, &mut self.steps)?.map(Packed::open),
            Val::Object(object) => object.get(name, &mut self.steps)?,
            Val::Array(array) => {
                if name == b"length" {
                    return Ok(count(array.len(self.arena)));
                }
                return match crate::text::array_index(name) {
                    Some(index) => Ok(array.get(self.arena, index as usize).unwrap_or(Val::Undefined)),
                    None => inherited::absent(name),
                };
            }
            Val::Text(text) => {
                if name == b"length" {
                    return Ok(count(super::strings::length(text)?));
                }
                return match crate::text::array_index(name) {
                    Some(index) => self.text_element(text, index as usize),
                    None => inherited::absent(name),
                };
            }
            Val::Number(_) | Val::Bool(_) => return inherited::absent(name),
            Val::Undefined => return Err(self.throw_absent(name, "undefined")),
            Val::Null => return Err(self.throw_absent(name, "null")),
            Val::Unset | Val::Date(_) | Val::Pattern(_) | Val::Function => return Err(Stop::GiveUp),
        };
        match found {
            Some(value) => Ok(value),
            None if inherited::by_objects(name) => Err(Stop::GiveUp),
            None => Ok(Val::Undefined),
        }
    }

    fn text_element(&mut self, text: &'a [u8], index: usize) -> Result<Val<'a>, Stop> {
        self.steps.pay(1 + index / 64)?;
        Ok(match super::strings::unit(text, index)? {
            Some(unit) => Val::Text(unit),
            None => Val::Undefined,
        })
    }

    fn index(&mut self, sides: &'a (Expression, Expression)) -> Result<Val<'a>, Stop> {
        let object = self.eval(&sides.0)?;
        let key = self.eval(&sides.1)?;
        if let Some(index) = element_index(key) {
            match object {
                Val::Array(array) => return Ok(array.get(self.arena, index).unwrap_or(Val::Undefined)),
                Val::Text(text) => return self.text_element(text, index),
                _ => {}
            }
        }
        if matches!(object, Val::Undefined | Val::Null) {
            return Err(Stop::GiveUp);
        }
        let name = self.make().text(key)?;
        self.member(object, name)
    }

    fn unary(&mut self, operator: Unary, operand: &'a Expression) -> Result<Val<'a>, Stop> {
        let value = self.eval(operand)?;
        Ok(match operator {
            Unary::Not => Val::Bool(!truthy(value)),
            Unary::Minus => Val::Number(-self.make().number(value)?),
            Unary::Plus => Val::Number(self.make().number(value)?),
            Unary::BitNot => Val::Number(f64::from(!convert::to_int32(self.make().number(value)?))),
            Unary::TypeOf => Val::Text(convert::type_of(value)?),
            Unary::Void => Val::Undefined,
        })
    }

    fn binary(&mut self, operator: Binary, left: Val<'a>, right: Val<'a>) -> Result<Val<'a>, Stop> {
        use std::cmp::Ordering;
        let mut make = Maker { arena: self.arena, steps: &mut self.steps };
        Ok(match operator {
            Binary::StrictEqual => Val::Bool(convert::strict_equal(left, right)),
            Binary::StrictNotEqual => Val::Bool(!convert::strict_equal(left, right)),
            Binary::Equal => Val::Bool(make.loose_equal(left, right)?),
            Binary::NotEqual => Val::Bool(!make.loose_equal(left, right)?),
            Binary::Less => Val::Bool(make.compare(left, right)? == Some(Ordering::Less)),
            Binary::Greater => Val::Bool(make.compare(left, right)? == Some(Ordering::Greater)),
            Binary::LessEqual => {
                Val::Bool(matches!(make.compare(left, right)?, Some(Ordering::Less | Ordering::Equal)))
            }
            Binary::GreaterEqual => {
                Val::Bool(matches!(make.compare(left, right)?, Some(Ordering::Greater | Ordering::Equal)))
            }
            Binary::Add => make.add(left, right)?,
            Binary::In => return self.is_in(left, right),
            _ => {
                let (left, right) = (make.number(left)?, make.number(right)?);
                Val::Number(super::numbers::arithmetic(operator, left, right))
            }
        })
    }

    fn is_in(&mut self, name: Val<'a>, object: Val<'a>) -> Result<Val<'a>, Stop> {
        let name = self.make().text(name)?;
        let own = match object {
            Val::Lazy(lazy) => lazy.get(self.arena, name, &mut self.steps)?.is_some(),
            Val::Object(object) => object.get(name, &mut self.steps)?.is_some(),
            Val::Array(array) => {
                let index = crate::text::array_index(name);
                name == b"length" || index.is_some_and(|index| (index as usize) < array.len(self.arena))
            }
            _ => return Err(Stop::GiveUp),
        };
        if own {
            return Ok(Val::Bool(true));
        }
        inherited::absent(name).map(|_| Val::Bool(false))
    }

    fn template(&mut self, parts: &'a [Expression]) -> Result<Val<'a>, Stop> {
        let mut out = Vec::new();
        for part in parts {
            let value = self.eval(part)?;
            out.extend_from_slice(self.make().text(value)?);
        }
        Ok(Val::Text(self.make().keep(&out)?))
    }

    fn array(&mut self, elements: &'a [Element]) -> Result<Val<'a>, Stop> {
        self.steps.take_bytes(128 + elements.len() * size_of::<Val<'_>>())?;
        let mut items = ArenaVec::with_capacity_in(elements.len(), self.arena);
        for element in elements {
            match element {
                Element::One(value) => items.push(self.eval(value)?),
                Element::Spread(value) => {
                    let Val::Array(array) = self.eval(value)? else {
                        return Err(Stop::GiveUp);
                    };
                    let more = array.items(self.arena);
                    self.steps.take_bytes(more.len() * size_of::<Val<'_>>())?;
                    items.extend_from_slice_copy(&more);
                }
            }
        }
        Ok(Val::Array(Array::new(self.arena, items)))
    }

    fn object(&mut self, properties: &'a [Property]) -> Result<Val<'a>, Stop> {
        self.steps.take_bytes(64)?;
        let object = Object::new(self.arena);
        for property in properties {
            match property {
                Property::Named(name, value) => {
                    let value = self.eval(value)?;
                    object.set(name, value, &mut self.steps)?;
                }
                Property::Computed(name, value) => {
                    let name = self.eval(name)?;
                    let name = self.make().text(name)?;
                    let value = self.eval(value)?;
                    if name == b"__proto__" {
                        return Err(Stop::GiveUp);
                    }
                    object.set(name, value, &mut self.steps)?;
                }
                Property::Spread(value) => {
                    let value = self.eval(value)?;
                    for (name, value) in self.members(value)? {
                        object.set(name, value, &mut self.steps)?;
                    }
                }
            }
        }
        Ok(Val::Object(object))
    }

    /// The members of an object, in the order of its names.
    pub(super) fn members(&mut self, value: Val<'a>) -> Result<ArenaVec<'a, (&'a [u8], Val<'a>)>, Stop> {
        let mut members = ArenaVec::new_in(self.arena);
        let names = match value {
            Val::Lazy(lazy) => lazy.names(self.arena),
            Val::Object(object) => object.names(self.arena),
            _ => return Err(Stop::GiveUp),
        };
        for name in names {
            self.steps.pay(1)?;
            if name == b"__proto__" {
                return Err(Stop::GiveUp);
            }
            members.push((name, self.member(value, name)?));
        }
        Ok(members)
    }

    fn assign_expression(&mut self, place: &'a Place, value: &'a Expression) -> Result<Val<'a>, Stop> {
        match place {
            Place::Variable(variable) => {
                let value = self.eval_packed(value)?;
                let at = self.place(*variable);
                self.stack[at] = value;
                Ok(value.open())
            }
            _ => {
                let target = self.target(place)?;
                let value = self.eval(value)?;
                self.set(target, value)?;
                Ok(value)
            }
        }
    }

    pub(super) fn assign(&mut self, place: &'a Place, value: Val<'a>) -> Result<(), Stop> {
        let target = self.target(place)?;
        self.set(target, value)
    }

    /// Evaluates what stands before a member that is assigned to.
    fn target(&mut self, place: &'a Place) -> Result<Target<'a>, Stop> {
        Ok(match place {
            Place::Variable(variable) => Target::Slot(self.place(*variable)),
            Place::Member(object, name) => Target::Member(self.eval(object)?, Val::Text(name)),
            Place::Index(sides) => {
                let object = self.eval(&sides.0)?;
                Target::Member(object, self.eval(&sides.1)?)
            }
        })
    }

    fn get(&mut self, target: Target<'a>) -> Result<Val<'a>, Stop> {
        match target {
            Target::Slot(at) => match self.stack[at].open() {
                Val::Unset | Val::Function => Err(Stop::GiveUp),
                value => Ok(value),
            },
            Target::Member(object, key) => {
                if let (Some(index), Val::Array(array)) = (element_index(key), object) {
                    return Ok(array.get(self.arena, index).unwrap_or(Val::Undefined));
                }
                if matches!(object, Val::Undefined | Val::Null) {
                    return Err(Stop::GiveUp);
                }
                let name = self.make().text(key)?;
                self.member(object, name)
            }
        }
    }

    fn set(&mut self, target: Target<'a>, value: Val<'a>) -> Result<(), Stop> {
        match target {
            Target::Slot(at) => {
                self.stack[at] = value.pack(self.arena);
                Ok(())
            }
            Target::Member(Val::Object(object), key) => {
                let name = self.make().text(key)?;
                if name == b"__proto__" {
                    return Err(Stop::GiveUp);
                }
                object.set(name, value, &mut self.steps)
            }
            Target::Member(Val::Array(array), key) => {
                let (Some(own), Some(index)) = (array.own(), element_index(key)) else {
                    return Err(Stop::GiveUp);
                };
                let mut items = own.borrow_mut();
                if let Some(item) = items.get_mut(index) {
                    *item = value;
                } else if index == items.len() {
                    self.steps.take_bytes(2 * size_of::<Val<'_>>())?;
                    items.push(value);
                } else {
                    return Err(Stop::GiveUp);
                }
                Ok(())
            }
            // Objects of documents are frozen: nothing happens.
            Target::Member(Val::Lazy(_), key) => {
                let name = self.make().text(key)?;
                if inherited::by_objects(name) { Err(Stop::GiveUp) } else { Ok(()) }
            }
            Target::Member(..) => Err(Stop::GiveUp),
        }
    }

    fn compound(&mut self, place: &'a Place, operator: Binary, value: &'a Expression) -> Result<Val<'a>, Stop> {
        let target = self.target(place)?;
        let old = self.get(target)?;
        let value = self.eval(value)?;
        let new = self.binary(operator, old, value)?;
        self.set(target, new)?;
        Ok(new)
    }

    fn compound_logical(
        &mut self,
        place: &'a Place,
        operator: Logical,
        value: &'a Expression,
    ) -> Result<Val<'a>, Stop> {
        let target = self.target(place)?;
        let old = self.get(target)?;
        if decided(operator, old) {
            return Ok(old);
        }
        let value = self.eval(value)?;
        self.set(target, value)?;
        Ok(value)
    }

    fn update(&mut self, place: &'a Place, amount: f64, prefix: bool) -> Result<Val<'a>, Stop> {
        let target = self.target(place)?;
        let old = self.get(target)?;
        let old = self.make().number(old)?;
        let new = Val::Number(old + amount);
        self.set(target, new)?;
        Ok(if prefix { new } else { Val::Number(old) })
    }

    /// A call of `emit`.
    ///
    /// What can be changed afterwards is written at the end of the call, as the engine does; everything else at once, and
    /// a key that is written as an array without ever becoming one.
    pub(super) fn emit_call(&mut self, arguments: &'a [Expression]) -> Result<(), Stop> {
        self.steps.pay(1)?;
        if let [Expression::Array(elements), ..] = arguments
            && elements.len() <= SHORT_KEY
            && self.rows.is_empty()
            && elements.iter().all(|element| matches!(element, Element::One(_)))
        {
            return self.emit_array(elements, &arguments[1..]);
        }
        let [key, value] = self.first_arguments(arguments)?;
        self.emit(key, value)
    }

    fn emit_array(&mut self, elements: &'a [Element], rest: &'a [Expression]) -> Result<(), Stop> {
        let mut key = [Val::Undefined; SHORT_KEY];
        let mut constant = true;
        for (place, element) in key.iter_mut().zip(elements) {
            if let Element::One(element) = element {
                *place = self.eval(element)?;
                constant &= is_constant(*place);
            }
        }
        let key = &key[..elements.len()];
        let [value] = self.first_arguments(rest)?;
        if !constant || !is_constant(value) || !self.rows.is_empty() {
            let mut items = ArenaVec::new_in(self.arena);
            items.extend_from_slice_copy(key);
            return self.emit(Val::Array(Array::new(self.arena, items)), value);
        }
        self.row_text.clear();
        self.row_text.push(b'[');
        for (index, element) in key.iter().enumerate() {
            if index > 0 {
                self.row_text.push(b',');
            }
            write::write_inner(self.arena, *element, self.row_text, &mut self.steps)?;
        }
        self.row_text.push(b']');
        self.finish_row(value)
    }

    fn emit(&mut self, key: Val<'a>, value: Val<'a>) -> Result<(), Stop> {
        if self.rows.is_empty() && is_constant(key) && is_constant(value) {
            self.row_text.clear();
            write::write(self.arena, key, self.row_text, &mut self.steps)?;
            return self.finish_row(value);
        }
        self.steps.take_bytes(2 * size_of::<Val<'_>>())?;
        self.rows.push((key, value));
        self.count_row()
    }

    /// Gives the sink a row whose key was written.
    fn finish_row(&mut self, value: Val<'a>) -> Result<(), Stop> {
        let middle = self.row_text.len();
        write::write(self.arena, value, self.row_text, &mut self.steps)?;
        let (key, value) = self.row_text.split_at(middle);
        self.sink.row(key, value)?;
        self.count_row()
    }

    fn count_row(&mut self) -> Result<(), Stop> {
        self.waiting += 1;
        if self.waiting >= WAITING_ROWS { self.write_rows() } else { Ok(()) }
    }

    fn write_rows(&mut self) -> Result<(), Stop> {
        for index in 0..self.rows.len() {
            let (key, value) = self.rows[index];
            self.row_text.clear();
            write::write(self.arena, key, self.row_text, &mut self.steps)?;
            let middle = self.row_text.len();
            write::write(self.arena, value, self.row_text, &mut self.steps)?;
            let (key, value) = self.row_text.split_at(middle);
            self.sink.row(key, value)?;
        }
        self.rows.clear();
        self.waiting = 0;
        Ok(())
    }

    pub(super) fn log(&mut self, message: Val<'a>) -> Result<(), Stop> {
        let line = match message {
            Val::Text(text) => text.to_vec(),
            value => {
                let mut line = Vec::new();
                if !write::stringify(self.arena, value, &mut line, &mut self.steps)? {
                    line.extend_from_slice(b"undefined");
                }
                line
            }
        };
        if self.log_bytes + line.len() <= LOG_BYTES {
            self.log_bytes += line.len();
            self.sink.line(&line);
        }
        Ok(())
    }
}

/// Whether nothing can change a value any more.
fn is_constant(value: Val<'_>) -> bool {
    match value {
        Val::Array(array) => array.text().is_some(),
        Val::Object(_) => false,
        _ => true,
    }
}

#[derive(Clone, Copy)]
enum Target<'a> {
    Slot(usize),
    Member(Val<'a>, Val<'a>),
}

fn decided(operator: Logical, left: Val<'_>) -> bool {
    match operator {
        Logical::And => !truthy(left),
        Logical::Or => truthy(left),
        Logical::Nullish => !matches!(left, Val::Undefined | Val::Null),
    }
}

/// A key that is a whole number not below zero.
pub(super) fn element_index(key: Val<'_>) -> Option<usize> {
    match key {
        Val::Number(number) if (0.0..4_294_967_295.0).contains(&number) && number.trunc() == number => {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 32 bits")]
            let index = number as usize;
            Some(index)
        }
        _ => None,
    }
}

/// A number of things.
pub(super) fn count<'a>(number: usize) -> Val<'a> {
    #[expect(clippy::cast_precision_loss, reason = "fewer than 2^53")]
    let number = number as f64;
    Val::Number(number)
}
