//! Modules that are attached to design documents: [`embed`] puts them where the functions of the languages expect them.

use std::io::Read as _;

use settee_database::{Attachment, Form, ReadView, Stored};
use settee_design::DesignDocument;

use crate::Error;

/// The longest module that is read.
const MODULE_BYTES_MAX: u64 = 8 << 20;

/// Completes the sources of `design`, which is the revision `stored`.
pub(crate) fn embed(view: &ReadView, stored: Stored, design: &mut DesignDocument) -> Result<(), Error> {
    if !design.has_modules() {
        return Ok(());
    }
    let attached = view.revision(stored)?.map_or(Vec::new(), |revision| revision.attachments);
    design.embed_modules(|name| {
        let attachment = attached.iter().find(|attachment| attachment.name == name);
        attachment.map_or(Ok(None), |attachment| read(view, attachment))
    })
}

/// One that is too long to be compiled counts as absent.
fn read(view: &ReadView, attachment: &Attachment) -> Result<Option<Vec<u8>>, Error> {
    let mut bytes = Vec::new();
    let reader = view.content(attachment)?.reader(Form::Identity);
    let read = reader.take(MODULE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| Error::internal(error.to_string()))?;
    Ok((bytes.len() as u64 <= MODULE_BYTES_MAX).then_some(bytes))
}
