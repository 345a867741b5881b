//! Statements.

use oxc_ast::ast::{self, Statement as Node, VariableDeclarationKind};

use super::{
    Compiler, Meaning, Refused, Result, Scope, assigned_function, binding_name, is_declaration, is_function, refuse,
};
use crate::tree::{AssignmentTarget, Expression, Loop, Statement, Variable};

impl Compiler {
    pub(super) fn expression_body(&mut self, body: &ast::FunctionBody<'_>) -> Result<Vec<Statement>> {
        match body.statements.first() {
            Some(Node::ExpressionStatement(statement)) => {
                let value = self.expression(&statement.expression)?;
                Ok(vec![Statement::Return(Some(value))])
            }
            _ => refuse("a strange arrow function"),
        }
    }

    pub(super) fn statements(&mut self, nodes: &[Node<'_>]) -> Result<Vec<Statement>> {
        self.declare_lexical(nodes)?;
        nodes
            .iter()
            .filter(|node| !matches!(node, Node::FunctionDeclaration(_)))
            .map(|node| self.statement(node))
            .collect()
    }

    fn block(&mut self, nodes: &[Node<'_>]) -> Result<Statement> {
        self.scopes.push(Scope::default());
        let statements = (|| {
            self.declare_lexical(nodes)?;
            nodes.iter().map(|node| self.statement(node)).collect::<Result<Vec<_>>>()
        })();
        self.scopes.pop();
        statements.map(Statement::Block)
    }

    /// Names of `let` and `const` are valid only after their declarations.
    fn declare_lexical(&mut self, nodes: &[Node<'_>]) -> Result<()> {
        for node in nodes {
            if let Node::VariableDeclaration(declaration) = node {
                self.declare_names(declaration)?;
            }
        }
        Ok(())
    }

    fn declare_names(&mut self, declaration: &ast::VariableDeclaration<'_>) -> Result<()> {
        let constant = match declaration.kind {
            VariableDeclarationKind::Var => return Ok(()),
            VariableDeclarationKind::Let => false,
            VariableDeclarationKind::Const => true,
            _ => return refuse("using"),
        };
        for declarator in &declaration.declarations {
            let name = binding_name(&declarator.id)?;
            let slot = self.slot()?;
            self.frame().unset.push(slot);
            let outside_loops = self.frame().loops == 0;
            let gets_function = declarator.init.as_ref().is_some_and(is_function);
            let meaning = if gets_function || self.frame().function_names.contains(name) {
                Meaning::FunctionVariable { slot, constant, callable: outside_loops }
            } else {
                Meaning::Lexical { slot, constant, declared: false, readable: outside_loops }
            };
            if self.scope().names.insert(name.to_owned(), meaning).is_some_and(|before| !before.is_own_name()) {
                return refuse("names declared twice");
            }
        }
        Ok(())
    }

    fn statement(&mut self, node: &Node<'_>) -> Result<Statement> {
        self.nested(|compiler| compiler.plain_statement(node))
    }

    fn plain_statement(&mut self, node: &Node<'_>) -> Result<Statement> {
        Ok(match node {
            Node::ExpressionStatement(statement) => self.expression_statement(&statement.expression)?,
            Node::VariableDeclaration(declaration) => self.declaration(declaration)?,
            Node::BlockStatement(block) => self.block(&block.body)?,
            Node::IfStatement(parts) if self.truth(&parts.test).is_some() => {
                match (self.truth(&parts.test), &parts.alternate) {
                    (Some(true), _) => self.body(&parts.consequent)?,
                    (_, Some(alternate)) => self.body(alternate)?,
                    _ => Statement::Empty,
                }
            }
            Node::IfStatement(parts) => {
                let test = self.expression(&parts.test)?;
                let then = self.body(&parts.consequent)?;
                let otherwise = match &parts.alternate {
                    Some(alternate) => Some(Box::new(self.body(alternate)?)),
                    None => None,
                };
                Statement::If(test, Box::new(then), otherwise)
            }
            Node::ForStatement(parts) => self.for_loop(parts)?,
            Node::ForInStatement(parts) => {
                let (place, object, body) = self.for_each(&parts.left, &parts.right, &parts.body)?;
                Statement::ForIn(place, object, Box::new(body))
            }
            Node::ForOfStatement(parts) if !parts.r#await => {
                let (place, object, body) = self.for_each(&parts.left, &parts.right, &parts.body)?;
                Statement::ForOf(place, object, Box::new(body))
            }
            Node::WhileStatement(parts) => {
                let test = Some(self.expression(&parts.test)?);
                let body = self.loop_body(&parts.body)?;
                Statement::Loop(Box::new(Loop { init: None, body_first: false, test, update: None, body }))
            }
            Node::DoWhileStatement(parts) => {
                let body = self.loop_body(&parts.body)?;
                let test = Some(self.expression(&parts.test)?);
                Statement::Loop(Box::new(Loop { init: None, body_first: true, test, update: None, body }))
            }
            Node::SwitchStatement(parts) => self.switch(parts)?,
            Node::ReturnStatement(parts) => {
                let value = parts.argument.as_ref().map(|value| self.expression(value)).transpose()?;
                Statement::Return(value)
            }
            Node::BreakStatement(parts) if parts.label.is_none() && self.frame().breakable > 0 => Statement::Break,
            Node::ContinueStatement(parts) if parts.label.is_none() && self.frame().loops > 0 => Statement::Continue,
            // The engine reports thrown values and continues after them.
            Node::ThrowStatement(parts) => {
                let span = parts.span;
                self.thrown.push(self.source[span.start as usize..span.end as usize].to_owned());
                Statement::BailOut
            }
            Node::TryStatement(parts) if parts.finalizer.is_none() => {
                let block = self.block(&parts.block.body)?;
                // A thrown value ends the native run, so the handler is never executed.
                let handler = parts.handler.as_ref().map(|handler| self.handler(handler)).transpose()?;
                Statement::Try(Box::new(block), handler.unwrap_or_default())
            }
            Node::EmptyStatement(_) => Statement::Empty,
            _ => return refuse("an unsupported statement"),
        })
    }

    fn handler(&mut self, handler: &ast::CatchClause<'_>) -> Result<Vec<Statement>> {
        let mut scope = Scope::default();
        if let Some(parameter) = &handler.param {
            let (name, slot) = (binding_name(&parameter.pattern)?.to_owned(), self.slot()?);
            scope.names.insert(name, Meaning::Variable(slot));
        }
        self.scopes.push(scope);
        let declares = |node: &Node<'_>| match node {
            Node::VariableDeclaration(declaration) => declaration.kind != VariableDeclarationKind::Var,
            node => is_declaration(node),
        };
        if handler.body.body.iter().any(declares) {
            return refuse("declarations where exceptions are handled");
        }
        let statements = handler.body.body.iter().map(|node| self.statement(node)).collect();
        self.scopes.pop();
        statements
    }

    fn body(&mut self, node: &Node<'_>) -> Result<Statement> {
        match node {
            Node::VariableDeclaration(declaration) if declaration.kind != VariableDeclarationKind::Var => {
                refuse("a declaration without a block")
            }
            node if is_declaration(node) => refuse("a declaration without a block"),
            node => self.statement(node),
        }
    }

    fn loop_body(&mut self, node: &Node<'_>) -> Result<Statement> {
        self.frame().loops += 1;
        self.frame().breakable += 1;
        let body = self.body(node)?;
        self.frame().loops -= 1;
        self.frame().breakable -= 1;
        Ok(body)
    }

    fn declaration(&mut self, declaration: &ast::VariableDeclaration<'_>) -> Result<Statement> {
        let mut statements = Vec::new();
        for declarator in &declaration.declarations {
            let name = binding_name(&declarator.id)?;
            let Some((meaning, 0)) = self.look_up(name) else {
                return refuse("a declaration that was not expected");
            };
            match meaning {
                Meaning::Variable(slot) => {
                    if let Some(init) = &declarator.init {
                        let value = self.expression(init)?;
                        statements.push(set(slot, value));
                    }
                }
                Meaning::Lexical { slot, constant, declared: false, .. } => {
                    let value = match &declarator.init {
                        Some(init) => self.expression(init)?,
                        None if constant => return refuse("a constant without a value"),
                        None => Expression::Undefined,
                    };
                    statements.push(set(slot, value));
                    self.know(name, Meaning::Lexical { slot, constant, declared: true, readable: true });
                }
                Meaning::FunctionVariable { slot, constant, .. } => {
                    match &declarator.init {
                        Some(init) if is_function(init) => {
                            let is_lexical = declaration.kind != VariableDeclarationKind::Var;
                            statements.push(self.set_function(slot, init, is_lexical)?);
                        }
                        Some(init) => {
                            let value = self.expression(init)?;
                            statements.push(set(slot, value));
                        }
                        None if declaration.kind == VariableDeclarationKind::Var => {}
                        None => statements.push(set(slot, Expression::Undefined)),
                    }
                    self.know(name, Meaning::FunctionVariable { slot, constant, callable: true });
                }
                _ => return refuse("names declared twice"),
            }
        }
        Ok(if statements.len() == 1 { statements.remove(0) } else { Statement::Block(statements) })
    }

    fn expression_statement(&mut self, node: &ast::Expression<'_>) -> Result<Statement> {
        if self.is_polyfill(node) {
            return Ok(Statement::Empty);
        }
        if let Some((name, function)) = assigned_function(node) {
            let slot = match self.look_up(name) {
                Some((Meaning::FunctionVariable { slot, constant: false, callable: true }, 0)) => slot,
                None if self.frames.len() == 1 => self.global(name)?.slot,
                _ => return refuse("functions as values"),
            };
            return self.set_function(slot, function, false);
        }
        self.expression(node).map(Statement::Expression)
    }

    fn set_function(&mut self, slot: u16, node: &ast::Expression<'_>, is_lexical: bool) -> Result<Statement> {
        if !is_lexical && self.frame().loops > 0 && self.has_names_of_blocks() {
            return refuse("a function that may keep variables of one iteration of a loop");
        }
        let function = match node.without_parentheses() {
            ast::Expression::FunctionExpression(function) => self.function_expression(function)?,
            ast::Expression::ArrowFunctionExpression(function) => self.arrow(function)?,
            _ => return refuse("functions as values"),
        };
        Ok(Statement::Expression(Expression::SetFunction(slot, function)))
    }

    fn has_names_of_blocks(&self) -> bool {
        self.scopes.iter().rev().take_while(|scope| !scope.function).any(|scope| !scope.names.is_empty())
    }

    fn know(&mut self, name: &str, meaning: Meaning) {
        for scope in self.scopes.iter_mut().rev() {
            if let Some(known) = scope.names.get_mut(name) {
                *known = meaning;
                return;
            }
        }
    }

    fn for_loop(&mut self, parts: &ast::ForStatement<'_>) -> Result<Statement> {
        self.scopes.push(Scope::default());
        let statement = self.for_loop_inside(parts);
        self.scopes.pop();
        statement
    }

    fn for_loop_inside(&mut self, parts: &ast::ForStatement<'_>) -> Result<Statement> {
        let init = match &parts.init {
            None => None,
            Some(ast::ForStatementInit::VariableDeclaration(declaration)) => {
                self.declare_names(declaration)?;
                Some(self.declaration(declaration)?)
            }
            Some(init) => {
                let init = init.as_expression().ok_or(Refused("an unsupported loop"))?;
                Some(Statement::Expression(self.expression(init)?))
            }
        };
        let test = parts.test.as_ref().map(|test| self.expression(test)).transpose()?;
        let update = parts.update.as_ref().map(|update| self.expression(update)).transpose()?;
        let body = self.loop_body(&parts.body)?;
        Ok(Statement::Loop(Box::new(Loop { init, body_first: false, test, update, body })))
    }

    fn for_each(
        &mut self,
        left: &ast::ForStatementLeft<'_>,
        right: &ast::Expression<'_>,
        body: &Node<'_>,
    ) -> Result<(AssignmentTarget, Expression, Statement)> {
        self.scopes.push(Scope::default());
        let parts = (|| {
            if let ast::ForStatementLeft::VariableDeclaration(declaration) = left {
                self.declare_names(declaration)?;
            }
            let object = self.expression(right)?;
            let place = self.loop_variable(left)?;
            Ok((place, object, self.loop_body(body)?))
        })();
        self.scopes.pop();
        parts
    }

    fn loop_variable(&mut self, left: &ast::ForStatementLeft<'_>) -> Result<AssignmentTarget> {
        let ast::ForStatementLeft::VariableDeclaration(declaration) = left else {
            return match left {
                ast::ForStatementLeft::AssignmentTargetIdentifier(name) => self.variable_place(&name.name),
                _ => refuse("an unsupported loop"),
            };
        };
        let [declarator] = &declaration.declarations[..] else {
            return refuse("an unsupported loop");
        };
        if declarator.init.is_some() {
            return refuse("an unsupported loop");
        }
        let name = binding_name(&declarator.id)?;
        match self.look_up(name) {
            Some((Meaning::Variable(slot), 0)) => Ok(AssignmentTarget::Variable(Variable { levels: 0, slot })),
            Some((Meaning::Lexical { slot, constant, declared: false, .. }, 0)) => {
                self.know(name, Meaning::Lexical { slot, constant, declared: true, readable: true });
                Ok(AssignmentTarget::Variable(Variable { levels: 0, slot }))
            }
            _ => refuse("an unsupported loop"),
        }
    }

    fn switch(&mut self, parts: &ast::SwitchStatement<'_>) -> Result<Statement> {
        let value = self.expression(&parts.discriminant)?;
        self.frame().breakable += 1;
        let cases = parts.cases.iter().map(|case| {
            let test = case.test.as_ref().map(|test| self.expression(test)).transpose()?;
            let statements = case.consequent.iter().map(|node| self.body(node)).collect::<Result<Vec<_>>>()?;
            Ok((test, statements))
        });
        let cases = cases.collect::<Result<Vec<_>>>()?;
        self.frame().breakable -= 1;
        Ok(Statement::Switch(value, cases))
    }
}

fn set(slot: u16, value: Expression) -> Statement {
    Statement::Expression(Expression::Assign(AssignmentTarget::Variable(Variable { levels: 0, slot }), Box::new(value)))
}
