//! Validated updates: the leader checks that the data to which validation functions were applied ([`Validated`]) is
//! current. The functions run before the update is queued, so that user code never blocks other writers. The leader
//! compares the latest change of a design document and the revision that the functions received as the old one. If
//! either has changed, the outcome is [`UpdateOutcome::Stale`](super::UpdateOutcome::Stale), and the caller must
//! validate again.

use settee_model::Rev;
use settee_model::rev_tree::{RevTree, Revisions};

use super::work::{DocUpdate, EditMode, Precheck, Validated, ValidationBasis};
use crate::record::{DocRecord, Stored};

/// Updates are equal if they bring the same revision to the same document.
impl PartialEq for DocUpdate {
    fn eq(&self, other: &Self) -> bool {
        (&self.id, &self.path, self.deleted, self.mode) == (&other.id, &other.path, other.deleted, other.mode)
    }
}

impl Eq for DocUpdate {}

impl DocUpdate {
    /// Returns true if validation functions apply to the update: not to design documents and local documents.
    #[must_use]
    pub fn is_subject_to_validation(&self) -> bool {
        !self.path.is_empty() && !is_design_id(&self.id)
    }

    /// Records the validation. The leader does not check an update without one.
    pub fn set_validated(&mut self, validated: Validated) {
        self.validated = Some(validated);
    }

    /// Returns true if the update was validated.
    #[must_use]
    pub fn is_validated(&self) -> bool {
        self.validated.is_some()
    }

    /// Returns the expected effect on the document `record`; `None` is a document that does not exist.
    #[must_use]
    pub fn precheck(&self, record: Option<&DocRecord>) -> Precheck {
        match record {
            Some(record) => self.precheck_in(&record.tree),
            None => self.precheck_in(&RevTree::new()),
        }
    }

    fn precheck_in(&self, tree: &impl Revisions<Stored>) -> Precheck {
        let is_accepted = match self.mode {
            EditMode::Replicated => {
                let newest = self.path.first().and_then(|rev| tree.find(rev));
                if newest.is_some_and(|node| tree.node(node).value.is_some()) {
                    return Precheck::Known;
                }
                true
            }
            EditMode::Interactive => acceptance(tree, self.path.get(1), self.deleted) != Acceptance::Conflict,
        };
        if is_accepted { Precheck::New { old: stored_ancestor(tree, &self.path) } } else { Precheck::Conflict }
    }

    pub(super) fn is_stale(&self, tree: &impl Revisions<Stored>, design_seq: u64) -> bool {
        let Some(validated) = &self.validated else {
            return false;
        };
        if validated.design_seq != design_seq {
            return true;
        }
        match &validated.basis {
            ValidationBasis::Unvalidated => false,
            ValidationBasis::Seen(seen) => match self.precheck_in(tree) {
                Precheck::Conflict | Precheck::Known => false,
                new @ Precheck::New { .. } => new != *seen,
            },
        }
    }
}

/// Result of the leaf rule: an interactive edit must name a leaf, be the first one, or follow a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Acceptance {
    /// The edit names no leaf, or a document that does not exist.
    Conflict,
    /// The edit is the first one or extends the leaf that it names.
    Edit,
    /// The edit recreates a document that this revision deleted, and extends this revision.
    Again(Rev),
}

/// Applies the leaf rule to an interactive edit that replaces `parent`. `deleted` must be true for a deletion.
pub(crate) fn acceptance(tree: &impl Revisions<Stored>, parent: Option<&Rev>, deleted: bool) -> Acceptance {
    let is_live = |stored: &Stored| !stored.deleted;
    let Some(parent) = parent else {
        // Only an edit that names no revision can recreate a deleted document.
        if tree.has_leaf(is_live) {
            return Acceptance::Conflict;
        }
        return match tree.winner(|stored| stored.deleted) {
            None => Acceptance::Edit,
            Some(_) if deleted => Acceptance::Conflict,
            Some(winner) => Acceptance::Again(tree.node(winner).rev.clone()),
        };
    };
    let Some(leaf) = named_leaf(tree, parent) else { return Acceptance::Conflict };
    // An edit that names a revision requires a leaf that is not a deletion.
    let is_there = tree.node(leaf).value.as_ref().is_some_and(is_live) || tree.has_leaf(is_live);
    if is_there { Acceptance::Edit } else { Acceptance::Conflict }
}

pub(crate) fn named_leaf(tree: &impl Revisions<Stored>, parent: &Rev) -> Option<u32> {
    tree.find(parent).filter(|node| tree.is_leaf(*node))
}

pub(crate) fn is_design_id(id: &str) -> bool {
    id.starts_with("_design/")
}

fn stored_ancestor(tree: &impl Revisions<Stored>, path: &[Rev]) -> Option<Rev> {
    let is_stored = |rev: &&Rev| tree.find(rev).is_some_and(|node| tree.node(node).value.is_some());
    path.iter().skip(1).find(is_stored).cloned()
}
