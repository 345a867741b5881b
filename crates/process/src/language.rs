//! [`QueryServer`]: the language of a query server.

use std::sync::Arc;
use std::time::Duration;

use settee_design::{CompileError, DesignProgram, DesignSource, Engine, Language, Limits, MapSource, Program, Reducer};

use crate::functions::FunctionCalls;
use crate::map::Mapper;
use crate::pool::Pool;
use crate::reduce::FunctionReducer;
use crate::settings::{Log, Settings};
use crate::shared::Shared;

/// A language whose functions run in processes of one command, started when a function is compiled. Clones share them.
/// The limits of callers apply to rows and bytes; [`Settings`] limits time and memory.
#[derive(Clone)]
pub struct QueryServer(Arc<Shared>);

impl QueryServer {
    #[must_use]
    pub fn new(name: &str, command: &str, settings: Settings, log: Log) -> Self {
        let pool = Pool::new(name.into(), command.to_owned(), Arc::new(settings), log);
        Self(Arc::new(Shared::new(pool)))
    }

    pub fn end_idle(&self, idle: Duration) {
        self.0.pool.end_idle(idle);
    }

    #[must_use]
    pub fn processes(&self) -> (usize, usize) {
        self.0.pool.count()
    }
}

impl Language for QueryServer {
    fn name(&self) -> &str {
        &self.0.pool.language
    }

    fn program(&self, source: &MapSource, limits: Limits) -> Result<Box<dyn Program>, CompileError> {
        Ok(Box::new(Mapper::new(Arc::clone(&self.0), source.clone(), limits)?))
    }

    fn engines(&self, source: &MapSource) -> Vec<Engine> {
        let engine = self.0.engine(self.0.projection(source).as_ref());
        source.functions.iter().filter_map(|_| engine).collect()
    }

    fn reducer(&self, source: &str, limits: Limits) -> Result<Box<dyn Reducer>, CompileError> {
        let source: Arc<str> = source.into();
        self.0.check_reduce(&source)?;
        Ok(Box::new(FunctionReducer::new(Arc::clone(&self.0), source, limits)))
    }

    fn design_program(&self, source: &DesignSource, limits: Limits) -> Result<Box<dyn DesignProgram>, CompileError> {
        Ok(Box::new(FunctionCalls::new(Arc::clone(&self.0), source.clone(), limits)))
    }
}
