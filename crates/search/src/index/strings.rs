//! [`Strings`]: a column of strings of a segment. `tantivy` reads all strings of a column when it opens it; this type
//! reads a string on demand, because a search needs only the ids of its hits.

use tantivy::columnar::column_index::open_column_index;
use tantivy::columnar::column_values::load_u64_based_column_values;
use tantivy::columnar::{CURRENT_VERSION, Column, ColumnType, Dictionary};
use tantivy::directory::FileSlice;
use tantivy::{DocId, HasLen, SegmentReader};

use crate::error::{Error, Result};

pub(crate) struct Strings {
    dictionary: Dictionary,
    ords: Column<u64>,
}

impl Strings {
    /// Returns `None` if no document of the segment has the column.
    pub(crate) fn open(segment: &SegmentReader, column: &str) -> Result<Option<Self>> {
        match segment.fast_fields().dynamic_column_handle(column, ColumnType::Str)? {
            None => Ok(None),
            Some(handle) => Self::read(handle.file_slice()).map(Some),
        }
    }

    /// The layout is that of `tantivy_columnar::column::serialize`: dictionary, index of documents, numbers, length of
    /// the index, length of the dictionary.
    fn read(file: &FileSlice) -> Result<Self> {
        let (body, dictionary_bytes) = with_length(file)?;
        let (dictionary, numbers) = split(body, dictionary_bytes)?;
        let (numbers, index_bytes) = with_length(&numbers)?;
        let (index, values) = split(numbers, index_bytes)?;
        let index = open_column_index(index.read_bytes().map_err(Error::from_io)?, CURRENT_VERSION);
        let values = load_u64_based_column_values(values.read_bytes().map_err(Error::from_io)?);
        Ok(Self {
            dictionary: Dictionary::open(dictionary).map_err(Error::from_io)?,
            ords: Column { index: index.map_err(Error::from_io)?, values: values.map_err(Error::from_io)? },
        })
    }

    pub(crate) fn dictionary(&self) -> &Dictionary {
        &self.dictionary
    }

    pub(crate) fn ords(&self) -> &Column<u64> {
        &self.ords
    }

    pub(crate) fn ords_of(&self, doc: DocId) -> impl Iterator<Item = u64> + '_ {
        self.ords.values_for_doc(doc)
    }

    pub(crate) fn text(&self, ord: u64) -> Result<String> {
        let mut bytes = Vec::new();
        self.dictionary.ord_to_term(ord, &mut bytes).map_err(Error::from_io)?;
        String::from_utf8(bytes).map_err(|_| Error::Corrupt("a string of a column".to_owned()))
    }
}

fn with_length(file: &FileSlice) -> Result<(FileSlice, usize)> {
    let short = || Error::Corrupt("a column of strings is too short".to_owned());
    let start = file.len().checked_sub(size_of::<u32>()).ok_or_else(short)?;
    let (body, length) = file.clone().split(start);
    let length = length.read_bytes().map_err(Error::from_io)?;
    let length = length.as_slice().try_into().map_err(|_| short())?;
    Ok((body, u32::from_le_bytes(length) as usize))
}

fn split(file: FileSlice, length: usize) -> Result<(FileSlice, FileSlice)> {
    let fits = length <= file.len();
    if fits { Ok(file.split(length)) } else { Err(Error::Corrupt("the lengths of a column of strings".to_owned())) }
}
