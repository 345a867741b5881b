//! Statistics, times and proxies in responses and documents, in CouchDB's terms.

use settee_model::calendar::Day;
use settee_model::json::{ObjectWriter, append_object};

use crate::endpoint::Endpoint;
use crate::session::progress::Statistics;

/// Appends the statistics as an object.
pub(crate) fn write_statistics(out: &mut Vec<u8>, statistics: &Statistics) {
    append_object(out, |object| write_counters(object, statistics));
}

pub(crate) fn write_counters(object: &mut ObjectWriter<'_>, statistics: &Statistics) {
    let Statistics { revisions_checked, missing_revisions_found, docs_read, docs_written, .. } = *statistics;
    object.value("revisions_checked", revisions_checked);
    object.value("missing_revisions_found", missing_revisions_found);
    object.value("docs_read", docs_read);
    object.value("docs_written", docs_written);
    object.value_or_null("changes_pending", statistics.changes_pending);
    object.value("doc_write_failures", statistics.doc_write_failures);
    object.value("bulk_get_docs", statistics.bulk_get_docs);
    object.value("bulk_get_attempts", statistics.bulk_get_attempts);
    let sequences = [
        ("checkpointed_source_seq", &statistics.checkpointed_source_seq),
        ("source_seq", &statistics.source_seq),
        ("through_seq", &statistics.through_seq),
    ];
    for (name, seq) in sequences {
        object.json(name, seq.as_ref().map_or(b"0", |seq| seq.as_bytes()));
    }
}

pub(crate) fn proxy(endpoint: &Endpoint) -> Option<String> {
    let Endpoint::Remote(remote) = endpoint else { return None };
    let proxy = remote.proxy.as_deref()?;
    let (scheme, rest) = proxy.split_once("://")?;
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    Some(format!("{scheme}://{host}"))
}

/// Format: `2026-11-20T14:30:00Z`.
pub(crate) fn iso8601(at_ms: u64) -> String {
    let (days, second) = (at_ms / 86_400_000, at_ms / 1000 % 86_400);
    let Day { year, month, day, .. } = Day::since_1970(days.cast_signed());
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399_999, "2000-02-28T23:59:59Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (951_868_800_000, "2000-03-01T00:00:00Z"),
            (1_795_184_999_000, "2026-11-20T14:29:59Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
        ];
        for (at_ms, expected) in cases {
            assert_eq!(iso8601(at_ms), expected, "{at_ms}");
        }
    }
}
