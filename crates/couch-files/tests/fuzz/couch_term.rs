//! A decoded term is traversable, and its text is JSON.

use settee_couch_files::term::{Kind, Tape, Term};
use settee_couch_files::write_json;
use settee_model::json::Json;

pub(crate) fn check(data: &[u8]) {
    let Ok(tape) = Tape::decode(data.to_vec()) else { return };
    let mut values = 0;
    let mut open = vec![tape.root()];
    while let Some(term) = open.pop() {
        values += 1;
        match term.kind() {
            Kind::Tuple(elements) | Kind::List(elements) => {
                let found: Vec<Term<'_>> = elements.collect();
                assert_eq!(found.len(), elements.len());
                open.extend(found);
            }
            _ => {}
        }
    }
    assert!(values <= data.len());
    let mut text = Vec::new();
    if write_json(&mut text, tape.root()).is_ok() {
        assert!(Json::parse(&text).is_ok(), "{}", String::from_utf8_lossy(&text));
    }
}
