//! Design documents with functions that requests call: [`Functions`]; [`Programs`] runs them. The caller chooses the
//! arguments and handles the result.

use std::sync::Arc;
use std::time::Duration;

use settee_database::{Database, Head, ReadView, Waiting};
use settee_design::{Caller, DesignProgram, DesignSource, Language, LimitsSource};
use settee_model::json::{Json, Value};
use settee_settings::{Settings, chttpd};
use settee_threads::{Failed, Permit, Permits};
use settee_views::Languages;

use crate::Error;

#[derive(Clone, Debug)]
pub struct Functions {
    source: DesignSource,
    document: Json,
}

impl Functions {
    pub fn load(database: &Arc<Database>, name: &str) -> Result<Arc<Self>, Error> {
        database.of_designs(name, Waiting::Allowed, |view| {
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

    pub fn of_head(view: &ReadView<'_>, id: &str, head: &Head) -> Result<Self, Error> {
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

    #[must_use]
    pub fn document(&self) -> Value<'_> {
        self.document.value()
    }

    #[must_use]
    pub fn rev(&self) -> &str {
        &self.source.rev
    }

    fn language(&self) -> String {
        self.document().get("language").and_then(Value::as_str).map_or_else(|| "javascript".to_owned(), Into::into)
    }

    /// Returns [`Error::MissingFunction`] with the first missing name if the design document has no function at `path`.
    pub fn require(&self, path: &[&str]) -> Result<(), Error> {
        let mut value = self.document();
        for name in path {
            value = value.get(name).ok_or_else(|| Error::MissingFunction((*name).to_owned()))?;
        }
        Ok(())
    }

    /// Creates a program of its functions for calls on behalf of a client. Creation is cheap, because compiled code is
    /// cached elsewhere.
    pub fn program(&self, programs: &Programs, caller: &Caller) -> Result<Box<dyn DesignProgram>, Error> {
        let name = self.language();
        let language = programs.language(&name).ok_or(Error::UnknownLanguage(name))?;
        let mut program = language.design_program(&self.source, programs.limits.current())?;
        program.set_caller(caller);
        Ok(program)
    }

    pub fn log(&self, database: &Database, program: &mut dyn DesignProgram) {
        for line in program.take_log() {
            tracing::info!(database = database.name(), design_document = %self.source.id, "function says: {line}");
        }
    }

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

pub struct Programs {
    languages: Languages,
    limits: LimitsSource,
    permits: Arc<Permits>,
}

const CALL_WAIT_MAX: Duration = Duration::from_secs(60);

impl Programs {
    /// `[chttpd] max_function_calls` is the number of permits, because each call occupies a shared thread.
    #[must_use]
    pub fn new(languages: Languages, limits: LimitsSource, settings: &dyn Settings) -> Self {
        let calls = chttpd::MAX_FUNCTION_CALLS.of(settings).clamp(1, 10_000);
        Self { languages, limits, permits: Permits::new(usize::try_from(calls).unwrap_or(1)) }
    }

    #[must_use]
    pub fn language(&self, name: &str) -> Option<Arc<dyn Language>> {
        (self.languages)(name)
    }

    /// Waits for a permit to call functions. Returns [`Error::TooManyCalls`] after a timeout.
    pub async fn permit(&self, caller: &Caller) -> Result<Permit, Error> {
        let permit = self.permits.acquire(caller.owner);
        tokio::time::timeout(CALL_WAIT_MAX, permit).await.map_err(|_| Error::TooManyCalls)
    }

    /// Runs `work`, which calls functions of design documents on behalf of a client, on a thread of the caller. The
    /// permit is acquired before a thread is occupied. Returns [`Error::TooManyCalls`] if none becomes available.
    pub async fn calling<T, E>(
        &self,
        caller: &Caller,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Error> + From<Failed> + Send + 'static,
    {
        let permit = self.permit(caller).await?;
        let releasing = move || {
            let result = work();
            drop(permit);
            result
        };
        caller.threads.run(releasing).await
    }
}
