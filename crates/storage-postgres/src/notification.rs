//! What processes tell each other by `NOTIFY`: only that there is something new.

/// The channel, of all schemas of a database.
pub(crate) const CHANNEL: &str = "settee_commits";

/// What a notification says: where something is new, and who made it.
pub(crate) fn message(schema: &str, node: i64) -> String {
    format!("{schema} {node}")
}

/// Whether a notification is about commits of another process to the tables in `schema`.
pub(crate) fn is_news(channel: &str, payload: &str, schema: &str, node: i64) -> bool {
    let is_ours = payload.strip_prefix(schema).is_some_and(|rest| rest.starts_with(' '));
    channel == CHANNEL && is_ours && payload != message(schema, node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifications_of_others_are_news() {
        for (channel, payload, wanted) in [
            (CHANNEL, "settee 5", true),
            (CHANNEL, "settee 7", false),
            (CHANNEL, "settee2 5", false),
            (CHANNEL, "", false),
            ("other", "settee 5", false),
        ] {
            assert_eq!(is_news(channel, payload, "settee", 7), wanted, "{channel} {payload}");
        }
    }
}
