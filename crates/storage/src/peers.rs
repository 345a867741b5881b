//! [`PeerService`]: the part of an engine that answers the other processes of its store, for engines whose data is
//! served by one process per group of shards. The server carries the messages.

/// Answers messages of the other processes of a store.
pub trait PeerService: Send + Sync {
    /// Returns the secret that the processes of the store share. A message that is not authenticated with it must not
    /// be passed to [`Self::answer`].
    fn secret(&self) -> &[u8];

    /// Answers a message that needs no I/O: it must not wait for a thread, because other processes wait for it. `None` for
    /// other messages.
    fn answer_at_once(&self, message: &[u8]) -> Option<Vec<u8>>;

    /// Answers any message. May block the calling thread.
    fn answer(&self, message: &[u8]) -> Vec<u8>;
}
