//! Validation of updates by functions of design documents: every document is written by [`Writer::commit`]. Functions
//! run on a snapshot before the update enters the queue. If the design documents or the old document have changed
//! since, the leader of the queue reports the update as stale, and it is validated again. For a database without
//! validation functions the cost is one comparison, see [`Validators`].

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use settee_auth::UserContext;
use settee_database::{
    AccessControl, AccessList, Bodies, DOCUMENTS_TOGETHER, Database, Direction, DocRecord, DocUpdate, IdRange,
    Precheck, ReadView, Reader, UpdateOutcome, Validated, ValidationBasis,
};
use settee_design::{CallError, Caller, DesignProgram};
use settee_model::json::{append_object, write_array, write_string};
use settee_model::{Document, Rev};

use crate::functions::{Functions, Programs};
use crate::revisions::{self, Conflicts};
use crate::security::{reader, security};
use crate::users::{Counted, Users};
use crate::{Error, commits};

/// Consecutive rounds in which all updates of a request are stale because design documents change.
const WASTED_ROUNDS_MAX: u32 = 1000;

/// Number of old documents that are read together. The size of their bodies is limited, and the request has its updates
/// in memory anyway.
const VALIDATED_TOGETHER: usize = 1000;

const REMEMBERED_MAX: NonZeroUsize = NonZeroUsize::new(4096).expect("not zero");

/// Validation functions of databases, as of the latest change of a design document.
struct Validators {
    databases: Mutex<LruCache<u64, Known>>,
}

impl Default for Validators {
    fn default() -> Self {
        let mut databases = LruCache::unbounded();
        databases.resize(REMEMBERED_MAX);
        Self { databases: Mutex::new(databases) }
    }
}

#[derive(Clone)]
struct Known {
    design_seq: u64,
    /// In the order of the ids of the design documents.
    functions: Arc<[Functions]>,
}

impl Validators {
    /// Returns true if the cache shows that the database has had no validation functions since the change `design_seq`.
    fn has_none(&self, database: &Database, design_seq: u64) -> bool {
        if design_seq == 0 {
            return true;
        }
        let mut databases = self.databases.lock();
        databases
            .get(&database.instance())
            .is_some_and(|known| known.design_seq == design_seq && known.functions.is_empty())
    }

    fn of(&self, view: &ReadView<'_>, design_seq: u64) -> Result<Arc<[Functions]>, Error> {
        let instance = view.database().instance();
        if let Some(known) = self.databases.lock().get(&instance).filter(|known| known.design_seq == design_seq) {
            return Ok(Arc::clone(&known.functions));
        }
        let functions = read_functions(view)?;
        let known = Known { design_seq, functions: Arc::clone(&functions) };
        self.databases.lock().put(instance, known);
        Ok(functions)
    }

    fn forget(&self, database: &Database) {
        self.databases.lock().pop(&database.instance());
    }
}

fn read_functions(view: &ReadView<'_>) -> Result<Arc<[Functions]>, Error> {
    let range = IdRange { start: Some(b"_design/".to_vec()), end: Some(b"_design0".to_vec()) };
    let mut rows = view.all_docs(&range, Direction::Forward)?;
    let mut functions = Vec::new();
    let mut together = VecDeque::new();
    loop {
        if together.is_empty() {
            together.extend(rows.together(DOCUMENTS_TOGETHER, Bodies::Winners)?);
        }
        let Some((id, head)) = together.pop_front() else { break };
        let found = Functions::of_head(view, &id, &head)?;
        if found.document().get("validate_doc_update").is_some_and(|function| !function.is_null()) {
            functions.push(found);
        }
    }
    Ok(functions.into())
}

pub struct Writer {
    programs: Arc<Programs>,
    users: Arc<Users>,
    validators: Validators,
}

impl Writer {
    #[must_use]
    pub fn new(programs: Arc<Programs>, users: Arc<Users>) -> Self {
        Self { programs, users, validators: Validators::default() }
    }

