//! Members of JSON without escapes, as in responses about data that tests have written.

pub(crate) fn member<'a>(json: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = json.split_once(&format!("\"{name}\":\""))?;
    rest.split_once('"').map(|(value, _)| value)
}

pub(crate) fn number(json: &str, name: &str) -> Option<u64> {
    let (_, rest) = json.split_once(&format!("\"{name}\":"))?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

pub(crate) fn texts<'a>(json: &'a str, name: &str) -> Vec<&'a str> {
    let list = json.split_once(&format!("\"{name}\":[")).and_then(|(_, rest)| rest.split_once(']'));
    let texts = list.map(|(list, _)| list.split(',').map(|text| text.trim_matches('"')));
    texts.into_iter().flatten().filter(|text| !text.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_at_any_depth() {
        let json = r#"{"id":"a","value":{"rev":"1-b","n":12},"ids":["x","y"],"none":[]}"#;
        assert_eq!((member(json, "rev"), member(json, "n"), member(json, "z")), (Some("1-b"), None, None));
        assert_eq!((number(json, "n"), number(json, "rev"), number(json, "z")), (Some(12), None, None));
        assert_eq!((texts(json, "ids"), texts(json, "none"), texts(json, "z")), (vec!["x", "y"], vec![], vec![]));
    }
}
