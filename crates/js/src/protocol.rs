//! Protocol between the server and its worker processes: fixed-size [`Frame`]s on a socket, everything else as flat
//! bytes in shared memory. The server trusts no output of the worker: [`Reader`] validates every length, and callers
//! validate every number.

use std::io::{self, Read, Write};

use settee_design::SearchKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    /// Number of documents or groups of a request; in a response, 1 if more of it follows after [`Kind::Next`].
    pub(crate) count: u64,
    pub(crate) len: u64,
    pub(crate) region: u64,
}

/// Number of the type of search index for which functions are compiled; 0 for views.
pub(crate) fn search_number(search: Option<SearchKind>) -> u32 {
    search.map_or(0, |kind| if kind == SearchKind::Nouveau { 1 } else { 2 })
}

/// Requests are less than 20, responses are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    CompileMap = 1,
    CompileReduce = 2,
    Map = 3,
    Reduce = 4,
    Rereduce = 5,
    Next = 6,
    Reset = 7,
    SelfTest = 8,
    LoadDesign = 9,
    Call = 10,
    Filter = 11,
    List = 12,
    /// The next rows of the running list function; `count` is 1 if they are the last.
    Rows = 13,
    Done = 20,
    /// The source does not compile; the text is the reason.
    Refused = 21,
    /// A function stopped the request, see [`Stop`].
    Stopped = 22,
    Threw = 23,
    /// The start of a response by a list function (its length and bytes, possibly none) and its chunks; the function
    /// waits for rows, unless more of the response follows.
    Chunks = 24,
    Log = 25,
}

impl Kind {
    fn from_number(number: u32) -> Option<Kind> {
        const ALL: [Kind; 19] = [
            Kind::CompileMap,
            Kind::CompileReduce,
            Kind::Map,
            Kind::Reduce,
            Kind::Rereduce,
            Kind::Next,
            Kind::Reset,
            Kind::SelfTest,
            Kind::LoadDesign,
            Kind::Call,
            Kind::Filter,
            Kind::List,
            Kind::Rows,
            Kind::Done,
            Kind::Refused,
            Kind::Stopped,
            Kind::Threw,
            Kind::Chunks,
            Kind::Log,
        ];
        ALL.into_iter().find(|kind| *kind as u32 == number)
    }
}

