//! Answers of a process to others, as the coordinator.

use std::sync::Arc;

use settee_storage::StorageError;
use settee_storage::members::NodeId;

use super::{Nodes, Role};
use crate::block::block_on;
use crate::protocol::{Answer, Message, Refusal};

impl Nodes {
    /// Answers a message to the coordinator without I/O; `None` for other messages.
    pub(crate) fn answer_at_once(&self, sender: NodeId, message: &Message<'_>) -> Option<Result<Answer, Refusal>> {
        let is_for_all = matches!(message, Message::Ping);
        if is_for_all {
            return Some(Ok(Answer::Id(self.id)));
        }
        let now = self.now();
        let mut state = self.state.lock();
        let is_coordinator_message = matches!(
            message,
            Message::Beat(_)
                | Message::Leave
                | Message::Release(_)
                | Message::AnnounceWait(_)
                | Message::IsGone(_)
                | Message::CatchUp(_)
        );
        if !is_coordinator_message {
            return None;
        }
        let Role::Coordinator { lease, coordinator } = &mut state.role else { return Some(Err(Refusal::NotHere)) };
        if let Err(error) = lease.check() {
            return Some(Err(Refusal::Storage(error)));
        }
        let answer = match message {
            Message::Beat(beat) => {
                if let Some((name, address)) = &beat.announced {
                    coordinator.end_earlier(sender, address);
                    if coordinator.is_name_taken(sender, name) {
                        let error = StorageError::Io(format!("another live node of the store has the name {name}"));
                        return Some(Err(Refusal::Storage(error)));
                    }
                }
                let mut answer = coordinator.heartbeat(now, sender, beat);
                answer.beat = lease.beat();
                self.refresh_view(&mut state);
                drop(state);
                self.news.relay(sender, &beat.commits);
                answer.commits = self.news.since(beat.cursor, sender);
                return Some(Ok(Answer::Beat(Box::new(answer))));
            }
            Message::CatchUp(cursor) => {
                drop(state);
                return Some(Ok(Answer::Commits(self.news.since(*cursor, sender))));
            }
            Message::Leave => {
                coordinator.end(sender);
                Answer::Done
            }
            Message::Release(claim) => {
                coordinator.release(sender, claim);
                Answer::Done
            }
            Message::AnnounceWait(key) => {
                coordinator.announce_wait(now, sender, key);
                Answer::Done
            }
            Message::IsGone(node) => Answer::IsGone(coordinator.is_gone(now, *node)),
            _ => return None,
        };
        self.refresh_view(&mut state);
        Some(Ok(answer))
    }

    /// Grants a claim, as the coordinator. May replace the object of the lease.
    pub(crate) fn grant(&self, sender: NodeId, key: &str) -> Result<Answer, Refusal> {
        let lease = match &self.state.lock().role {
            Role::Coordinator { lease, .. } => Arc::clone(lease),
            _ => return Err(Refusal::NotHere),
        };
        if sender != self.id && self.groups.of_key(key) == Some(0) {
            return Ok(Answer::Claimed(None));
        }
        // A coordinator that finds no other processes in the object of the lease grants claims at once.
        block_on(&self.runtime, self.describe(&lease, sender != self.id)).map_err(Refusal::Storage)?;
        let now = self.now();
        let mut state = self.state.lock();
        let Role::Coordinator { lease, coordinator } = &mut state.role else { return Err(Refusal::NotHere) };
        lease.check().map_err(Refusal::Storage)?;
        let epoch = coordinator.claim(now, sender, key);
        self.refresh_view(&mut state);
        Ok(Answer::Claimed(epoch))
    }
}
