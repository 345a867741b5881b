//! Invariant: no accepted rule leaves the database, for any request.

use percent_encoding::percent_decode_str;
use settee_design::rewrites::{parse, target};
use settee_model::json::Json;

/// The first line is the JSON text of the rules, the second one a request.
pub(crate) fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Some((rules, path)) = text.split_once('\n') else { return };
    let Ok(json) = Json::parse(rules.as_bytes()) else { return };
    let Ok(rules) = parse(json.value(), true) else { return };
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let query: Vec<(String, String)> = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    for found in rules.iter().filter_map(|rule| rule.apply("GET", &parts, &query)) {
        let target = target("/db/_design/d", &found.path, &found.query);
        let (path, _) = target.split_once('?').unwrap_or((&target, ""));
        let mut parts = path.split('/').filter(|part| !part.is_empty()).map(|part| percent_decode_str(part));
        let first = parts.next().map(|part| part.decode_utf8_lossy().into_owned());
        assert_eq!(first.as_deref(), Some("db"), "{target}");
        assert!(!path.split('/').any(|part| part == ".." || part == "."), "{target}");
    }
}
