//! The check of a write: a member needs access under the old and under the new list.

use settee_model::rev_tree::Revisions;

use super::{AccessList, Member, Reader};
use crate::Result;
use crate::record::Stored;
use crate::update::validation::is_design_id;
use crate::update::{DocUpdate, EditMode, UpdateOutcome};

/// List of a new revision.
pub(crate) enum NewList {
    /// The revision contains it.
    Own(AccessList),
    /// A deletion without `_access` keeps the list of the revision that it replaces, so that its readers see it.
    Kept(u32),
}

impl NewList {
    /// A malformed list names administrators only: clients' updates with one are refused before they are queued.
    pub(crate) fn of(update: &DocUpdate, tree: &impl Revisions<Stored>) -> Self {
        match AccessList::of_body(update.body()).unwrap_or(Some(AccessList::default())) {
            Some(list) => Self::Own(list),
            None if update.is_deletion() => Self::Kept(replaced(update, tree).map_or(0, |stored| stored.access)),
            None => Self::Own(AccessList::default()),
        }
    }
}

/// Returns the outcome with which an update must be refused, or `None`. `grants` returns true if the list of this
/// number names the member. An edit that names a revision of an invisible document conflicts, as if the document did
/// not exist.
pub(crate) fn refusal(
    update: &DocUpdate,
    tree: &impl Revisions<Stored>,
    mut grants: impl FnMut(&Member, u32) -> Result<bool>,
) -> Result<Option<UpdateOutcome>> {
    let Reader::Member(member) = update.reader() else { return Ok(None) };
    if member.name().is_none() || is_design_id(update.id()) {
        return Ok(Some(UpdateOutcome::Forbidden));
    }
    if update.path().is_empty() {
        return Ok(None);
    }
    let new = NewList::of(update, tree);
    if matches!(&new, NewList::Own(list) if !member.is_granted_by(list)) {
        return Ok(Some(UpdateOutcome::Forbidden));
    }
    let names_parent = update.mode == EditMode::Interactive && update.path().len() > 1;
    let refused = if names_parent { UpdateOutcome::Conflict } else { UpdateOutcome::Forbidden };
    let winner = winner(tree);
    if winner.is_none() && matches!(new, NewList::Kept(_)) {
        return Ok(Some(refused));
    }
    for stored in [winner, replaced(update, tree)].into_iter().flatten() {
        if !grants(member, stored.access)? {
            return Ok(Some(refused));
        }
    }
    match new {
        NewList::Kept(number) if !grants(member, number)? => Ok(Some(refused)),
        NewList::Kept(_) | NewList::Own(_) => Ok(None),
    }
}

fn winner(tree: &impl Revisions<Stored>) -> Option<Stored> {
    tree.winner(|stored| stored.deleted).and_then(|winner| tree.node(winner).value)
}

/// Returns the nearest stored ancestor of the new revision. An edit that names none can only replace a deletion.
fn replaced(update: &DocUpdate, tree: &impl Revisions<Stored>) -> Option<Stored> {
    let ancestors = || update.path().iter().skip(1);
    let found = ancestors().find_map(|rev| tree.node(tree.find(rev)?).value);
    if update.mode == EditMode::Interactive && ancestors().next().is_none() { winner(tree) } else { found }
}
