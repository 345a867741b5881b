//! Frames: requests that one node forwards to another in one message, and their responses ([`Frame`]). Each frame is
//! complete; frames follow each other without padding.
//!
//! A frame consists of three start texts, headers and a body, like an HTTP request or response. This module does not
//! interpret them. Numbers are four bytes, big-endian:
//!
//! ```text
//! bytes of the rest of the frame, of each text of the start, of the headers
//! the texts; for each header the bytes of its name and of its value, name, value; the body
//! ```

use bytes::{Buf, Bytes, BytesMut};

/// The bytes of a number.
const NUMBER: usize = 4;

/// Bytes of the numbers after the first one.
const NUMBERS: usize = 4 * NUMBER;

/// Initial capacity for headers; most frames have no more.
const HEADERS: usize = 8;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// The start texts, for example method and target.
    pub start: [Bytes; 3],
    pub headers: Vec<(Bytes, Bytes)>,
    pub body: Bytes,
}

/// Error: the bytes are not frames, or a frame is longer than the reader accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the text is not a sequence of frames")]
pub struct NoFrame;

/// Appends a frame without its body. The caller appends `body_bytes` bytes of body next.
///
/// # Errors
/// If the frame would exceed 4 GB. `out` is then unchanged.
pub fn write_head<'a>(
    out: &mut Vec<u8>,
    start: [&[u8]; 3],
    headers: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    body_bytes: usize,
) -> Result<(), NoFrame> {
    let begin = out.len();
    out.resize(begin + NUMBER + NUMBERS, 0);
    start.iter().for_each(|text| out.extend_from_slice(text));
    let of_headers = out.len();
    for (name, value) in headers {
        for text in [name, value] {
            // A text that is too long makes the frame too long; that is detected below.
            out.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
        }
        out.extend_from_slice(name);
        out.extend_from_slice(value);
    }
    let rest = out.len() - begin - NUMBER + body_bytes;
    let [first, second, third] = start.map(<[u8]>::len);
    for (place, number) in [rest, first, second, third, out.len() - of_headers].into_iter().enumerate() {
        let Ok(number) = u32::try_from(number) else {
            out.truncate(begin);
            return Err(NoFrame);
        };
        out[begin + place * NUMBER..][..NUMBER].copy_from_slice(&number.to_be_bytes());
    }
    Ok(())
}

/// Incremental reader of frames; the input may be split at any byte.
#[derive(Debug)]
pub struct Reader {
    bytes: BytesMut,
    bytes_max: usize,
}

impl Reader {
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes: BytesMut::new(), bytes_max }
    }

    /// Adds input. The buffer stays within `bytes_max` if the caller never adds more than the remaining capacity and
    /// takes all frames after each call.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next complete frame, or `None` if more input is needed.
    ///
    /// # Errors
    /// If the input is not a sequence of frames. The reader cannot be used after that.
    pub fn frame(&mut self) -> Result<Option<Frame>, NoFrame> {
        let Some(first) = self.bytes.first_chunk() else { return Ok(None) };
        let length = u32::from_be_bytes(*first) as usize;
        if length < NUMBERS || length > self.bytes_max {
            return Err(NoFrame);
        }
        if self.bytes.len() < NUMBER + length {
            return Ok(None);
        }
        self.bytes.advance(NUMBER);
        read(self.bytes.split_to(length).freeze()).map(Some).ok_or(NoFrame)
    }

    /// Returns true if no input is left in the buffer.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

fn read(mut rest: Bytes) -> Option<Frame> {
    let mut numbers = [0; 4];
    for number in &mut numbers {
        *number = take_number(&mut rest)?;
    }
    let [first, second, third, of_headers] = numbers;
    let start = [take(&mut rest, first)?, take(&mut rest, second)?, take(&mut rest, third)?];
    let mut lines = take(&mut rest, of_headers)?;
    let mut headers = Vec::with_capacity(HEADERS);
    while !lines.is_empty() {
        let (name, value) = (take_number(&mut lines)?, take_number(&mut lines)?);
        headers.push((take(&mut lines, name)?, take(&mut lines, value)?));
    }
    Some(Frame { start, headers, body: rest })
}

fn take_number(rest: &mut Bytes) -> Option<usize> {
    rest.try_get_u32().ok().map(|number| number as usize)
}

fn take(rest: &mut Bytes, bytes: usize) -> Option<Bytes> {
    (bytes <= rest.len()).then(|| rest.split_to(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(frame: &Frame) -> Vec<u8> {
        let mut out = b"before".to_vec();
        let start = frame.start.each_ref().map(AsRef::as_ref);
        let headers = frame.headers.iter().map(|(name, value)| (name.as_ref(), value.as_ref()));
        assert_eq!(write_head(&mut out, start, headers, frame.body.len()), Ok(()));
        out.extend_from_slice(&frame.body);
        out.split_off(b"before".len())
    }

    fn frame(start: [&'static str; 3], headers: &[(&'static str, &'static str)], body: &'static str) -> Frame {
        let headers = headers.iter().map(|(name, value)| (Bytes::from(*name), Bytes::from(*value))).collect();
        Frame { start: start.map(Bytes::from), headers, body: Bytes::from(body) }
    }

    #[test]
    fn bytes_of_a_frame() {
        let found = written(&frame(["PUT", "", "/d"], &[("a", "bc")], "{}"));
        let expected: &[u8] = b"\0\0\0\x22\0\0\0\x03\0\0\0\0\0\0\0\x02\0\0\0\x0bPUT/d\0\0\0\x01\0\0\0\x02abc{}";
        assert_eq!(found, expected);
    }

    #[test]
    fn frames_in_any_pieces() {
        let frames = [
            frame(["PUT", "/db/a", "http 127.0.0.1"], &[("host", "a"), ("", ""), ("host", "a")], "{}"),
            Frame::default(),
            frame(["", "", "0"], &[], "body"),
        ];
        let bytes: Vec<u8> = frames.iter().flat_map(written).collect();
        for piece in 1..=bytes.len() {
            let mut reader = Reader::new(100);
            let mut found = Vec::new();
            for piece in bytes.chunks(piece) {
                assert_eq!(reader.frame(), Ok(None), "all were taken");
                reader.feed(piece);
                while let Some(frame) = reader.frame().unwrap_or_else(|error| panic!("{error} in pieces of {piece:?}"))
                {
                    found.push(frame);
                }
            }
            assert_eq!(found, frames);
            assert!(reader.is_empty());
        }
    }

    #[test]
    fn invalid_frames() {
        let whole = written(&frame(["PUT", "/db", ""], &[("a", "b")], "{}"));
        // Every length field in turn: none may exceed the part that it describes.
        for place in [4, 8, 12, 16, 26, 30] {
            let mut wrong = whole.clone();
            wrong[place + 2] = 1;
            let mut reader = Reader::new(1000);
            reader.feed(&wrong);
            assert_eq!(reader.frame(), Err(NoFrame), "at {place}");
        }
        let mut too_long = Reader::new(whole.len() - NUMBER - 1);
        // The length is rejected before the body arrives.
        too_long.feed(&whole[..NUMBER]);
        assert_eq!(too_long.frame(), Err(NoFrame));
        let mut too_short = Reader::new(1000);
        too_short.feed(&[0, 0, 0, 15]);
        assert_eq!(too_short.frame(), Err(NoFrame));
    }
}
