//! [`Limits`] of functions. [`Allowance`] counts the emissions of one function for one document.
//! If a key or a value is too long, the document has no rows of this function, as after an exception. An excess of rows
//! or bytes ends the build ([`Excess::ends_build`]). The languages enforce the limits in their workers.

use std::sync::Arc;

/// Limits of a running function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum time for one document or one reduction.
    pub timeout_ms: u64,
    /// Maximum memory of the functions.
    pub memory_bytes: u64,
    /// Maximum number of rows that one function may emit for one document.
    pub rows_per_document: u32,
    /// Maximum total bytes of the keys and values of these rows.
    pub bytes_per_document: u64,
    /// Maximum length of an emitted key, as JSON. An index stores it three times, and copies in inner nodes.
    pub key_bytes: u64,
    /// Maximum length of an emitted value, as JSON: twice the maximum length of a document.
    pub value_bytes: u64,
    /// Maximum length of a reduction, as JSON. Inner nodes contain one per child.
    pub reduction_bytes: u64,
    /// Number of emitted bytes after which a program passes on its rows before it continues with the batch.
    pub bytes_per_part: u64,
    /// Treatment of reductions that do not shrink.
    pub growth: Growth,
}

/// Source of limits that an administrator may change at run time.
#[derive(Clone)]
pub struct LimitsSource(Arc<dyn Fn() -> Limits + Send + Sync>);

impl LimitsSource {
    /// Creates a source that calls `read` for each new program.
    #[must_use]
    pub fn new(read: impl Fn() -> Limits + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// Returns the current limits.
    #[must_use]
    pub fn current(&self) -> Limits {
        (self.0)()
    }
}

impl Default for LimitsSource {
    fn default() -> Self {
        Self::new(Limits::default)
    }
}

impl std::fmt::Debug for LimitsSource {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.current().fmt(formatter)
    }
}

/// Treatment of reductions that are hardly shorter than their input: CouchDB's `reduce_limit`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Growth {
    /// They are replaced by an error.
    #[default]
    Refused,
    /// They are kept and logged.
    Logged,
    /// They are kept.
    Allowed,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            timeout_ms: 5_000,
            memory_bytes: 256 << 20,
            rows_per_document: 1 << 20,
            bytes_per_document: 64 << 20,
            key_bytes: 1 << 20,
            value_bytes: 16 << 20,
            reduction_bytes: 1 << 20,
            bytes_per_part: 4 << 20,
            growth: Growth::default(),
        }
    }
}

/// Returns the text, as in CouchDB, that replaces a reduction that is too long for its input or exceeds the limit.
#[must_use]
pub fn overflow_text(input_bytes: u64, output_bytes: u64) -> Vec<u8> {
    let reason =
        format!("Reduce output must shrink more rapidly: input size: {input_bytes} output size: {output_bytes}");
    format!("{{\"reduce_overflow_error\":\"{reason}\"}}").into_bytes()
}

/// Remaining emissions of one function for one document.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    limits: Limits,
    rows: u32,
    bytes: u64,
}

/// The limit that a function has exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Excess {
    /// A key is too long.
    #[error("limit_exceeded: emitted a key of more than {0} bytes")]
    Key(u64),
    /// A value is too long.
    #[error("limit_exceeded: emitted a value of more than {0} bytes")]
    Value(u64),
    /// Too many rows.
    #[error("limit_exceeded: emitted more than {0} rows")]
    Rows(u32),
    /// Too many bytes in total.
    #[error("limit_exceeded: emitted more than {0} bytes")]
    Bytes(u64),
}

impl Excess {
    /// Returns true if a function that emits without end exceeds this limit. An index without its rows would be wrong.
    #[must_use]
    pub fn ends_build(self) -> bool {
        matches!(self, Self::Rows(_) | Self::Bytes(_))
    }

    /// Text for use after the name of the function and of the document.
    #[must_use]
    pub fn reason(self) -> String {
        self.to_string().trim_start_matches("limit_exceeded: ").to_owned()
    }
}

impl Allowance {
    /// Creates an allowance of all that `limits` permit.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, rows: limits.rows_per_document, bytes: limits.bytes_per_document }
    }

    /// Maximum length of the key of the next row.
    #[must_use]
    pub fn key_room(&self) -> u64 {
        self.limits.key_bytes.min(self.bytes)
    }

    /// Maximum length of the value of the next row after a key of `key_len` bytes.
    #[must_use]
    pub fn value_room(&self, key_len: usize) -> u64 {
        self.limits.value_bytes.min(self.bytes.saturating_sub(key_len as u64))
    }

    /// Deducts a row. Fails, without deducting, if the row is not permitted.
    pub fn take(&mut self, key_len: usize, value_len: usize) -> Result<(), Excess> {
        let Limits { key_bytes, value_bytes, rows_per_document, bytes_per_document, .. } = self.limits;
        let rows = self.rows.checked_sub(1).ok_or(Excess::Rows(rows_per_document))?;
        if key_len as u64 > key_bytes {
            return Err(Excess::Key(key_bytes));
        }
        if value_len as u64 > value_bytes {
            return Err(Excess::Value(value_bytes));
        }
        let bytes = (key_len as u64).saturating_add(value_len as u64);
        self.bytes = self.bytes.checked_sub(bytes).ok_or(Excess::Bytes(bytes_per_document))?;
        self.rows = rows;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_taken_until_one_is_too_much() {
        let limits = Limits {
            rows_per_document: 3,
            bytes_per_document: 100,
            key_bytes: 10,
            value_bytes: 60,
            ..Limits::default()
        };
        let check = |rows: &[(usize, usize)], expected: Result<(), Excess>| {
            let mut allowance = Allowance::new(limits);
            let result = rows.iter().try_for_each(|(key, value)| {
                let fits = *key as u64 <= allowance.key_room() && *value as u64 <= allowance.value_room(*key);
                let taken = allowance.take(*key, *value);
                assert!(taken.is_ok() || !fits || taken == Err(Excess::Rows(3)), "{rows:?}: {taken:?}");
                assert!(taken.is_err() || fits, "{rows:?}");
                taken
            });
            assert_eq!(result, expected, "{rows:?}");
        };
        check(&[(10, 60), (10, 0), (10, 10)], Ok(()));
        check(&[(11, 0)], Err(Excess::Key(10)));
        check(&[(0, 61)], Err(Excess::Value(60)));
        check(&[(0, 0); 4], Err(Excess::Rows(3)));
        check(&[(10, 60), (10, 21)], Err(Excess::Bytes(100)));
        check(&[(usize::MAX, usize::MAX)], Err(Excess::Key(10)));
    }
}
