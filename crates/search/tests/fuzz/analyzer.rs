//! The number of terms of any analyzer is bounded by the text.

use settee_model::json::{Json, Value};
use settee_search::{Dialect, SearchLimits, analyzer_of};

pub(crate) fn check(data: &[u8]) {
    let at = data.iter().position(|byte| *byte == b' ').unwrap_or(data.len());
    let (definition, text) = data.split_at(at);
    let text = String::from_utf8_lossy(text);
    let Ok(definition) = Json::parse(definition) else { return };
    for dialect in [Dialect::Nouveau, Dialect::Clouseau] {
        try_all(dialect, definition.value(), &text);
    }
}

fn try_all(dialect: Dialect, definition: Value<'_>, text: &str) {
    let fields = definition.get("fields").into_iter().flat_map(Value::members).map(|(_, value)| value);
    for value in fields.chain([definition]) {
        if let Ok(analyzer) = analyzer_of(dialect, value) {
            let terms = analyzer.analyze(text, &SearchLimits::none()).expect("there are no limits");
            assert!(terms.len() <= text.chars().count(), "{terms:?}");
        }
    }
}
