//! [`body`]: request body for `_bulk_get`.

use settee_model::json::write_string;

pub(crate) fn body<'a>(wanted: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    let mut body = b"{\"docs\":[".to_vec();
    for (index, (id, rev)) in wanted.enumerate() {
        body.extend_from_slice(if index > 0 { b",{\"id\":" } else { b"{\"id\":" });
        write_string(&mut body, id);
        body.extend_from_slice(b",\"rev\":");
        write_string(&mut body, rev);
        body.push(b'}');
    }
    body.extend_from_slice(b"]}");
    body
}
