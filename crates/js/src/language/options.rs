//! [`Evaluator`] and [`ReduceLimit`]: the options of the language.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Evaluator {
    #[default]
    Native,
    Workers,
}

/// Limit on reductions that grow too fast: CouchDB's `reduce_limit`, `reduce_limit_threshold` and `reduce_limit_ratio`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReduceLimit {
    Off,
    /// A reduction is too long if it exceeds `threshold_bytes`, and `ratio` times its length exceeds the length of its
    /// input.
    On {
        threshold_bytes: u64,
        ratio: f64,
    },
}

impl Default for ReduceLimit {
    fn default() -> Self {
        Self::On { threshold_bytes: 5000, ratio: 2.0 }
    }
}
