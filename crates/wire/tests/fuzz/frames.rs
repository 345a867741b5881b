//! The reader of frames: its result does not depend on how the input is split, and written frames are read back
//! unchanged.

use settee_wire::frames::{Frame, NoFrame, Reader, write_head};

const BYTES_MAX: usize = 1000;

pub(crate) fn check(data: &[u8]) {
    let Some((cut, bytes)) = data.split_first() else { return };
    let whole = frames(bytes, bytes.len().max(1));
    let pieces = frames(bytes, usize::from(*cut).max(1));
    assert_eq!(whole, pieces, "pieces of {cut} bytes");
    let mut again = Vec::new();
    for frame in &whole.0 {
        let start = frame.start.each_ref().map(AsRef::as_ref);
        let headers = frame.headers.iter().map(|(name, value)| (name.as_ref(), value.as_ref()));
        assert_eq!(write_head(&mut again, start, headers, frame.body.len()), Ok(()));
        again.extend_from_slice(&frame.body);
    }
    assert!(bytes.starts_with(&again), "{:?}", whole.0);
}

/// Returns all frames and the end of the input or the error.
fn frames(bytes: &[u8], piece: usize) -> (Vec<Frame>, Result<bool, NoFrame>) {
    let mut reader = Reader::new(BYTES_MAX);
    let mut frames = Vec::new();
    for piece in bytes.chunks(piece) {
        reader.feed(piece);
        loop {
            match reader.frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Err(error)),
            }
        }
    }
    (frames, Ok(reader.is_empty()))
}
