//! Limits of selectors.

/// Maximum nesting of conditions. Documents may be nested more deeply.
pub const MAX_DEPTH: usize = 200;

/// Members of `$in` and similar operators are not counted, because they are cheap.
pub const MAX_CONDITIONS: usize = 20_000;

/// A compiled regular expression may take a megabyte.
pub const MAX_EXPRESSIONS: usize = 200;

/// In total. For nested names, each condition counts its whole path.
pub const MAX_NAME_BYTES: usize = 2 << 20;
