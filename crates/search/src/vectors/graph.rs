//! [`Graph`]: a graph of near vectors (HNSW) of a segment. `instant-distance` builds it; the graph is extracted,
//! because the library's search supports neither filters nor stored vectors.

use instant_distance::{Builder, Point};
use serde::{Serialize, Serializer};
use settee_storage::codec::Reader;

use super::Similarity;
use crate::error::Result;

/// Number of neighbours of a node: `2 * M` of the library.
pub(super) const NEIGHBOURS: usize = 64;

/// Number of neighbours in the upper layers: `M`.
pub(super) const UPPER_NEIGHBOURS: usize = 32;

pub(super) const NO_NEIGHBOUR: u32 = u32::MAX;

/// Number of candidates per inserted node. More improve the graph and take longer.
const CANDIDATES: usize = 100;

/// Nodes of a layer are also in all lower ones.
pub(super) struct Graph {
    /// Index of the vector of each node. Nodes of upper layers come first.
    pub(super) order: Vec<u32>,
    pub(super) near: Vec<u32>,
    pub(super) above: Vec<Vec<u32>>,
}

#[derive(Clone)]
struct Place<'a> {
    similarity: Similarity,
    numbers: &'a [f32],
    number: u32,
}

impl Point for Place<'_> {
    fn distance(&self, other: &Self) -> f32 {
        self.similarity.distance(self.numbers, other.numbers)
    }
}

impl Serialize for Place<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.number)
    }
}

impl Graph {
    /// Uses all processors. The result is nearly deterministic.
    pub(super) fn new(similarity: Similarity, dimensions: usize, numbers: &[f32]) -> Result<Self> {
        let vectors = (0..).zip(numbers.chunks_exact(dimensions));
        let places = vectors.map(|(number, numbers)| Place { similarity, numbers, number }).collect();
        // The heuristic takes the library eight times as long, for a recall that more candidates achieve as well.
        let builder = Builder::default().seed(0).ef_construction(CANDIDATES).select_heuristic(None);
        let (graph, _) = builder.build_hnsw::<Place<'_>>(places);
        let bytes = postcard::to_allocvec(&graph).map_err(|error| crate::Error::Corrupt(error.to_string()))?;
        drop(graph);
        Self::read(&bytes)
    }

    /// The input is the library's `serde` output.
    fn read(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "graph of vectors");
        reader.varint()?;
        let order = list(&mut reader, 1)?;
        let near = list(&mut reader, NEIGHBOURS)?;
        let above = (0..reader.length()?).map(|_| list(&mut reader, UPPER_NEIGHBOURS)).collect::<Result<_>>()?;
        Ok(Self { order, near, above })
    }
}

fn list(reader: &mut Reader<'_>, numbers: usize) -> Result<Vec<u32>> {
    let count = reader.length()?.saturating_mul(numbers);
    let number = |_| Ok(u32::try_from(reader.varint()?).unwrap_or(NO_NEIGHBOUR));
    (0..count).map(number).collect()
}
