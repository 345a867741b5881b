//! The normal form of an accepted selector is accepted as well, and can be applied to documents.

use settee_mango::{FindOptions, Selector};
use settee_model::json::Json;

const DOCUMENTS: [&str; 3] = [
    r#"{"_id":"a","a":1,"b":{"c":[{"k":1},{"k":"xx"}]},"l":[[1,2],3]}"#,
    r#"{"_id":"b","a":"x","m":{"b":1},"n":[1,2,3],"l":{"0":[[7]]}}"#,
    "{}",
];

pub(crate) fn check(data: &[u8]) {
    let Ok(json) = Json::parse(data) else { return };
    let _ = FindOptions::parse(json.value());
    let Ok(selector) = Selector::parse(json.value()) else { return };
    for document in DOCUMENTS {
        let document = Json::parse(document.as_bytes()).expect("a document");
        let _ = selector.matches(document.value());
    }
    let body = [b"{\"selector\":".as_slice(), data, b"}"].concat();
    let body = Json::parse(&body).expect("a selector within an object");
    let _ = FindOptions::parse(body.value());
}
