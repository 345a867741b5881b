//! [`VectorSet`]: vectors of a segment in memory; [`VectorFile`]: their stored form. All numbers are little-endian with
//! four bytes: format, dimensions, number of nodes, neighbours per node (0 without a graph), number of upper layers,
//! the length of each; the document of each node; the neighbours of each upper layer from the lowest on; for each node
//! its vector and its neighbours.

use std::io::{self, Write};
use std::sync::Arc;

use tantivy::directory::{FileSlice, OwnedBytes};
use tantivy::{DocId, HasLen as _};

use super::graph::{Graph, NEIGHBOURS, UPPER_NEIGHBOURS};
use super::{MAX_DIMENSIONS, VectorField};
use crate::error::{Error, Result};

const FORMAT: u32 = 1;

/// Below this number of vectors an exhaustive search is faster than reading a graph.
const GRAPH_VECTORS_MIN: usize = if cfg!(test) { 60 } else { 4_000 };

const HEADER: usize = 5;

#[derive(Default)]
pub(crate) struct VectorSet {
    docs: Vec<DocId>,
    numbers: Vec<f32>,
}

impl VectorSet {
    pub(crate) fn push(&mut self, doc: DocId, vector: &[f32]) {
        self.docs.push(doc);
        self.numbers.extend_from_slice(vector);
    }

    pub(crate) fn size_bytes(&self) -> usize {
        4 * (self.docs.len() + self.numbers.len())
    }

    pub(crate) fn write(self, field: &VectorField, out: &mut impl Write) -> Result<()> {
        let graph = match self.docs.len() >= GRAPH_VECTORS_MIN {
            true => Some(Graph::new(field.similarity, field.dimensions, &self.numbers)?),
            false => None,
        };
        self.write_all(field.dimensions, graph.as_ref(), out).map_err(Error::from_io)
    }

    fn write_all(&self, dimensions: usize, graph: Option<&Graph>, out: &mut impl Write) -> io::Result<()> {
        let mut words = |words: &[u32]| words.iter().try_for_each(|word| out.write_all(&word.to_le_bytes()));
        let small = |number: usize| u32::try_from(number).map_err(io::Error::other);
        let above = graph.map_or(&[][..], |graph| &graph.above);
        let near = if graph.is_some() { NEIGHBOURS } else { 0 };
        words(&[FORMAT, small(dimensions)?, small(self.docs.len())?, small(near)?, small(above.len())?])?;
        for layer in above {
            words(&[small(layer.len() / UPPER_NEIGHBOURS)?])?;
        }
        let vector_of = |node: usize| graph.map_or(node, |graph| graph.order[node] as usize);
        for node in 0..self.docs.len() {
            words(&[self.docs[vector_of(node)]])?;
        }
        above.iter().try_for_each(|layer| words(layer))?;
        for node in 0..self.docs.len() {
            let start = vector_of(node) * dimensions;
            let bits = self.numbers[start..start + dimensions].iter().map(|number| number.to_bits());
            words(&bits.collect::<Vec<_>>())?;
            words(graph.map_or(&[], |graph| &graph.near[node * near..(node + 1) * near]))?;
        }
        Ok(())
    }
}

pub(crate) struct VectorFile {
    dimensions: usize,
    near: usize,
    pub(super) docs: Vec<DocId>,
    pub(super) above: Vec<Vec<u32>>,
    nodes: FileSlice,
}

pub(super) struct Node {
    bytes: OwnedBytes,
    vector_bytes: usize,
}

impl Node {
    pub(super) fn vector(&self) -> &[u8] {
        &self.bytes[..self.vector_bytes]
    }

    /// Unused entries are [`NO_NEIGHBOUR`](super::graph::NO_NEIGHBOUR).
    pub(super) fn near(&self) -> impl Iterator<Item = u32> {
        words(&self.bytes[self.vector_bytes..])
    }
}

impl VectorFile {
    pub(crate) fn open(file: &FileSlice) -> Result<Self> {
        let read = |from: usize, count: usize| -> Result<Vec<u32>> {
            let end = count.checked_mul(4).and_then(|bytes| from.checked_add(bytes)).filter(|end| *end <= file.len());
            let end = end.ok_or_else(|| Error::Corrupt("a file of vectors is too short".to_owned()))?;
            Ok(words(&file.read_bytes_slice(from..end).map_err(Error::from_io)?).collect())
        };
        let header = read(0, HEADER)?;
        let &[format, dimensions, count, near, layers] = &header[..] else {
            return Err(Error::Corrupt("the header of vectors".to_owned()));
        };
        let [dimensions, count, near] = [dimensions, count, near].map(|number| number as usize);
        if format != FORMAT || dimensions > MAX_DIMENSIONS || near > NEIGHBOURS || layers > 32 {
            return Err(Error::Corrupt("the header of vectors".to_owned()));
        }
        let mut at = 4 * HEADER;
        let mut next = |count: usize| {
            let words = read(at, count);
            at += 4 * count;
            words
        };
        let lengths = next(layers as usize)?;
        let docs = next(count)?;
        let above = lengths.iter().map(|length| next(*length as usize * UPPER_NEIGHBOURS)).collect::<Result<_>>()?;
        let nodes = file.slice_from(at);
        if nodes.len() != 4 * count * (dimensions + near) {
            return Err(Error::Corrupt("the length of vectors".to_owned()));
        }
        Ok(Self { dimensions, near, docs, above, nodes })
    }

    pub(crate) fn bytes_of_one(dimensions: usize) -> usize {
        4 * (dimensions + NEIGHBOURS + 3)
    }

    pub(crate) fn len(&self) -> usize {
        self.docs.len()
    }

    pub(crate) fn has_graph(&self) -> bool {
        self.near > 0
    }

    /// A file of at most `longest` bytes is read as a whole.
    pub(crate) fn nodes(&self, longest: usize) -> Result<Nodes<'_>> {
        let mut nodes = self.nodes.clone();
        if nodes.len() <= longest {
            nodes = FileSlice::new(Arc::new(nodes.read_bytes().map_err(Error::from_io)?));
        }
        Ok(Nodes { file: self, nodes })
    }
}

pub(crate) struct Nodes<'a> {
    pub(super) file: &'a VectorFile,
    nodes: FileSlice,
}

impl Nodes<'_> {
    pub(super) fn get(&self, node: u32) -> Result<Node> {
        let VectorFile { dimensions, near, docs, .. } = self.file;
        let (vector_bytes, bytes) = (4 * dimensions, 4 * (dimensions + near));
        let start = node as usize * bytes;
        if node as usize >= docs.len() {
            return Err(Error::Corrupt("an invalid neighbour".to_owned()));
        }
        let bytes = self.nodes.read_bytes_slice(start..start + bytes).map_err(Error::from_io)?;
        Ok(Node { bytes, vector_bytes })
    }

    pub(crate) fn for_each(&self, mut take: impl FnMut(DocId, &[f32])) -> Result<()> {
        let docs = &self.file.docs;
        let mut nodes: Vec<u32> = (0..).take(docs.len()).collect();
        nodes.sort_unstable_by_key(|node| docs[*node as usize]);
        let mut vector = Vec::with_capacity(self.file.dimensions);
        for node in nodes {
            vector.clear();
            vector.extend(words(self.get(node)?.vector()).map(f32::from_bits));
            take(docs[node as usize], &vector);
        }
        Ok(())
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes))
}
