//! Validated updates: what functions of design documents looked at before an update came to the queue
//! ([`Validated`]), and whether the leader still finds it so.
//!
//! The functions themselves run elsewhere, before the queue, so that no user code holds up other writers. The
//! leader compares: the newest change of a design document, and the revision that the functions saw as the old
//! one. If either has changed, the outcome is [`UpdateOutcome::Stale`](super::UpdateOutcome::Stale), and the
//! caller validates again.

use settee_model::Rev;
use settee_model::rev_tree::{RevTree, Revisions};

use super::{DocUpdate, EditMode};
use crate::record::{DocRecord, Stored};

/// The basis of a validation: what an update was validated against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validated {
    /// The newest change of a design document that was seen, see [`ReadView::design_seq`](crate::ReadView::design_seq).
    pub design_seq: u64,
    /// The document as it was.
    pub basis: ValidationBasis,
}

/// The document that a validation was based on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValidationBasis {
    /// None was read: there is no function that validates.
    Nobody,
    /// The one that functions saw or would have seen.
    Seen(Precheck),
}

/// The check of an update before it is queued: what it will do to a document as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Precheck {
    /// Nothing: it does not name a leaf.
    Conflict,
    /// Nothing: the revision is there.
    Known,
    /// Add a revision.
    New {
        /// The newest ancestor that is stored, which functions get as the old document.
        old: Option<Rev>,
    },
}

/// Updates are the same if they bring the same revision to the same document.
impl PartialEq for DocUpdate {
    fn eq(&self, other: &Self) -> bool {
        (&self.id, &self.path, self.deleted, self.mode) == (&other.id, &other.path, other.deleted, other.mode)
    }
}

impl Eq for DocUpdate {}

impl DocUpdate {
    /// Whether design documents may have a say in it. They have none in other design documents and in local ones.
    #[must_use]
    pub fn is_subject_to_validation(&self) -> bool {
        !self.path.is_empty() && !is_design_id(&self.id)
    }

    /// Records that the update was validated. One that never was is committed without a question: its author
    /// answers for it.
    pub fn set_validated(&mut self, validated: Validated) {
        self.validated = Some(validated);
    }

    /// Whether it was validated.
    #[must_use]
    pub fn is_validated(&self) -> bool {
        self.validated.is_some()
    }

    /// The effect that the update will have on the document `record`; `None` if there is no document.
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

    /// Whether the validation holds for a document with these revisions when the newest change of a design document is
    /// `design_seq`.
    pub(super) fn is_stale(&self, tree: &impl Revisions<Stored>, design_seq: u64) -> bool {
        let Some(validated) = &self.validated else {
            return false;
        };
        if validated.design_seq != design_seq {
            return true;
        }
        match &validated.basis {
            ValidationBasis::Nobody => false,
            ValidationBasis::Seen(seen) => match self.precheck_in(tree) {
                // Nothing is added, so there was nothing to validate.
                Precheck::Conflict | Precheck::Known => false,
                new @ Precheck::New { .. } => new != *seen,
            },
        }
    }
}

/// The leaf rule: an interactive edit must name a leaf, or be the first, or follow a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Acceptance {
    /// It names no leaf, or a document that is not there.
    Conflict,
    /// It is the first one, or extends the leaf that it names.
    Edit,
    /// It makes a document again that was deleted by this revision, and extends that.
    Again(Rev),
}

/// Whether an interactive edit is taken that replaces `parent`, or names no revision. `deleted`: it is a deletion.
pub(crate) fn acceptance(tree: &impl Revisions<Stored>, parent: Option<&Rev>, deleted: bool) -> Acceptance {
    let is_live = |stored: &Stored| !stored.deleted;
    let Some(parent) = parent else {
        // Only an edit that names no revision makes a deleted document again.
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
    // Who names a revision has seen a document, which is not there any more if all leaves are deletions.
    let is_there = tree.node(leaf).value.as_ref().is_some_and(is_live) || tree.has_leaf(is_live);
    if is_there { Acceptance::Edit } else { Acceptance::Conflict }
}

/// The leaf that an interactive edit replaces, which it has to name.
pub(crate) fn named_leaf(tree: &impl Revisions<Stored>, parent: &Rev) -> Option<u32> {
    tree.find(parent).filter(|node| tree.is_leaf(*node))
}

/// Whether this is the id of a design document.
pub(crate) fn is_design_id(id: &str) -> bool {
    id.starts_with("_design/")
}

fn stored_ancestor(tree: &impl Revisions<Stored>, path: &[Rev]) -> Option<Rev> {
    let is_stored = |rev: &&Rev| tree.find(rev).is_some_and(|node| tree.node(node).value.is_some());
    path.iter().skip(1).find(is_stored).cloned()
}
