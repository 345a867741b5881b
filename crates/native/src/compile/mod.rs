//! Compilation of source text to the tree ([`compile`]). [`Refused`] is everything that the tree cannot represent or
//! whose result could depend on unknown state: names outside of the environment, functions as values, `this`, `eval`
//! and so on. A refused function runs in a worker.

mod calls;
mod environment;
mod expressions;
mod globals;
mod polyfills;
mod statements;

use std::collections::{HashMap, HashSet};

use oxc_allocator::Allocator;
use oxc_ast::ast::{self, BindingPattern, Declaration, FunctionBody, Statement as Node};
use oxc_parser::Parser;
use oxc_span::SourceType;

use super::Environment;
use super::run::MAX_DEPTH;
use super::tree::{Callee, Function, Program, Target, Variable};

/// The parser recurses and the length bounds its stack, so longer sources are left to the engine.
const MAX_SOURCE_BYTES: usize = 16 << 10;

/// Each byte of the source can open a level of nesting in the parser.
const STACK_BYTES_PER_BYTE: usize = 24 << 10;
const STACK_BYTES: usize = 2 << 20;

const MAX_SLOTS: usize = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused(pub &'static str);

type Result<T> = std::result::Result<T, Refused>;

fn refuse<T>(reason: &'static str) -> Result<T> {
    Err(Refused(reason))
}

/// Returns the paths and types of the members of the global environment that the compiler assumes to exist.
pub fn members_of_environment() -> impl Iterator<Item = (String, &'static str)> {
    environment::members()
}

pub(super) fn compile(source: &str, environment: Environment) -> Result<Program> {
    if source.len() > MAX_SOURCE_BYTES {
        return refuse("the source is long");
    }
    // Unbalanced closing brackets of a source would end the expression into which it is inserted.
    let wrapped = format!("0,{source}");
    std::thread::scope(|scope| {
        let stack = STACK_BYTES + wrapped.len() * STACK_BYTES_PER_BYTE;
        let thread = std::thread::Builder::new().name("js-compile".to_owned()).stack_size(stack);
        match thread.spawn_scoped(scope, || parse(&wrapped, environment)) {
            Ok(thread) => thread.join().unwrap_or(refuse("the compiler failed")),
            Err(_) => refuse("no thread to compile in"),
        }
    })
}

/// The workers first try the same form: `0,` and a function expression.
fn parse(wrapped: &str, environment: Environment) -> Result<Program> {
    let allocator = Allocator::default();
    let parsed = Parser::new(&allocator, wrapped, SourceType::cjs().with_script(true)).parse();
    if parsed.panicked || !parsed.errors.is_empty() {
        return refuse("not an expression");
    }
    if wrapped.contains("<!--") || wrapped.contains("-->") {
        return refuse("comments as in HTML");
    }
    let program = &parsed.program;
    let mut statements = program.body.iter().filter(|node| !matches!(node, Node::EmptyStatement(_)));
    let (Some(Node::ExpressionStatement(statement)), None) = (statements.next(), statements.next()) else {
        return refuse("more than a function");
    };
    let ast::Expression::SequenceExpression(sequence) = &statement.expression else {
        return refuse("more than a function");
    };
    let (2, Some(function)) = (sequence.expressions.len(), sequence.expressions.last()) else {
        return refuse("more than a function");
    };
    if !program.directives.is_empty() {
        return refuse("directives");
    }
    let mut compiler = Compiler { environment, source: wrapped.to_owned(), ..Compiler::default() };
    let main = match function.without_parentheses() {
        ast::Expression::FunctionExpression(function) => compiler.function_expression(function)?,
        ast::Expression::ArrowFunctionExpression(function) => compiler.arrow(function)?,
        _ => return refuse("not a function"),
    };
    compiler.check_globals(main)?;
    Ok(Program { main, functions: compiler.functions })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// `var` and parameters.
    Variable(u16),
    /// `let` and `const`, assignable after the declaration. Before it, closures can read the name, which is left to the
    /// engine while the slot is unset. In a loop, the slot has the value of the previous iteration instead, so the name
    /// is not readable.
    Lexical {
        slot: u16,
        constant: bool,
        declared: bool,
        readable: bool,
    },
    Function(u16),
    Itself(u16),
    /// A variable to which its function assigns function expressions. It can be called, but not read. A lexical one in
    /// a loop is not callable before its declaration.
    FunctionVariable {
        slot: u16,
        constant: bool,
        callable: bool,
    },
    Forbidden,
}

#[derive(Default)]
struct Scope {
    names: HashMap<String, Meaning>,
    function: bool,
}

#[derive(Default)]
struct Frame {
    slots: u16,
    unset: Vec<u16>,
    loops: usize,
    breakable: usize,
    depth: u16,
    deepest: u16,
    function_names: HashSet<String>,
}

#[derive(Default)]
struct Compiler {
    source: String,
    globals: Vec<(String, u16)>,
    thrown: Vec<String>,
    environment: Environment,
    functions: Vec<Function>,
    scopes: Vec<Scope>,
    frames: Vec<Frame>,
}

impl Compiler {
    fn frame(&mut self) -> &mut Frame {
        self.frames.last_mut().expect("inside a function")
    }

    fn scope(&mut self) -> &mut Scope {
        self.scopes.last_mut().expect("inside a function")
    }

    fn slot(&mut self) -> Result<u16> {
        let frame = self.frame();
        if usize::from(frame.slots) >= MAX_SLOTS {
            return refuse("too many variables");
        }
        frame.slots += 1;
        Ok(frame.slots - 1)
    }

    fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let frame = self.frame();
        frame.depth += 1;
        frame.deepest = frame.deepest.max(frame.depth);
        if frame.depth > MAX_DEPTH {
            return refuse("nested deeply");
        }
        let result = inner(self)?;
        self.frame().depth -= 1;
        Ok(result)
    }

    fn function_expression(&mut self, function: &ast::Function<'_>) -> Result<u16> {
        let index = self.reserve()?;
        self.named_function(index, function)
    }

    fn named_function(&mut self, index: u16, function: &ast::Function<'_>) -> Result<u16> {
        if function.generator || function.r#async {
            return refuse("generators and asynchronous functions");
        }
        let body = function.body.as_ref().ok_or(Refused("a function without a body"))?;
        let is_expression = function.r#type == ast::FunctionType::FunctionExpression;
        let name = function.id.as_ref().filter(|_| is_expression).map(|id| id.name.as_str());
        self.function(index, name, &function.params, body, false)
    }

    fn arrow(&mut self, function: &ast::ArrowFunctionExpression<'_>) -> Result<u16> {
        if function.r#async {
            return refuse("asynchronous functions");
        }
        let index = self.reserve()?;
        self.function(index, None, &function.params, &function.body, function.expression)
    }

    fn reserve(&mut self) -> Result<u16> {
        if self.frames.len() > 16 || self.functions.len() >= MAX_SLOTS {
            return refuse("nested deeply");
        }
        self.functions.push(Function::default());
        u16::try_from(self.functions.len() - 1).or(refuse("too many functions"))
    }

    fn function(
        &mut self,
        index: u16,
        own_name: Option<&str>,
        parameters: &ast::FormalParameters<'_>,
        body: &FunctionBody<'_>,
        is_expression: bool,
    ) -> Result<u16> {
        if !body.directives.is_empty() {
            return refuse("directives");
        }
        let mut scope = Scope { function: true, ..Scope::default() };
        if let Some(name) = own_name {
            // A recursive main function would share the implicit globals with itself.
            let meaning = if self.frames.is_empty() { Meaning::Forbidden } else { Meaning::Itself(index) };
            scope.names.insert(check_name(name)?.to_owned(), meaning);
        }
        self.scopes.push(scope);
        self.frames.push(Frame::default());
        self.parameters(parameters)?;
        let count = self.frame().slots;
        let declared = self.hoist(&body.statements)?;
        let body = if is_expression { self.expression_body(body)? } else { self.statements(&body.statements)? };
        for (index, function) in declared {
            self.named_function(index, function)?;
        }
        self.scopes.pop();
        let frame = self.frames.pop().expect("pushed above");
        self.functions[usize::from(index)] =
            Function { parameters: count, slots: frame.slots, unset: frame.unset, body, depth: frame.deepest + 2 };
        Ok(index)
    }

    fn parameters(&mut self, parameters: &ast::FormalParameters<'_>) -> Result<()> {
        if parameters.rest.is_some() {
            return refuse("rest parameters");
        }
        for parameter in &parameters.items {
            if parameter.initializer.is_some() {
                return refuse("parameters with defaults");
            }
            let name = binding_name(&parameter.pattern)?;
            let slot = self.slot()?;
            if let Some(before) = self.scope().names.insert(name.to_owned(), Meaning::Variable(slot))
                && !before.is_own_name()
            {
                return refuse("parameters of the same name");
            }
        }
        Ok(())
    }

    /// Declares the names that are visible in all of a function: `var` anywhere inside, and top-level functions, which
    /// are returned.
    fn hoist<'n, 'x>(&mut self, statements: &'n [Node<'x>]) -> Result<Vec<(u16, &'n ast::Function<'x>)>> {
        let parameters = self.frame().slots;
        for node in statements {
            self.hoist_vars(node)?;
        }
        let frame = self.frames.last_mut().expect("inside a function");
        let scope = self.scopes.last_mut().expect("inside a function");
        for name in &frame.function_names {
            if let Some(meaning) = scope.names.get_mut(name)
                && let Meaning::Variable(slot) = *meaning
                && slot >= parameters
            {
                *meaning = Meaning::FunctionVariable { slot, constant: false, callable: true };
            }
        }
        let mut declared = Vec::new();
        for node in statements {
            if let Node::FunctionDeclaration(function) = node {
                let id = function.id.as_ref().ok_or(Refused("a function without a name"))?;
                let index = self.reserve()?;
                let name = check_name(&id.name)?.to_owned();
                match self.scope().names.insert(name, Meaning::Function(index)) {
                    None | Some(Meaning::Forbidden | Meaning::Itself(_)) => declared.push((index, &**function)),
                    Some(_) => return refuse("a function with the name of something else"),
                }
            }
        }
        Ok(declared)
    }

    fn hoist_vars(&mut self, node: &Node<'_>) -> Result<()> {
        match node {
            Node::ExpressionStatement(statement) => {
                if let Some((name, _)) = assigned_function(&statement.expression) {
                    self.frame().function_names.insert(name.to_owned());
                }
            }
            Node::VariableDeclaration(declaration) => self.hoist_declaration(declaration)?,
            Node::BlockStatement(block) => {
                for node in &block.body {
                    self.hoist_vars(node)?;
                }
            }
            Node::IfStatement(parts) => {
                self.hoist_vars(&parts.consequent)?;
                if let Some(alternate) = &parts.alternate {
                    self.hoist_vars(alternate)?;
                }
            }
            Node::ForStatement(parts) => {
                if let Some(ast::ForStatementInit::VariableDeclaration(declaration)) = &parts.init {
                    self.hoist_declaration(declaration)?;
                }
                self.hoist_vars(&parts.body)?;
            }
            Node::ForInStatement(parts) => {
                self.hoist_left(&parts.left)?;
                self.hoist_vars(&parts.body)?;
            }
            Node::ForOfStatement(parts) => {
                self.hoist_left(&parts.left)?;
                self.hoist_vars(&parts.body)?;
            }
            Node::WhileStatement(parts) => self.hoist_vars(&parts.body)?,
            Node::DoWhileStatement(parts) => self.hoist_vars(&parts.body)?,
            Node::SwitchStatement(parts) => {
                for node in parts.cases.iter().flat_map(|case| &case.consequent) {
                    self.hoist_vars(node)?;
                }
            }
            Node::TryStatement(parts) => {
                let handler = parts.handler.iter().flat_map(|handler| &handler.body.body);
                let finalizer = parts.finalizer.iter().flat_map(|block| &block.body);
                for node in parts.block.body.iter().chain(handler).chain(finalizer) {
                    self.hoist_vars(node)?;
                }
            }
            Node::LabeledStatement(_) | Node::WithStatement(_) => return refuse("labels and with"),
            _ => {}
        }
        Ok(())
    }

    fn hoist_left(&mut self, left: &ast::ForStatementLeft<'_>) -> Result<()> {
        match left {
            ast::ForStatementLeft::VariableDeclaration(declaration) => self.hoist_declaration(declaration),
            _ => Ok(()),
        }
    }

    fn hoist_declaration(&mut self, declaration: &ast::VariableDeclaration<'_>) -> Result<()> {
        if declaration.kind != ast::VariableDeclarationKind::Var {
            return Ok(());
        }
        for declarator in &declaration.declarations {
            let name = binding_name(&declarator.id)?;
            if declarator.init.as_ref().is_some_and(is_function) {
                self.frame().function_names.insert(name.to_owned());
            }
            match self.scope().names.get(name).copied() {
                Some(Meaning::Variable(_)) => {}
                None | Some(Meaning::Forbidden | Meaning::Itself(_)) => {
                    let slot = self.slot()?;
                    self.scope().names.insert(name.to_owned(), Meaning::Variable(slot));
                }
                Some(_) => return refuse("names declared twice"),
            }
        }
        Ok(())
    }

    fn global(&mut self, name: &str) -> Result<Variable> {
        if environment::is_global(check_name(name)?) {
            return refuse("an assignment to a name of the environment");
        }
        if self.globals.len() >= globals::MAX_GLOBALS || usize::from(self.frames[0].slots) >= MAX_SLOTS {
            return refuse("too many variables");
        }
        let slot = self.frames[0].slots;
        self.frames[0].slots += 1;
        self.frames[0].unset.push(slot);
        let meaning = if self.frames[0].function_names.contains(name) {
            Meaning::FunctionVariable { slot, constant: false, callable: true }
        } else {
            Meaning::Variable(slot)
        };
        self.scopes[0].names.insert(name.to_owned(), meaning);
        self.globals.push((name.to_owned(), slot));
        let levels = u16::try_from(self.frames.len() - 1).or(refuse("nested deeply"))?;
        Ok(Variable { levels, slot })
    }

    fn check_globals(&self, main: u16) -> Result<()> {
        let slots: Vec<u16> = self.globals.iter().map(|(_, slot)| *slot).collect();
        for (name, _) in &self.globals {
            // A thrown expression is evaluated by the engine only. Escapes can spell any name.
            if self.thrown.iter().any(|thrown| thrown.contains(name.as_str()) || thrown.contains('\\')) {
                return refuse("a variable without declaration in a thrown value");
            }
        }
        globals::check(main, &self.functions, &slots)
    }

    fn look_up(&self, name: &str) -> Option<(Meaning, u16)> {
        let mut levels = 0;
        for scope in self.scopes.iter().rev() {
            if let Some(meaning) = scope.names.get(name) {
                return Some((*meaning, levels));
            }
            if scope.function {
                levels += 1;
            }
        }
        None
    }

    fn callee(&self, name: &str) -> Result<Option<Callee>> {
        Ok(match self.look_up(name) {
            Some((Meaning::Function(function), levels)) => Some(Callee { target: Target::Function(function), levels }),
            Some((Meaning::Itself(function), levels)) => {
                Some(Callee { target: Target::Function(function), levels: levels + 1 })
            }
            Some((Meaning::FunctionVariable { slot, callable: true, .. }, levels)) => {
                Some(Callee { target: Target::Variable(slot), levels })
            }
            Some(_) => return refuse("a call of something unknown"),
            None => None,
        })
    }
}