    pub(crate) fn users(&self) -> &Arc<Users> {
        &self.users
    }

    pub(crate) fn forget(&self, database: &Database) {
        self.validators.forget(database);
    }

    /// Validates and commits `updates` on behalf of `user`, independently of each other. Returns the revision or the
    /// error of each, in order. Fails if the engine or a validation function fails for the whole request.
    pub async fn commit(
        self: &Arc<Self>,
        database: &Arc<Database>,
        user: &UserContext,
        caller: &Caller,
        updates: Vec<DocUpdate>,
    ) -> Result<Vec<Result<Rev, Error>>, Error> {
        let mut results: Vec<Option<Result<Rev, Error>>> = updates.iter().map(|_| None).collect();
        let mut waiting: Vec<(usize, DocUpdate)> = Vec::with_capacity(updates.len());
        if self.users.is_users_db(database.name()) {
            for (place, update) in self.users.before_write(database, user, updates).await?.into_iter().enumerate() {
                match update {
                    Ok(update) => waiting.push((place, update)),
                    Err(error) => results[place] = Some(Err(error)),
                }
            }
        } else {
            waiting.extend(updates.into_iter().enumerate());
        }
        // Update sequences follow the ids within a request, as in CouchDB. The sort is stable, so updates of one
        // document keep their order.
        waiting.sort_by(|(_, one), (_, other)| one.id().cmp(other.id()));
        let mut wasted_rounds = 0;
        let mut round = Round::First;
        while !waiting.is_empty() {
            if database.access() == AccessControl::PerDocument {
                waiting = check_access(database, (user, caller), waiting, &mut results).await?;
            }
            let (before, asked) = (waiting.len(), self.validate(database, (user, caller), waiting, round).await?);
            let (mut places, mut accepted) = (Vec::new(), Vec::new());
            for (place, verdict) in asked {
                match verdict {
                    Ok(update) => {
                        places.push(place);
                        accepted.push(update);
                    }
                    Err(error) => {
                        if matches!(error, Error::Call(CallError::Forbidden(_) | CallError::Unauthorized(_))) {
                            (self.users.dependencies().count)(Counted::VduReject);
                        }
                        results[place] = Some(Err(error));
                    }
                }
            }
            let outcomes = commits::commit(database, DocUpdate::into_works(accepted)).await?;
            waiting = Vec::new();
            for (place, outcome) in places.into_iter().zip(outcomes) {
                results[place] = match outcome {
                    UpdateOutcome::Saved(rev) => Some(Ok(rev)),
                    UpdateOutcome::Conflict => Some(Err(Error::Conflict)),
                    UpdateOutcome::Forbidden => Some(Err(access_denied())),
                    UpdateOutcome::PartitionOverflow(id) => Some(Err(Error::PartitionOverflow(id))),
                    UpdateOutcome::Purged(_) => Some(Err(Error::Internal("an update is no purge"))),
                    UpdateOutcome::Stale(update) => {
                        waiting.push((place, *update));
                        None
                    }
                };
            }
            wasted_rounds = if waiting.len() < before { 0 } else { wasted_rounds + 1 };
            if wasted_rounds > WASTED_ROUNDS_MAX {
                return Err(Error::Internal("design documents change faster than updates can be validated"));
            }
            round = Round::Again;
        }
        let unanswered = || Err(Error::Internal("the update was not answered"));
        Ok(results.into_iter().map(|result| result.unwrap_or_else(unanswered)).collect())
    }