impl Frame {
    pub(crate) const BYTES: usize = 32;

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&(self.kind as u32).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.count.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.len.to_le_bytes());
        bytes[24..].copy_from_slice(&self.region.to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let kind = Kind::from_number(u32::from_le_bytes(bytes[..4].try_into().expect("4 bytes")))?;
        Some(Self { kind, count: number(8), len: number(16), region: number(24) })
    }

    pub(crate) fn write_to(self, mut socket: impl Write) -> io::Result<()> {
        socket.write_all(&self.to_bytes())
    }

    /// Returns `None` if the other side has disconnected.
    pub(crate) fn read_from(mut socket: impl Read) -> io::Result<Option<Self>> {
        let mut bytes = [0; Self::BYTES];
        match socket.read_exact(&mut bytes) {
            Ok(()) => {
                Self::from_bytes(&bytes).map(Some).ok_or_else(|| io::Error::other("a control message is garbled"))
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Progress of the worker, packed in the shared counter: it changes with every call of a function, and identifies the
/// running one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) document: u32,
    pub(crate) function: u16,
}

impl Progress {
    pub(crate) fn pack(self, request_number: u16) -> u64 {
        u64::from(request_number) << 48 | u64::from(self.document) << 16 | u64::from(self.function)
    }

    pub(crate) fn unpack(counter: u64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "picks fields out of a packed number")]
        Self { document: (counter >> 16) as u32, function: counter as u16 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Stop {
    /// A function requested it, with its own name and reason.
    Requested = 1,
    Timeout = 2,
    /// The engine aborted, for example for lack of memory or because of deep recursion; the reason is its message.
    Engine = 3,
    /// A limit on rows or bytes was exceeded; the reason names it.
    Limit = 4,
}

impl Stop {
    pub(crate) fn from_number(number: u32) -> Option<Stop> {
        [Stop::Requested, Stop::Timeout, Stop::Engine, Stop::Limit].into_iter().find(|stop| *stop as u32 == number)
    }
}

/// Head of a record in the response to [`Kind::Map`]; its bytes follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) kind: RecordKind,
    pub(crate) function: u16,
    pub(crate) document: u32,
    pub(crate) first: u32,
    pub(crate) second: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum RecordKind {
    Row = 1,
    Failure = 2,
    Log = 3,
}

impl Record {
    pub(crate) const BYTES: usize = 16;

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..2].copy_from_slice(&(self.kind as u16).to_le_bytes());
        bytes[2..4].copy_from_slice(&self.function.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.document.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.first.to_le_bytes());
        bytes[12..].copy_from_slice(&self.second.to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let short = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let long = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let kind = match short(0)? {
            1 => RecordKind::Row,
            2 => RecordKind::Failure,
            3 => RecordKind::Log,
            _ => return None,
        };
        Some(Self { kind, function: short(2)?, document: long(4)?, first: long(8)?, second: long(12)? })
    }

    pub(crate) fn body_len(self) -> usize {
        self.first as usize + self.second as usize
    }
}

pub(crate) struct Writer<'a>(pub(crate) &'a mut Vec<u8>);

impl Writer<'_> {
    pub(crate) fn u32(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.u64(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }
}

/// Methods return `None` if the buffer is too short.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.u64()?).ok()?;
        self.take(len)
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use settee_model::testing::Random;

    use super::*;

    #[test]
    fn frames_and_records_survive_the_trip() {
        let frame = Frame { kind: Kind::Stopped, count: 3, len: u64::MAX, region: 1 << 40 };
        assert_eq!(Frame::from_bytes(&frame.to_bytes()), Some(frame));
        let mut garbled = frame.to_bytes();
        garbled[0] = 99;
        assert_eq!(Frame::from_bytes(&garbled), None);
        let record = Record { kind: RecordKind::Log, function: 65_535, document: 7, first: u32::MAX, second: 9 };
        assert_eq!(Record::from_bytes(&record.to_bytes()), Some(record));
        assert_eq!(Record::from_bytes(&record.to_bytes()[..15]), None);
        let progress = Progress { document: u32::MAX - 1, function: 300 };
        assert_eq!(Progress::unpack(progress.pack(0xffff)), progress);
    }

    #[test]
    fn frames_of_any_bytes() {
        let mut random = Random::new();
        let mut known = 0;
        for _ in 0..20_000 {
            let mut bytes = [0; Frame::BYTES];
            bytes.iter_mut().for_each(|byte| *byte = random.next() as u8);
            if !random.one_in(8) {
                bytes[..4].copy_from_slice(&random.below(30_u32).to_le_bytes());
            }
            let number = u32::from_le_bytes(bytes[..4].try_into().unwrap());
            let frame = Frame::from_bytes(&bytes);
            assert_eq!(frame.is_some(), matches!(number, 1..=13 | 20..=25), "{number}");
            let Some(frame) = frame else { continue };
            known += 1;
            assert_eq!(frame.kind as u32, number);
            let again = frame.to_bytes();
            assert_eq!((&again[..4], &again[8..]), (&bytes[..4], &bytes[8..]));
            assert_eq!(Frame::from_bytes(&again), Some(frame));
        }
        assert!(known > 5_000);
    }

    #[test]
    fn frames_of_a_stream_that_ends_anywhere() {
        struct Pieces<'a>(&'a [u8], usize);

        impl Read for Pieces<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let most = self.1.min(buffer.len());
                self.0.read(&mut buffer[..most])
            }
        }

        let frames: Vec<Frame> = [Kind::Map, Kind::Done, Kind::Log, Kind::Reset]
            .into_iter()
            .zip(1..)
            .map(|(kind, number)| Frame { kind, count: number, len: number << 40, region: u64::MAX - number })
            .collect();
        let mut stream = Vec::new();
        frames.iter().for_each(|frame| frame.write_to(&mut stream).unwrap());
        for end in 0..=stream.len() {
            for piece in [1, 5, Frame::BYTES, 1000] {
                let mut socket = Pieces(&stream[..end], piece);
                let mut read = Vec::new();
                while let Some(frame) = Frame::read_from(&mut socket).unwrap() {
                    read.push(frame);
                }
                assert_eq!(read, frames[..end / Frame::BYTES], "{end} bytes in pieces of {piece}");
            }
        }
        stream[Frame::BYTES] = 0xff;
        let mut socket = &stream[..];
        assert!(Frame::read_from(&mut socket).unwrap().is_some());
        assert_eq!(Frame::read_from(&mut socket).unwrap_err().to_string(), "a control message is garbled");
    }

    #[test]
    fn places_of_any_request() {
        let mut random = Random::new();
        for _ in 0..10_000 {
            let progress = Progress { document: random.next() as u32, function: random.next() as u16 };
            let request_number = random.next() as u16;
            let packed = progress.pack(request_number);
            assert_eq!(Progress::unpack(packed), progress);
            assert_ne!(progress.pack(request_number.wrapping_add(1)), packed);
        }
    }

    #[test]
    fn buffers_that_lie_anywhere() {
        let mut random = Random::new();
        for _ in 0..3_000 {
            let parts: Vec<Vec<u8>> = (0..random.below(6_u64)).map(|_| random.bytes(20)).collect();
            let mut buffer = Vec::new();
            let mut writer = Writer(&mut buffer);
            for part in &parts {
                writer.u32(part.len() as u32);
                writer.bytes(part);
            }
            let read = |bytes: &[u8]| -> (Vec<Vec<u8>>, usize) {
                let mut reader = Reader(bytes);
                let mut found = Vec::new();
                while let (Some(_), Some(part)) = (reader.u32(), reader.bytes()) {
                    found.push(part.to_vec());
                }
                (found, reader.0.len())
            };
            assert_eq!(read(&buffer), (parts.clone(), 0));
            for end in 0..buffer.len() {
                let (found, left) = read(&buffer[..end]);
                assert_eq!(found[..], parts[..found.len()]);
                assert!(left <= end);
            }
            if !buffer.is_empty() {
                let at = random.below(buffer.len());
                buffer[at] ^= 1 << random.below(8_u32);
                let (found, _) = read(&buffer);
                assert!(found.iter().map(Vec::len).sum::<usize>() <= buffer.len());
            }
        }
    }

    #[test]
    fn records_of_any_bytes() {
        let mut random = Random::new();
        for _ in 0..20_000 {
            let mut bytes = random.bytes(Record::BYTES + 4);
            if let [low, high, ..] = &mut bytes[..] {
                (*low, *high) = (random.below(6_u64) as u8, u8::from(random.one_in(9)));
            }
            let record = Record::from_bytes(&bytes);
            let is_known = bytes.len() >= Record::BYTES && matches!(bytes[..2], [1..=3, 0]);
            assert_eq!(record.is_some(), is_known, "{bytes:?}");
            if let Some(record) = record {
                assert_eq!(record.to_bytes()[..], bytes[..Record::BYTES]);
                assert_eq!(record.body_len() as u64, u64::from(record.first) + u64::from(record.second));
            }
        }
    }

    #[test]
    fn readers_notice_lengths_that_lie() {
        let mut buffer = Vec::new();
        let mut writer = Writer(&mut buffer);
        writer.u32(5);
        writer.bytes(b"text");
        let mut reader = Reader(&buffer);
        assert_eq!(reader.u32(), Some(5));
        assert_eq!(reader.text(), Some("text"));
        assert_eq!(reader.u32(), None);
        buffer[4] = 0xff;
        let mut reader = Reader(&buffer);
        reader.u32().unwrap();
        assert_eq!(reader.bytes(), None);
    }
}
