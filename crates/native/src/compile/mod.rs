//! Compilation of source text to the tree ([`compile`]).
//!
//! The source is parsed by a complete parser. Everything that the tree cannot represent is [`Refused`], and so is
//! everything whose result could depend on state that is unknown before the run: names outside of the environment,
//! functions as values, `this`, `eval` and so on. A refusal only costs performance: the function then runs in a worker.

mod calls;
mod expressions;
mod statements;

use std::collections::HashMap;

use oxc_allocator::Allocator;
use oxc_ast::ast::{self, BindingPattern, Declaration, FunctionBody, Statement as Node};
use oxc_parser::Parser;
use oxc_span::SourceType;

use super::Environment;
use super::run::MAX_DEPTH;
use super::tree::{Callee, Function, Program, Variable};

/// Longer sources are left to the engine, because the parser recurses and the length bounds its stack.
const MAX_SOURCE_BYTES: usize = 16 << 10;

/// Stack of the parser per byte of the source, because each byte can open a level of nesting.
const STACK_BYTES_PER_BYTE: usize = 24 << 10;
const STACK_BYTES: usize = 2 << 20;

/// Maximum number of variables of one function, and of functions.
const MAX_SLOTS: usize = 1000;

/// Reason why a function is not in the subset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused(pub &'static str);

type Result<T> = std::result::Result<T, Refused>;

fn refuse<T>(reason: &'static str) -> Result<T> {
    Err(Refused(reason))
}

/// Compiles the source of a map function.
pub(super) fn compile(source: &str, environment: Environment) -> Result<Program> {
    if source.len() > MAX_SOURCE_BYTES {
        return refuse("the source is long");
    }
    // Sources with unbalanced closing brackets would end the expression into which they are inserted.
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

/// Compiles `0,` and a function expression, which is the form that the workers try first.
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
    let mut compiler = Compiler { environment, ..Compiler::default() };
    let main = match function.without_parentheses() {
        ast::Expression::FunctionExpression(function) => compiler.function_expression(function)?,
        ast::Expression::ArrowFunctionExpression(function) => compiler.arrow(function)?,
        _ => return refuse("not a function"),
    };
    Ok(Program { main, functions: compiler.functions })
}

/// Binding of a name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// `var` and parameters.
    Variable(u16),
    /// `let` and `const`: valid after its declaration.
    Lexical { slot: u16, constant: bool, declared: bool },
    /// A function declaration.
    Function(u16),
    /// `var name = function …` that is never reassigned.
    FunctionVariable { slot: u16, function: Option<u16> },
    /// A name that exists but must not be used.
    Forbidden,
}

/// Names of a block or of a whole function.
#[derive(Default)]
struct Scope {
    names: HashMap<String, Meaning>,
    /// True if a function starts here.
    function: bool,
}

/// A function that is being compiled.
#[derive(Default)]
struct Frame {
    slots: u16,
    unset: Vec<u16>,
    /// Nesting of loops and switches, for `break` and `continue`.
    loops: usize,
    breakable: usize,
    depth: u16,
    deepest: u16,
}

#[derive(Default)]
struct Compiler {
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

    /// Counts one level of nesting while `inner` runs.
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
        // The name of a function expression is visible inside only, that of a declaration also around it.
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