    /// Accepted updates contain the state against which they were validated.
    async fn validate(
        self: &Arc<Self>,
        database: &Arc<Database>,
        (user, caller): (&UserContext, &Caller),
        mut updates: Vec<(usize, DocUpdate)>,
        round: Round,
    ) -> Result<Vec<Verdict>, Error> {
        let design_seq = database.design_seq();
        let unseen = round == Round::First && self.validators.has_none(database, design_seq);
        if unseen || !updates.iter().any(|(_, update)| update.is_subject_to_validation()) {
            for (_, update) in updates.iter_mut().filter(|(_, update)| update.is_subject_to_validation()) {
                update.set_validated(Validated { design_seq, basis: ValidationBasis::Unvalidated });
            }
            return Ok(updates.into_iter().map(|(place, update)| (place, Ok(update))).collect());
        }
        let (writer, database, user) = (Arc::clone(self), Arc::clone(database), user.clone());
        let context = caller.clone();
        self.programs
            .calling(caller, move || {
                let view = database.read()?;
                let design_seq = view.design_seq()?;
                let functions = writer.validators.of(&view, design_seq)?;
                let mut asking = Asking::new((&writer.programs, &context), &view, &functions, &user, design_seq)?;
                let mut verdicts = Vec::with_capacity(updates.len());
                while !updates.is_empty() {
                    let rest = updates.split_off(updates.len().min(VALIDATED_TOGETHER));
                    let together = std::mem::replace(&mut updates, rest);
                    asking.read_ahead(together.iter().map(|(_, update)| update))?;
                    verdicts.extend(together.into_iter().map(|(place, update)| (place, asking.ask(update))));
                }
                Ok(verdicts)
            })
            .await
    }
}

/// Refuses updates to which access lists do not entitle the user, before a validation function receives the documents.
/// The commit checks the accepted ones again.
async fn check_access(
    database: &Arc<Database>,
    (user, caller): (&UserContext, &Caller),
    mut updates: Vec<(usize, DocUpdate)>,
    results: &mut [Option<Result<Rev, Error>>],
) -> Result<Vec<(usize, DocUpdate)>, Error> {
    let reader = reader(database, user)?;
    if matches!(&reader, Reader::Member(member) if member.name().is_none()) && !updates.is_empty() {
        return Err(Error::Unauthorized("Log in to write to this database."));
    }
    let database = Arc::clone(database);
    let checked = caller.threads.run(move || {
        let view = database.read()?;
        let mut checked: Vec<Verdict> = Vec::with_capacity(updates.len());
        while !updates.is_empty() {
            let rest = updates.split_off(updates.len().min(DOCUMENTS_TOGETHER));
            let together = std::mem::replace(&mut updates, rest);
            if let Reader::Member(_) = reader {
                view.read_ahead(&together.iter().map(|(_, update)| update.id()).collect::<Vec<_>>(), Bodies::None)?;
            }
            for (place, mut update) in together {
                update.set_reader(reader.clone());
                checked.push((place, check_update(&view, &update)?.map_or(Ok(update), Err)));
            }
        }
        Ok::<_, Error>(checked)
    });
    let mut accepted = Vec::new();
    for (place, verdict) in checked.await? {
        match verdict {
            Ok(update) => accepted.push((place, update)),
            Err(error) => results[place] = Some(Err(error)),
        }
    }
    Ok(accepted)
}

fn check_update(view: &ReadView<'_>, update: &DocUpdate) -> Result<Option<Error>, Error> {
    match AccessList::of_body(update.body()) {
        Err(error) => return Ok(Some(error.into())),
        Ok(Some(_)) if update.id().starts_with("_design/") => {
            return Ok(Some(Error::forbidden(
                "A design document cannot have `_access`: it belongs to administrators.",
            )));
        }
        Ok(_) => {}
    }
    Ok(match view.check_access(update)? {
        None => None,
        Some(UpdateOutcome::Conflict) => Some(Error::Conflict),
        Some(_) => Some(access_denied()),
    })
}

fn access_denied() -> Error {
    Error::forbidden("access")
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    First,
    Again,
}

type Verdict = (usize, Result<DocUpdate, Error>);

struct Asking<'a> {
    view: &'a ReadView<'a>,
    design_seq: u64,
    functions: &'a [Functions],
    programs: Vec<Box<dyn DesignProgram>>,
    user: Vec<u8>,
    security: Vec<u8>,
}

