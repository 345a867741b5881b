//! Design documents of a database, including attached modules.

use std::io::Read as _;
use std::sync::Arc;

use settee_database::{Attachment, Database, Direction, Form, IdRange, ReadView, Stored};
use settee_design::DesignDocument;
use settee_model::json::Json;

use crate::error::{Result, ViewError};

/// Returns all valid design documents, including conflicting revisions, after the winner of the same id.
pub fn design_documents(database: &Arc<Database>) -> Result<Vec<DesignDocument>> {
    let view = database.read()?;
    let range = IdRange { start: Some(b"_design/".to_vec()), end: Some(b"_design0".to_vec()) };
    let mut rows = view.all_docs(&range, Direction::Forward)?;
    let mut ids = Vec::new();
    while let Some(row) = rows.next()? {
        ids.push(row.id.to_owned());
    }
    let mut designs = Vec::new();
    for id in ids {
        let Some(record) = view.record(&id)? else { continue };
        for leaf in record.tree.leaves_by_rank(|stored| stored.deleted) {
            let Some(stored) = record.tree.node(leaf).value.filter(|stored| !stored.deleted) else { continue };
            let mut body = Vec::new();
            if !view.read_body(stored, &mut body)? {
                continue;
            }
            // An invalid design document, for example from a replication, has no index.
            if let Ok(mut design) = DesignDocument::parse(&id, Json::trusted(body).value()) {
                embed_modules(&view, stored, &mut design)?;
                designs.push(design);
            }
        }
    }
    Ok(designs)
}

const MODULE_BYTES_MAX: u64 = 8 << 20;

/// Embeds the modules that are attached to the revision `stored` of `design`.
pub fn embed_modules(view: &ReadView<'_>, stored: Stored, design: &mut DesignDocument) -> Result<()> {
    if !design.has_modules() {
        return Ok(());
    }
    let attached = view.revision(stored)?.map_or(Vec::new(), |revision| revision.attachments);
    design.embed_modules(|name| {
        let attachment = attached.iter().find(|attachment| attachment.name == name);
        attachment.map_or(Ok(None), |attachment| read_module(view, attachment))
    })
}

/// A module above the size limit counts as missing.
fn read_module(view: &ReadView<'_>, attachment: &Attachment) -> Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let reader = view.content(attachment)?.reader(Form::Identity);
    let read = reader.take(MODULE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| ViewError::Source(error.to_string()))?;
    Ok((bytes.len() as u64 <= MODULE_BYTES_MAX).then_some(bytes))
}
