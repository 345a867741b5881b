//! Implicit globals: variables that a function assigns without a declaration ([`check`]). The engine keeps such a
//! variable from one document to the next. The value is unobservable if each call assigns the variable before all its
//! reads. Only functions for which this is proven are in the subset. The analysis follows the control flow with the set
//! of variables that are assigned on all paths. Loops and switches are approximated by the set before them, and
//! exceptions by the set before their `try`.

use std::collections::HashMap;

use super::{Refused, Result};
use crate::tree::{AssignmentTarget, Callee, Element, Expression, Function, Property, Statement, Target, Variable};

/// Limited by the size of a set.
pub(super) const MAX_GLOBALS: usize = 63;

const MAX_CALLS: usize = 16;
const MAX_NODES: usize = 100_000;

/// Set of assigned variables. Unreachable code has all variables.
type Set = u64;
const UNREACHABLE: Set = Set::MAX;

const STATE: Refused = Refused("a value that a variable without declaration may keep between documents");
const COMPLEX: Refused = Refused("too many calls that use variables without declaration");

/// Checks that each call of the main function assigns the implicit globals, given by their slots, before it reads them.
pub(super) fn check(main: u16, functions: &[Function], globals: &[u16]) -> Result<()> {
    if globals.is_empty() {
        return Ok(());
    }
    let mut setters = Vec::new();
    for function in functions {
        function.body.iter().for_each(|statement| collect_setters(statement, &mut setters));
    }
    let results = HashMap::new();
    let mut check = Check { functions, globals, setters, results, calls: 0, nodes: 0, depth: 0, returned: UNREACHABLE };
    check.function(main, 0, 0).map(|_| ())
}

struct Check<'p> {
    functions: &'p [Function],
    globals: &'p [u16],
    setters: Vec<(u16, u16)>,
    /// Sets after calls of a function at a depth with a set; `None` while the call is analysed.
    results: HashMap<(u16, u16, Set), Option<Set>>,
    calls: usize,
    nodes: usize,
    depth: u16,
    /// Intersection of the sets at the returns of the current function.
    returned: Set,
}

impl<'p> Check<'p> {
    fn function(&mut self, function: u16, depth: u16, set: Set) -> Result<Set> {
        if set == UNREACHABLE {
            return Ok(set);
        }
        let key = (function, depth, set);
        if let Some(known) = self.results.get(&key) {
            // A recursive call assigns at least nothing.
            return Ok(known.unwrap_or(set));
        }
        self.calls += 1;
        if self.calls > MAX_CALLS {
            return Err(COMPLEX);
        }
        self.results.insert(key, None);
        let saved = (self.depth, self.returned);
        (self.depth, self.returned) = (depth, UNREACHABLE);
        let functions = self.functions;
        let end = self.block(&functions[usize::from(function)].body, set)?;
        let after = end & self.returned;
        (self.depth, self.returned) = saved;
        self.calls -= 1;
        self.results.insert(key, Some(after));
        Ok(after)
    }

    fn call(&mut self, callee: Callee, set: Set) -> Result<Set> {
        let depth = self.depth.checked_sub(callee.levels).ok_or(COMPLEX)? + 1;
        match callee.target {
            Target::Function(function) => self.function(function, depth, set),
            Target::Variable(slot) => {
                self.read(Variable { levels: callee.levels, slot }, set)?;
                let mut after = UNREACHABLE;
                for index in 0..self.setters.len() {
                    if self.setters[index].0 == slot {
                        after &= self.function(self.setters[index].1, depth, set)?;
                    }
                }
                Ok(if after == UNREACHABLE { set } else { after })
            }
        }
    }

    /// 0 for variables that are no implicit globals.
    fn bit(&self, variable: Variable) -> Set {
        if variable.levels != self.depth {
            return 0;
        }
        self.globals.iter().position(|slot| *slot == variable.slot).map_or(0, |index| 1 << index)
    }