impl<'a> Asking<'a> {
    fn new(
        (programs, caller): (&Programs, &Caller),
        view: &'a ReadView<'a>,
        functions: &'a [Functions],
        user: &UserContext,
        design_seq: u64,
    ) -> Result<Self, Error> {
        let database = view.database();
        let mut text = Vec::new();
        write_user(&mut text, database.name(), user);
        let security = if functions.is_empty() { Vec::new() } else { security(database)?.into_bytes() };
        let programs =
            functions.iter().map(|functions| functions.program(programs, caller)).collect::<Result<_, _>>()?;
        Ok(Self { view, design_seq, functions, programs, user: text, security })
    }

    fn read_ahead<'u>(&self, updates: impl Iterator<Item = &'u DocUpdate>) -> Result<(), Error> {
        if self.functions.is_empty() {
            return Ok(());
        }
        let ids: Vec<&str> = updates.filter(|update| update.is_subject_to_validation()).map(DocUpdate::id).collect();
        Ok(self.view.read_ahead(&ids, Bodies::Leaves)?)
    }

    fn ask(&mut self, mut update: DocUpdate) -> Result<DocUpdate, Error> {
        if !update.is_subject_to_validation() {
            return Ok(update);
        }
        let basis = if self.functions.is_empty() {
            ValidationBasis::Unvalidated
        } else {
            let record = self.view.record(update.id())?;
            let precheck = update.precheck(record.as_deref());
            if let Precheck::New { old } = &precheck {
                self.call(&update, record.as_deref(), old.as_ref())?;
            }
            ValidationBasis::Seen(precheck)
        };
        update.set_validated(Validated { design_seq: self.design_seq, basis });
        Ok(update)
    }

    /// Calls the functions in the order of their design documents, until one refuses.
    fn call(&mut self, update: &DocUpdate, record: Option<&DocRecord>, old: Option<&Rev>) -> Result<(), Error> {
        let mut new_text = Vec::new();
        write_new(&mut new_text, update);
        let mut old_text = Vec::new();
        if !write_old(&mut old_text, self.view, update.id(), record, old)? {
            old_text = b"null".to_vec();
        }
        let arguments: [&[u8]; 4] = [&new_text, &old_text, &self.user, &self.security];
        for (functions, program) in self.functions.iter().zip(&mut self.programs) {
            let result = program.call(&["validate_doc_update"], &arguments);
            functions.log(self.view.database(), program.as_mut());
            result?;
        }
        Ok(())
    }
}

pub fn write_user(out: &mut Vec<u8>, database: &str, user: &UserContext) {
    append_object(out, |object| {
        object.string("db", database).string_or_null("name", user.name.as_deref()).strings("roles", &user.roles);
    });
}

/// Appends the new document as functions see it: with the revisions that the update names and stubs of attachments.
fn write_new(out: &mut Vec<u8>, update: &DocUpdate) {
    let rev = update.seen_revisions().next();
    let write_extra = |out: &mut Vec<u8>| {
        let Some(rev) = rev else { return };
        out.extend_from_slice(format!(",\"_revisions\":{{\"start\":{},\"ids\":", rev.generation).as_bytes());
        write_array(out, update.seen_revisions(), |out, ancestor| write_string(out, &ancestor.hash.to_string()));
        out.push(b'}');
    };
    Document::write_json(out, update.id(), rev, update.is_deletion(), write_extra, update.body().as_bytes());
    update.write_seen_attachments(out);
}

/// Returns `false` if the old document does not exist or its body was removed.
fn write_old(
    out: &mut Vec<u8>,
    view: &ReadView<'_>,
    id: &str,
    record: Option<&DocRecord>,
    rev: Option<&Rev>,
) -> Result<bool, Error> {
    let Some((record, node)) = record.and_then(|record| Some((record, record.tree.find(rev?)?))) else {
        return Ok(false);
    };
    revisions::write_for_functions(out, view, id, record, node, Conflicts::Hidden)
}

#[cfg(test)]
mod tests;
