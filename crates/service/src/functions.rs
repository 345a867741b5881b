//! Design documents whose functions requests call: [`Functions`]; [`Programs`] runs them. What is called with what, and what
//! becomes of the result, is decided by who calls.

use std::sync::Arc;
use std::time::Duration;

use settee_database::{Database, Head, ReadView};
use settee_design::{Caller, DesignProgram, DesignSource, Language, Limits};
use settee_model::json::{Json, Value};
use settee_settings::{Settings, chttpd};
use settee_views::Languages;

use crate::Error;
use crate::permits::{Permit, Permits};
use crate::threads;

/// A design document and its text.
#[derive(Clone, Debug)]
pub struct Functions {
    source: DesignSource,
    document: Json,
}

impl Functions {
    /// The design document `name`, which is its id without `_design/`.
    ///
    /// # Errors
    /// When it is not there.
    pub fn load(database: &Arc<Database>, name: &str) -> Result<Arc<Self>, Error> {
        database.of_designs(name, |view| {
            let id = format!("_design/{name}");
            let head = view.head(&id)?.ok_or(Error::Missing)?;
            if head.stored.deleted {
                return Err(Error::Deleted);
            }
            let functions = Self::of_head(view, &id, &head)?;
            let bytes = 2 * functions.source.json.len();
            Ok((functions, bytes))
        })
    }

    /// Reads the design document whose winner is `head`.
    ///
    /// # Errors
    /// When its body is not there.
    pub fn of_head(view: &ReadView, id: &str, head: &Head) -> Result<Self, Error> {
        let mut text = Vec::new();
        if !view.write_document(&mut text, id, &head.rev, head.stored, |_| {})? {
            return Err(Error::Missing);
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
    #[must_use]
    pub fn document(&self) -> Value<'_> {
        self.document.value()
    }

    /// The revision of the design document.
    #[must_use]
    pub fn rev(&self) -> &str {
        &self.source.rev
    }

    /// The name of its language.
    fn language(&self) -> String {
        self.document().get("language").and_then(Value::as_str).map_or_else(|| "javascript".to_owned(), Into::into)
    }

    /// Refuses a function that the design document does not have, with the first name of `path` that is missing.
    ///
    /// # Errors
    /// [`Error::MissingFunction`].
    pub fn require(&self, path: &[&str]) -> Result<(), Error> {
        let mut value = self.document();
        for name in path {
            value = value.get(name).ok_or_else(|| Error::MissingFunction((*name).to_owned()))?;
        }
        Ok(())
    }

    /// Its functions, ready to be called for a client. Programs are cheap: what was compiled is kept elsewhere.
    ///
    /// # Errors
    /// When nobody speaks its language, or it does not compile.
    pub fn program(&self, programs: &Programs, caller: &Caller) -> Result<Box<dyn DesignProgram>, Error> {
        let name = self.language();
        let language = programs.language(&name).ok_or(Error::UnknownLanguage(name))?;
        let mut program = language.design_program(&self.source, Limits::default())?;
        program.set_caller(caller);
        Ok(program)
    }

    /// Writes what functions have logged to the server's log.
    pub fn log(&self, database: &Database, program: &mut dyn DesignProgram) {
        for line in program.take_log() {
            tracing::info!(database = database.name(), design_document = %self.source.id, "function says: {line}");
        }
    }

    /// Calls a function and takes its result.
    ///
    /// # Errors
    /// When the function refuses or fails.
    pub fn call(
        &self,
        programs: &Programs,
        caller: &Caller,
        database: &Arc<Database>,
        path: &[&str],
        arguments: &[&[u8]],
    ) -> Result<Json, Error> {
        let mut program = self.program(programs, caller)?;
        let result = program.call(path, arguments);
        self.log(database, program.as_mut());
        Ok(Json::trusted(result?))
    }
}

/// The languages of design documents, and how many calls of functions there are at a time.
pub struct Programs {
    languages: Languages,
    permits: Arc<Permits>,
}

/// The longest time that a call of a function waits for others to end.
const CALL_WAIT_MAX: Duration = Duration::from_secs(60);

impl Programs {
    /// With these languages. Of `[chttpd] max_function_calls` each has a thread of those that everybody shares.
    #[must_use]
    pub fn new(languages: Languages, settings: &dyn Settings) -> Self {
        let calls = chttpd::MAX_FUNCTION_CALLS.of(settings).clamp(1, 10_000);
        Self { languages, permits: Permits::new(usize::try_from(calls).unwrap_or(1)) }
    }

    /// The language of this name, if this server offers it.
    #[must_use]
    pub fn language(&self, name: &str) -> Option<Arc<dyn Language>> {
        (self.languages)(name)
    }

    /// Waits until another function may be called for this client.
    ///
    /// # Errors
    /// [`Error::TooManyCalls`].
    pub async fn permit(&self, caller: &Caller) -> Result<Permit, Error> {
        let permit = self.permits.acquire(caller.owner);
        tokio::time::timeout(CALL_WAIT_MAX, permit).await.map_err(|_| Error::TooManyCalls)
    }

    /// Runs `work`, which calls functions of design documents for a client, on a thread that may block. Further calls of the same
    /// client wait when they are many, before they have a thread.
    ///
    /// # Errors
    /// Those of `work`, and [`Error::TooManyCalls`].
    pub async fn calling<T, E>(
        &self,
        caller: &Caller,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let permit = self.permit(caller).await?;
        threads::run(move || {
            let result = work();
            drop(permit);
            result
        })
        .await
    }
}
