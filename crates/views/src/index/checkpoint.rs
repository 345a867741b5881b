//! [`Checkpoint`]: stored progress of a load whose rows are not in the trees of the index yet.

use settee_storage::codec::{Reader, put_len, put_varint};

use crate::error::Result;

/// Incremented when the layout of runs changes; checkpoints of other formats are ignored.
const FORMAT: u64 = 1;

/// Refers to sorted runs on disk that bring an index from the update sequence `since` to `update_seq`. Stored in the
/// engine, so a restored database has the checkpoints of its own state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub(crate) since: u64,
    pub(crate) update_seq: u64,
    pub(crate) purge_seq: u64,
    pub(crate) rows: Vec<RunFile>,
    pub(crate) entries: Vec<RunFile>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunFile {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    pub(crate) checksum: u32,
}

impl Checkpoint {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        [FORMAT, self.since, self.update_seq, self.purge_seq].into_iter().for_each(|n| put_varint(&mut out, n));
        for runs in [&self.rows, &self.entries] {
            put_len(&mut out, runs.len());
            for run in runs {
                [run.number, run.bytes, run.checksum.into()].into_iter().for_each(|n| put_varint(&mut out, n));
            }
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Self>> {
        let mut reader = Reader::new(bytes, "checkpoint");
        if reader.varint()? != FORMAT {
            return Ok(None);
        }
        let (since, update_seq, purge_seq) = (reader.varint()?, reader.varint()?, reader.varint()?);
        let mut runs = || (0..reader.length()?).map(|_| decode_run(&mut reader)).collect::<Result<Vec<_>>>();
        let (rows, entries) = (runs()?, runs()?);
        Ok(Some(Self { since, update_seq, purge_seq, rows, entries }))
    }

    pub(crate) fn runs(&self) -> impl Iterator<Item = &RunFile> {
        self.rows.iter().chain(&self.entries)
    }
}

fn decode_run(reader: &mut Reader<'_>) -> Result<RunFile> {
    let (number, bytes, checksum) = (reader.varint()?, reader.varint()?, reader.varint()?);
    // The default matches no file.
    Ok(RunFile { number, bytes, checksum: u32::try_from(checksum).unwrap_or_default() })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_come_back() {
        let run = |number| RunFile { number, bytes: number << 40, checksum: u32::MAX - 1 };
        let checkpoint = Checkpoint {
            since: 7,
            update_seq: 1 << 33,
            purge_seq: 3,
            rows: vec![run(0), run(5)],
            entries: vec![run(1), run(2), run(900)],
        };
        let mut bytes = checkpoint.encode();
        assert_eq!(checkpoint.runs().map(|run| run.number).collect::<Vec<_>>(), [0, 5, 1, 2, 900]);
        for len in 0..bytes.len() {
            assert!(Checkpoint::decode(&bytes[..len]).is_err());
        }
        assert_eq!(Checkpoint::decode(&bytes).unwrap(), Some(checkpoint));
        bytes[0] += 1;
        assert_eq!(Checkpoint::decode(&bytes).unwrap(), None);
    }
}
