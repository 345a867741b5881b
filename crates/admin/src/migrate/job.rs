//! [`Job`]: a database of the source, and its name in the target.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(super) name: String,
    pub(super) to: String,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ordinary,
    /// `_users`: the target keeps its own security object and design document.
    Users,
    /// Documents of a `_replicator` database are copied to a database that no scheduler reads.
    Replicator,
}

const PAUSED: &str = "replicator_paused";

impl Job {
    /// `None` for an internal database of the source.
    pub(super) fn of(name: &str) -> Option<Self> {
        let (to, kind) = match name {
            "_users" => (name.to_owned(), Kind::Users),
            "_replicator" => (PAUSED.to_owned(), Kind::Replicator),
            _ if name.starts_with('_') => return None,
            _ => match name.strip_suffix("/_replicator") {
                Some(prefix) => (format!("{prefix}/{PAUSED}"), Kind::Replicator),
                None => (name.to_owned(), Kind::Ordinary),
            },
        };
        Some(Self { name: name.to_owned(), to, kind })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn names_of_databases() {
        let check = |name: &str, to: &str, kind: Kind| {
            assert_eq!(Job::of(name).unwrap(), Job { name: name.to_owned(), to: to.to_owned(), kind });
        };
        check("a", "a", Kind::Ordinary);
        check("a/_users", "a/_users", Kind::Ordinary);
        check("_users", "_users", Kind::Users);
        check("_replicator", "replicator_paused", Kind::Replicator);
        check("a/b/_replicator", "a/b/replicator_paused", Kind::Replicator);
        for own in ["_global_changes", "_dbs", "_nodes", "_metadata"] {
            assert_eq!(Job::of(own), None, "{own}");
        }
    }
}
