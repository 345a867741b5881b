//! [`ParentAttachments`]: the attachments that stubs of an update can name.

use settee_model::Rev;
use settee_model::rev_tree::RevTree;

use super::ReadView;
use crate::attachment::Attachment;
use crate::record::Stored;
use crate::update::validation::{Acceptance, acceptance, named_leaf};
use crate::{EditMode, Result};

/// Attachments that stubs of an update can name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParentAttachments {
    /// The parent's attachments; empty without a parent.
    Of(Vec<Attachment>),
    /// Not needed, because the update is a conflict or its revision is already stored.
    Unneeded,
}

impl ReadView<'_> {
    /// Returns the attachments that stubs can name in an update of document `id`. For a replicated update `path` is the
    /// new revision and its ancestors, newest first; for an interactive edit it is the replaced revision, if any.
    pub fn parent_attachments(&self, id: &str, path: &[Rev], mode: EditMode) -> Result<ParentAttachments> {
        let Some(record) = self.record(id)? else {
            return Ok(ParentAttachments::Of(Vec::new()));
        };
        let tree = &record.tree;
        let stored = match mode {
            EditMode::Replicated => {
                let newest = path.first().and_then(|rev| tree.find(rev));
                if newest.is_some_and(|node| tree.node(node).value.is_some()) {
                    return Ok(ParentAttachments::Unneeded);
                }
                nearest_stored(tree, path.get(1..).unwrap_or_default())
            }
            EditMode::Interactive => match path.first() {
                // This includes deletions: CouchDB checks stubs before it checks that the document exists.
                Some(parent) => match named_leaf(tree, parent) {
                    Some(leaf) => tree.node(leaf).value,
                    None => return Ok(ParentAttachments::Unneeded),
                },
                None if acceptance(tree, None, false) == Acceptance::Conflict => {
                    return Ok(ParentAttachments::Unneeded);
                }
                None => None,
            },
        };
        let revision = stored.map_or(Ok(None), |stored| self.revision(stored))?;
        Ok(ParentAttachments::Of(revision.map_or_else(Vec::new, |revision| revision.attachments)))
    }
}

fn nearest_stored(tree: &RevTree<Stored>, path: &[Rev]) -> Option<Stored> {
    let known = path.iter().find_map(|rev| tree.find(rev))?;
    tree.history(known).find_map(|node| tree.node(node).value)
}
