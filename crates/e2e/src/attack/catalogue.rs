//! The catalogue of hostile input: [`all`] attacks by class. The attackers are unauthenticated clients; an
//! authorized user has made the databases public. Most entries are data: the set-up by an administrator, the hostile
//! requests, and the required responses ([`super::entry::HostileRequest`]). An entry that needs more has a function
//! ([`Attack::act`]). Every attack must preserve three guarantees: the server stays alive, the second client is served
//! within its bound, and the memory is released.

mod batches;
mod connections;
mod functions;
mod memory;
mod scans;
mod searches;

use super::entry::Attack;

const CLASSES: &[&[Attack]] = &[connections::ALL, memory::ALL, batches::ALL, functions::ALL, scans::ALL, searches::ALL];

pub(super) fn all() -> impl Iterator<Item = &'static Attack> {
    CLASSES.iter().copied().flatten()
}
