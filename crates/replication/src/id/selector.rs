//! The one form of a selector that enters into ids.

use settee_model::json::Json;

/// The selector in its normal form, with sorted members.
pub(super) fn normal(selector: &Json) -> Json {
    selector.clone()
}
