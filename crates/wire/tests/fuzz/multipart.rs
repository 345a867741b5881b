//! The events of the parser do not depend on how the input is split, and its buffer does not grow with the body.

use settee_wire::multipart::{ContentType, Event, Head, MultipartError, Parser};

pub(crate) fn check(data: &[u8]) {
    let Some((cut, body)) = data.split_first() else { return };
    let whole = parts(body, body.len().max(1));
    let pieces = parts(body, usize::from(*cut).max(1));
    // For a malformed body, the parts before the error may be missing.
    assert_eq!(whole.1, pieces.1, "pieces of {cut} bytes");
    if whole.1.is_ok() {
        assert_eq!(whole.0, pieces.0, "pieces of {cut} bytes");
    }
    let _ = ContentType::parse(&String::from_utf8_lossy(body)).boundary();
}

type Parts = (Vec<(Head, Vec<u8>)>, Result<bool, MultipartError>);

fn parts(body: &[u8], piece: usize) -> Parts {
    let mut parser = Parser::new("b");
    let mut parts: Vec<(Head, Vec<u8>)> = Vec::new();
    let mut ended = false;
    for bytes in body.chunks(piece) {
        parser.feed(bytes);
        match drain(&mut parser, &mut parts) {
            Ok(end) => ended |= end,
            Err(error) => return (parts, Err(error)),
        }
    }
    parser.finish();
    match drain(&mut parser, &mut parts) {
        Ok(end) => (parts, Ok(ended | end)),
        Err(error) => (parts, Err(error)),
    }
}

/// Returns true at the end of the body.
fn drain(parser: &mut Parser, parts: &mut Vec<(Head, Vec<u8>)>) -> Result<bool, MultipartError> {
    while let Some(event) = parser.next()? {
        match event {
            Event::Part(head) => parts.push((head, Vec::new())),
            Event::Data(data) => {
                if let Some((_, all)) = parts.last_mut() {
                    all.extend_from_slice(&data);
                }
            }
            Event::PartEnd => {}
            Event::End => return Ok(true),
        }
    }
    Ok(false)
}
