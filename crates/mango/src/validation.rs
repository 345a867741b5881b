//! [`Validation`]: `validate_doc_update` in the language `query`. As on CouchDB's main branch, the function is a
//! selector that is applied to an object of the new document, `newDoc`, and the previous one, `oldDoc`, which is null
//! for a new document.

use settee_design::{
    CallError, CompileError, DesignProgram, DesignSource, DocumentBatch, ListSession, ListSink, RunError,
};
use settee_model::json::Value;

use crate::error::Refusal;
use crate::index::LANGUAGE;
use crate::selector::Selector;

const NOT_VALID: &str = "document is not valid";

pub(crate) struct Validation {
    source: DesignSource,
    selector: Option<Selector>,
}

impl Validation {
    pub(crate) fn new(source: &DesignSource) -> Self {
        Self { source: source.clone(), selector: None }
    }

    fn selector(&mut self) -> Result<&Selector, CallError> {
        let selector = match self.selector.take() {
            Some(selector) => selector,
            None => {
                let value = Value::trusted(&self.source.json).get("validate_doc_update").unwrap_or(Value::NULL);
                compile(value).map_err(|refusal| CallError::Failed {
                    name: "compilation_error".to_owned(),
                    reason: refusal.to_string(),
                })?
            }
        };
        Ok(self.selector.insert(selector))
    }
}

fn compile(value: Value<'_>) -> Result<Selector, Refusal> {
    let selector = Selector::parse(value)?;
    if selector.node().has_text() { Err(Refusal::NoTextIndex) } else { Ok(selector) }
}

pub(crate) fn check(value: Value<'_>) -> Result<(), CompileError> {
    compile(value).map(|_| ()).map_err(|refusal| CompileError::Source(refusal.to_string()))
}

fn absent(path: &[&str]) -> CallError {
    RunError::Machinery(format!("the language {LANGUAGE} has no function {}", path.join("."))).into()
}

impl DesignProgram for Validation {
    fn call(&mut self, path: &[&str], arguments: &[&[u8]]) -> Result<Vec<u8>, CallError> {
        let (["validate_doc_update"], [new, old, ..]) = (path, arguments) else {
            return Err(absent(path));
        };
        let both = [b"{\"newDoc\":".as_slice(), new, b",\"oldDoc\":", old, b"}"].concat();
        match self.selector()?.matches(Value::trusted(&both)) {
            true => Ok(b"1".to_vec()),
            false => Err(CallError::Forbidden(NOT_VALID.into())),
        }
    }

    fn filter(&mut self, path: &[&str], _: &DocumentBatch, _: Option<&[u8]>) -> Result<Vec<bool>, CallError> {
        Err(absent(path))
    }

    fn list<'a>(
        &'a mut self,
        name: &str,
        _: &[u8],
        _: &[u8],
        _: &mut dyn ListSink,
    ) -> Result<Box<dyn ListSession + 'a>, CallError> {
        Err(absent(&["lists", name]))
    }

    fn take_log(&mut self) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use settee_design::{Language, Limits};
    use settee_model::json::Json;

    use super::*;
    use crate::MangoLanguage;

    fn program(selector: &str) -> Box<dyn DesignProgram> {
        let json = format!(r#"{{"_id":"_design/d","language":"query","validate_doc_update":{selector}}}"#);
        let source = DesignSource {
            database: 1,
            id: "_design/d".into(),
            rev: "1-a".into(),
            json: Json::parse(json.as_bytes()).unwrap().as_bytes().into(),
        };
        MangoLanguage.design_program(&source, Limits::default()).unwrap()
    }

    fn check_update(selector: &str, new: &str, old: &str, expected: Result<(), &str>) {
        let arguments: [&[u8]; 4] = [new.as_bytes(), old.as_bytes(), b"{}", b"{}"];
        let result = program(selector).call(&["validate_doc_update"], &arguments);
        let shown = result.map(|answer| assert_eq!(answer, b"1")).map_err(|error| error.to_string());
        assert_eq!(shown, expected.map_err(str::to_owned), "{selector} of {new} and {old}");
    }

    #[test]
    fn updates_match_or_are_forbidden() {
        let refused = Err(NOT_VALID);
        let typed = r#"{"newDoc":{"type":{"$type":"string"},"year":{"$lt":2026}}}"#;
        check_update(typed, r#"{"type":"movie","year":1994}"#, "null", Ok(()));
        check_update(typed, r#"{"type":42,"year":1994}"#, "null", refused);
        check_update(typed, r#"{"type":"movie"}"#, r#"{"type":"movie","year":1}"#, refused);
        let once = r#"{"$or":[{"oldDoc":null},{"oldDoc.state":"open"}]}"#;
        check_update(once, "{}", "null", Ok(()));
        check_update(once, "{}", r#"{"state":"open"}"#, Ok(()));
        check_update(once, "{}", r#"{"state":"closed"}"#, refused);
        check_update("{}", "{}", "null", Ok(()));
        check_update(r#"{"newDoc._deleted":{"$exists":false}}"#, r#"{"_id":"a","_deleted":true}"#, "{}", refused);
    }

    #[test]
    fn invalid_selectors_are_rejected() {
        let check_refusal = |selector: &str, reason: &str| {
            let value = Json::parse(selector.as_bytes()).unwrap();
            let refusal = MangoLanguage.check_validation(value.value()).unwrap_err();
            assert_eq!(refusal, CompileError::Source(reason.to_owned()), "{selector}");
            check_update(selector, "{}", "null", Err(&format!("compilation_error: {reason}")));
        };
        check_refusal("1", "Selector must be a JSON object, not: 1");
        check_refusal(r#"{"newDoc":{"$nosuch":1}}"#, "Invalid operator: $nosuch");
        check_refusal(r#"{"$text":"x"}"#, "The operator $text needs a text index, and there is none.");
        assert_eq!(MangoLanguage.check_validation(Json::parse(b"{}").unwrap().value()), Ok(()));
    }

    #[test]
    fn there_are_no_other_functions() {
        let error = program("{}").call(&["shows", "a"], &[b"{}", b"{}"]).unwrap_err();
        assert_eq!(error.to_string(), "the language query has no function shows.a");
        assert!(program("{}").filter(&["filters", "a"], &DocumentBatch::default(), None).is_err());
    }
}