    fn read(&self, variable: Variable, set: Set) -> Result<()> {
        let bit = self.bit(variable);
        if set & bit == bit { Ok(()) } else { Err(STATE) }
    }

    fn block(&mut self, statements: &'p [Statement], set: Set) -> Result<Set> {
        statements.iter().try_fold(set, |set, statement| self.statement(statement, set))
    }

    fn statement(&mut self, statement: &'p Statement, set: Set) -> Result<Set> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(COMPLEX);
        }
        Ok(match statement {
            Statement::Expression(expression) => self.expression(expression, set)?,
            Statement::Block(statements) => self.block(statements, set)?,
            Statement::If(test, then, otherwise) => {
                let set = self.expression(test, set)?;
                let otherwise = otherwise.as_ref().map_or(Ok(set), |otherwise| self.statement(otherwise, set))?;
                self.statement(then, set)? & otherwise
            }
            Statement::Loop(parts) => {
                let set = parts.init.as_ref().map_or(Ok(set), |init| self.statement(init, set))?;
                // `do` tests only after its body, which may end early.
                let body_set = match &parts.test {
                    Some(test) if !parts.body_first => self.expression(test, set)?,
                    _ => set,
                };
                self.statement(&parts.body, body_set)?;
                if let (Some(test), true) = (&parts.test, parts.body_first) {
                    self.expression(test, body_set)?;
                }
                if let Some(update) = &parts.update {
                    self.expression(update, body_set)?;
                }
                body_set
            }
            Statement::ForIn(target, object, body) | Statement::ForOf(target, object, body) => {
                let set = self.expression(object, set)?;
                let inner = self.assign(target, set)?;
                self.statement(body, inner)?;
                set
            }
            Statement::Switch(value, cases) => {
                let set = self.expression(value, set)?;
                for (test, statements) in cases {
                    if let Some(test) = test {
                        self.expression(test, set)?;
                    }
                    self.block(statements, set)?;
                }
                set
            }
            Statement::Return(value) => {
                let set = value.as_ref().map_or(Ok(set), |value| self.expression(value, set))?;
                self.returned &= set;
                UNREACHABLE
            }
            Statement::Try(block, handler) => self.statement(block, set)? & self.block(handler, set)?,
            Statement::Break | Statement::Continue | Statement::BailOut => UNREACHABLE,
            Statement::Empty => set,
        })
    }

    fn target(&mut self, target: &'p AssignmentTarget, set: Set) -> Result<Set> {
        match target {
            AssignmentTarget::Variable(_) => Ok(set),
            AssignmentTarget::Member(object, _) => self.expression(object, set),
            AssignmentTarget::Index(sides) => self.pair(sides, set),
        }
    }

    fn assign(&mut self, target: &'p AssignmentTarget, set: Set) -> Result<Set> {
        let set = self.target(target, set)?;
        Ok(set | self.target_bit(target))
    }

    fn target_bit(&self, target: &AssignmentTarget) -> Set {
        if let AssignmentTarget::Variable(variable) = target { self.bit(*variable) } else { 0 }
    }

    fn read_target(&mut self, target: &'p AssignmentTarget, set: Set) -> Result<Set> {
        if let AssignmentTarget::Variable(variable) = target {
            self.read(*variable, set)?;
        }
        self.target(target, set)
    }

    fn all(&mut self, expressions: &'p [Expression], set: Set) -> Result<Set> {
        expressions.iter().try_fold(set, |set, expression| self.expression(expression, set))
    }

    fn pair(&mut self, sides: &'p (Expression, Expression), set: Set) -> Result<Set> {
        let set = self.expression(&sides.0, set)?;
        self.expression(&sides.1, set)
    }

    fn expression(&mut self, expression: &'p Expression, set: Set) -> Result<Set> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(COMPLEX);
        }
        Ok(match expression {
            Expression::Undefined
            | Expression::Null
            | Expression::Bool(_)
            | Expression::Number(_)
            | Expression::Text(_)
            | Expression::Pattern(_) => set,
            Expression::Variable(variable) => {
                self.read(*variable, set)?;
                set
            }
            Expression::SetFunction(slot, _) => set | self.bit(Variable { levels: 0, slot: *slot }),
            Expression::Assign(target, value) => {
                let set = self.target(target, set)?;
                self.expression(value, set)? | self.target_bit(target)
            }
            Expression::Compound(target, _, value) => {
                let set = self.read_target(target, set)?;
                self.expression(value, set)?
            }
            Expression::CompoundLogical(target, _, value) => {
                let set = self.read_target(target, set)?;
                self.expression(value, set)?;
                set
            }
            Expression::Update(target, ..) => self.read_target(target, set)?,
            Expression::Member(object, _) | Expression::Guard(object) => self.expression(object, set)?,
            Expression::Unary(_, operand) | Expression::InstanceOf(operand, _) => self.expression(operand, set)?,
            Expression::Chain(chain) => {
                self.expression(chain, set)?;
                set
            }
            Expression::Index(sides) | Expression::Binary(_, sides) => self.pair(sides, set)?,
            Expression::Method(object, _, arguments) => {
                let set = self.expression(object, set)?;
                self.all(arguments, set)?
            }
            Expression::Visit(visit) => {
                let set = self.expression(&visit.object, set)?;
                let set = visit.initial.as_ref().map_or(Ok(set), |initial| self.expression(initial, set))?;
                if !visit.is_sorting() {
                    self.call(visit.callee, set)?;
                }
                set
            }
            Expression::Builtin(_, arguments) | Expression::Template(arguments) | Expression::Sequence(arguments) => {
                self.all(arguments, set)?
            }
            Expression::Call(callee, arguments) => {
                let set = self.all(arguments, set)?;
                self.call(*callee, set)?
            }
            Expression::Logical(_, sides) => {
                let set = self.expression(&sides.0, set)?;
                self.expression(&sides.1, set)?;
                set
            }
            Expression::Conditional(parts) => {
                let set = self.expression(&parts.0, set)?;
                self.expression(&parts.1, set)? & self.expression(&parts.2, set)?
            }
            Expression::Array(elements) => elements.iter().try_fold(set, |set, element| match element {
                Element::One(value) | Element::Spread(value) => self.expression(value, set),
            })?,
            Expression::Object(properties) => properties.iter().try_fold(set, |set, property| match property {
                Property::Named(_, value) | Property::Spread(value) => self.expression(value, set),
                Property::Computed(name, value) => {
                    let set = self.expression(name, set)?;
                    self.expression(value, set)
                }
            })?,
        })
    }
}

fn collect_setters(statement: &Statement, setters: &mut Vec<(u16, u16)>) {
    match statement {
        Statement::Expression(Expression::SetFunction(slot, function)) => setters.push((*slot, *function)),
        Statement::Block(statements) => statements.iter().for_each(|inner| collect_setters(inner, setters)),
        Statement::If(_, then, otherwise) => {
            collect_setters(then, setters);
            otherwise.iter().for_each(|inner| collect_setters(inner, setters));
        }
        Statement::Loop(parts) => {
            parts.init.iter().for_each(|inner| collect_setters(inner, setters));
            collect_setters(&parts.body, setters);
        }
        Statement::ForIn(_, _, body) | Statement::ForOf(_, _, body) => collect_setters(body, setters),
        Statement::Switch(_, cases) => {
            cases.iter().flat_map(|(_, body)| body).for_each(|inner| collect_setters(inner, setters));
        }
        Statement::Try(block, handler) => {
            collect_setters(block, setters);
            handler.iter().for_each(|inner| collect_setters(inner, setters));
        }
        Statement::Expression(_)
        | Statement::Return(_)
        | Statement::Break
        | Statement::Continue
        | Statement::BailOut
        | Statement::Empty => {}
    }
}