impl Meaning {
    /// Parameters and variables of a function expression hide its name.
    fn is_own_name(self) -> bool {
        matches!(self, Self::Forbidden | Self::Itself(_))
    }
}

fn is_function(node: &ast::Expression<'_>) -> bool {
    matches!(
        node.without_parentheses(),
        ast::Expression::FunctionExpression(_) | ast::Expression::ArrowFunctionExpression(_)
    )
}

fn assigned_function<'n, 'x>(node: &'n ast::Expression<'x>) -> Option<(&'n str, &'n ast::Expression<'x>)> {
    let ast::Expression::AssignmentExpression(assignment) = node.without_parentheses() else {
        return None;
    };
    let ast::AssignmentTarget::AssignmentTargetIdentifier(name) = &assignment.left else {
        return None;
    };
    let is_plain = assignment.operator == ast::AssignmentOperator::Assign;
    (is_plain && is_function(&assignment.right)).then_some((name.name.as_str(), &assignment.right))
}

fn binding_name<'n>(pattern: &'n BindingPattern<'_>) -> Result<&'n str> {
    match pattern {
        BindingPattern::BindingIdentifier(id) => check_name(id.name.as_str()),
        _ => refuse("destructuring"),
    }
}

fn check_name(name: &str) -> Result<&str> {
    const RESERVED: [&str; 12] = [
        "Infinity",
        "NaN",
        "arguments",
        "async",
        "await",
        "eval",
        "implements",
        "let",
        "static",
        "this",
        "undefined",
        "yield",
    ];
    if RESERVED.contains(&name) {
        return refuse("a name of the environment declared again");
    }
    Ok(name)
}

fn is_declaration(node: &Node<'_>) -> bool {
    matches!(node.as_declaration(), Some(Declaration::FunctionDeclaration(_) | Declaration::ClassDeclaration(_)))
}
