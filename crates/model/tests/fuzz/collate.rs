//! Collation: encodings have the order of the comparator.

use settee_model::collate::{Collation, compare, encode, encoded_len};
use settee_model::json::Json;

pub(crate) fn check(data: &[u8]) {
    let middle = data.len() / 2;
    let (Ok(a), Ok(b)) = (Json::parse(&data[..middle]), Json::parse(&data[middle..])) else { return };
    for collation in [Collation::Unicode, Collation::Raw] {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        encode(a.value(), collation, &mut left);
        encode(b.value(), collation, &mut right);
        assert_eq!(left.cmp(&right), compare(a.value(), b.value(), collation));
        assert_eq!(encoded_len(&left), left.len());
    }
}
