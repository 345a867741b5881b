//! [`upgrade`]: replacement of password hashes that do not match the settings, at a login, because only then the
//! password is available.

use std::sync::Arc;

use settee_auth::user_document::{self, USER_PREFIX};
use settee_auth::{Account, Hashing, UserContext};
use settee_database::{DatabaseError, DocUpdate, EditMode, NewAttachment, NewAttachments, StorageError};
use settee_design::Caller;
use settee_model::json::Json;
use settee_model::{Document, RevisionHasher};

use crate::Error;
use crate::validation::Writer;

/// Replaces the password hash of a user in the background, if the settings require another hash. The salt is unchanged,
/// so that sessions stay valid.
pub fn upgrade(writer: &Arc<Writer>, account: &Arc<Account>, password: Vec<u8>) {
    let users = writer.users();
    let policy = users.policy();
    let Some(hashing) = policy.upgrade_of(account) else {
        return;
    };
    let mut upgrading = users.upgrading.lock();
    if upgrading.iter().any(|name| name == account.name()) {
        return;
    }
    upgrading.push(account.name().to_owned());
    drop(upgrading);
    let (writer, account) = (Arc::clone(writer), Arc::clone(account));
    let users_db = policy.users_db.clone();
    tokio::spawn(async move {
        let replaced = replace_hash(&writer, &users_db, &account, hashing, password).await;
        // The writer of the cluster replaces it at a login there.
        if let Err(error) = replaced
            && !matches!(error, Error::Database(DatabaseError::Storage(StorageError::Deposed)))
        {
            tracing::warn!(user = account.name(), reason = %error, "the hash of a password was not renewed");
        }
        writer.users().upgrading.lock().retain(|name| name != account.name());
    });
}

async fn replace_hash(
    writer: &Arc<Writer>,
    users_db: &str,
    account: &Arc<Account>,
    hashing: Hashing,
    password: Vec<u8>,
) -> Result<(), Error> {
    let dependencies = writer.users().dependencies();
    let database = dependencies.catalog.database(users_db)?;
    let id = format!("{USER_PREFIX}{}", account.name());
    let (reader, wanted) = (Arc::clone(&database), id.clone());
    let found = settee_threads::run::<_, Error>(move || {
        let view = reader.read()?;
        let head = view.head(&wanted)?.filter(|head| !head.stored.deleted);
        let Some(head) = head else { return Ok(None) };
        Ok(view.revision(head.stored)?.map(|revision| (head.rev, revision)))
    });
    let Some((rev, revision)) = found.await? else { return Ok(()) };
    let salt = account.salt().to_owned();
    let attachments = revision.attachments.iter().cloned().map(NewAttachment::kept).collect();
    let attachments = NewAttachments::new(&database, attachments)?;
    let body = Json::trusted(revision.into_body());
    if !Account::of_document(account.name(), body.value()).has_password_of(account) {
        return Ok(());
    }
    let (body, password) = dependencies
        .hashers
        .run(None, move || (user_document::with_hash(body.value(), &hashing, &password, &salt), password))
        .await?;
    dependencies.authenticator.remember(&Account::of_document(account.name(), body.value()), &password);
    let document = Document { id: None, rev: Some(rev), deleted: false, body, attachments: None, revisions: None };
    let mode = EditMode::Interactive;
    let update = DocUpdate::prepare_with(id, document, attachments, mode, &mut RevisionHasher::default())
        .ok_or(Error::Internal("an edit needs no revision"))?;
    tracing::info!(user = account.name(), "the hash of a password is renewed");
    let results = writer.commit(&database, &UserContext::admin_party(), &Caller::default(), vec![update]).await?;
    results.into_iter().next().map_or(Ok(()), |result| result.map(|_| ()))
}