    /// Reserves the index of a function that is about to be compiled.
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
            scope.names.insert(check_name(name)?.to_owned(), Meaning::Forbidden);
        }
        self.scopes.push(scope);
        self.frames.push(Frame::default());
        self.parameters(parameters)?;
        let count = self.frame().slots;
        let declared = self.hoist(&body.statements)?;
        let body = if is_expression { self.expression_body(body)? } else { self.statements(&body.statements)? };
        // Last, when all surrounding names are declared.
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
                && before != Meaning::Forbidden
            {
                return refuse("parameters of the same name");
            }
        }
        Ok(())
    }

    /// Declares the names that are visible in all of a function: `var` anywhere inside, and top-level functions, which
    /// are returned.
    fn hoist<'n, 'x>(&mut self, statements: &'n [Node<'x>]) -> Result<Vec<(u16, &'n ast::Function<'x>)>> {
        for node in statements {
            self.hoist_vars(node, true)?;
        }
        let mut declared = Vec::new();
        for node in statements {
            if let Node::FunctionDeclaration(function) = node {
                let id = function.id.as_ref().ok_or(Refused("a function without a name"))?;
                let index = self.reserve()?;
                let name = check_name(&id.name)?.to_owned();
                match self.scope().names.insert(name, Meaning::Function(index)) {
                    None | Some(Meaning::Forbidden) => declared.push((index, &**function)),
                    Some(_) => return refuse("a function with the name of something else"),
                }
            }
        }
        Ok(declared)
    }

    fn hoist_vars(&mut self, node: &Node<'_>, top: bool) -> Result<()> {
        match node {
            Node::VariableDeclaration(declaration) => self.hoist_declaration(declaration, top)?,
            Node::BlockStatement(block) => {
                for node in &block.body {
                    self.hoist_vars(node, false)?;
                }
            }
            Node::IfStatement(parts) => {
                self.hoist_vars(&parts.consequent, false)?;
                if let Some(alternate) = &parts.alternate {
                    self.hoist_vars(alternate, false)?;
                }
            }
            Node::ForStatement(parts) => {
                if let Some(ast::ForStatementInit::VariableDeclaration(declaration)) = &parts.init {
                    self.hoist_declaration(declaration, false)?;
                }
                self.hoist_vars(&parts.body, false)?;
            }
            Node::ForInStatement(parts) => {
                self.hoist_left(&parts.left)?;
                self.hoist_vars(&parts.body, false)?;
            }
            Node::ForOfStatement(parts) => {
                self.hoist_left(&parts.left)?;
                self.hoist_vars(&parts.body, false)?;
            }
            Node::WhileStatement(parts) => self.hoist_vars(&parts.body, false)?,
            Node::DoWhileStatement(parts) => self.hoist_vars(&parts.body, false)?,
            Node::SwitchStatement(parts) => {
                for node in parts.cases.iter().flat_map(|case| &case.consequent) {
                    self.hoist_vars(node, false)?;
                }
            }
            Node::TryStatement(parts) => {
                let handler = parts.handler.iter().flat_map(|handler| &handler.body.body);
                let finalizer = parts.finalizer.iter().flat_map(|block| &block.body);
                for node in parts.block.body.iter().chain(handler).chain(finalizer) {
                    self.hoist_vars(node, false)?;
                }
            }
            Node::LabeledStatement(_) | Node::WithStatement(_) => return refuse("labels and with"),
            _ => {}
        }
        Ok(())
    }

    fn hoist_left(&mut self, left: &ast::ForStatementLeft<'_>) -> Result<()> {
        match left {
            ast::ForStatementLeft::VariableDeclaration(declaration) => self.hoist_declaration(declaration, false),
            _ => Ok(()),
        }
    }

    fn hoist_declaration(&mut self, declaration: &ast::VariableDeclaration<'_>, top: bool) -> Result<()> {
        if declaration.kind != ast::VariableDeclarationKind::Var {
            return Ok(());
        }
        for declarator in &declaration.declarations {
            let name = binding_name(&declarator.id)?;
            let is_function = matches!(
                declarator.init.as_ref().map(ast::Expression::without_parentheses),
                Some(ast::Expression::FunctionExpression(_) | ast::Expression::ArrowFunctionExpression(_))
            );
            match self.scope().names.get(name).copied() {
                Some(Meaning::Variable(_)) if !is_function => {}
                None | Some(Meaning::Forbidden) => {
                    let slot = self.slot()?;
                    let meaning = if is_function && top {
                        Meaning::FunctionVariable { slot, function: None }
                    } else if is_function {
                        return refuse("functions as values");
                    } else {
                        Meaning::Variable(slot)
                    };
                    self.scope().names.insert(name.to_owned(), meaning);
                }
                Some(_) => return refuse("names declared twice"),
            }
        }
        Ok(())
    }

    /// Resolves a name: returns its meaning and the number of functions in between.
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

    /// Returns the function that a name denotes.
    fn callee(&self, name: &str) -> Result<Option<Callee>> {
        Ok(match self.look_up(name) {
            Some((Meaning::Function(function), levels)) => Some(Callee { function, levels, variable: None }),
            Some((Meaning::FunctionVariable { slot, function: Some(function) }, levels)) => {
                Some(Callee { function, levels, variable: Some(Variable { levels, slot }) })
            }
            Some(_) => return refuse("a call of something unknown"),
            None => None,
        })
    }
}

/// Returns the name that a declaration binds; patterns are refused.
fn binding_name<'n>(pattern: &'n BindingPattern<'_>) -> Result<&'n str> {
    match pattern {
        BindingPattern::BindingIdentifier(id) => check_name(id.name.as_str()),
        _ => refuse("destructuring"),
    }
}

/// Rejects names that have a meaning in the language or the environment.
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

/// Returns true for declarations that are statements.
fn is_declaration(node: &Node<'_>) -> bool {
    matches!(node.as_declaration(), Some(Declaration::FunctionDeclaration(_) | Declaration::ClassDeclaration(_)))
}
