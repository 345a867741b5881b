//! Design documents whose functions requests call: [`Functions`]. What is called with what, and what becomes of the
//! result, is decided in `routes` and `validation`.

use std::sync::Arc;

use hyper::StatusCode;
use settee_database::{Database, Head, ReadView};
use settee_design::{DesignProgram, DesignSource, Limits};
use settee_model::json::{Json, Value};

use crate::Error;
use crate::node::Node;

/// A design document and its text.
#[derive(Clone, Debug)]
pub(crate) struct Functions {
    source: DesignSource,
    document: Json,
}

impl Functions {
    /// Reads the design document `name`, which is its id without `_design/`.
    pub(crate) fn load(view: &ReadView, name: &str) -> Result<Self, Error> {
        let id = format!("_design/{name}");
        let head = view.head(&id)?.ok_or_else(|| Error::not_found("missing"))?;
        if head.stored.deleted {
            return Err(Error::not_found("deleted"));
        }
        Self::of_head(view, &id, &head)
    }

    /// Reads the design document whose winner is `head`.
    pub(crate) fn of_head(view: &ReadView, id: &str, head: &Head) -> Result<Self, Error> {
        let mut text = Vec::new();
        if !view.write_document(&mut text, id, &head.rev, head.stored, |_| {})? {
            return Err(Error::not_found("missing"));
        }
        let source = DesignSource {
            database: view.database().instance(),
            id: id.into(),
            rev: head.rev.to_string().into(),
            json: text.as_slice().into(),
        };
        Ok(Self { source, document: Json::trusted(text) })
    }

    /// The design document.
    pub(crate) fn document(&self) -> Value<'_> {
        self.document.value()
    }

    /// The revision of the design document.
    pub(crate) fn rev(&self) -> &str {
        &self.source.rev
    }

    /// The name of its language.
    fn language(&self) -> String {
        self.document().get("language").and_then(Value::as_str).map_or_else(|| "javascript".to_owned(), Into::into)
    }

    /// Refuses a function that the design document does not have, with the first name of `path` that is missing.
    pub(crate) fn require(&self, path: &[&str]) -> Result<(), Error> {
        let mut value = self.document();
        for name in path {
            value = value.get(name).ok_or_else(|| Error::not_found(format!("missing json key: {name}")))?;
        }
        Ok(())
    }

    /// Its functions, ready to be called. Programs are cheap: what was compiled is kept elsewhere.
    pub(crate) fn program(&self, node: &Node) -> Result<Box<dyn DesignProgram>, Error> {
        let name = self.language();
        let language = node
            .language(&name)
            .ok_or_else(|| Error::new(StatusCode::INTERNAL_SERVER_ERROR, "unknown_query_language", name))?;
        Ok(language.design_program(&self.source, Limits::default())?)
    }

    /// Writes what functions have logged to the server's log.
    pub(crate) fn log(&self, database: &Database, program: &mut dyn DesignProgram) {
        for line in program.take_log() {
            tracing::info!(database = database.name(), design_document = %self.source.id, "function says: {line}");
        }
    }

    /// Calls a function and takes its result.
    pub(crate) fn call(
        &self,
        node: &Node,
        database: &Arc<Database>,
        path: &[&str],
        arguments: &[&[u8]],
    ) -> Result<Json, Error> {
        let mut program = self.program(node)?;
        let result = program.call(path, arguments);
        self.log(database, program.as_mut());
        Ok(Json::trusted(result?))
    }
}
