//! [`Graph`]: from each vector to those near it (HNSW), made at once of all vectors of a segment. `instant-distance` makes it;
//! it is taken out of that, because its own search knows neither filters nor vectors that lie in a store.

use instant_distance::{Builder, Point};
use serde::{Serialize, Serializer};
use settee_storage::codec::Reader;

use super::Similarity;
use crate::error::Result;

/// How many others a node leads to: `2 * M` of the library.
pub(super) const NEAR: usize = 64;

/// How many of them it leads to in the layers above: `M`.
pub(super) const NEAR_ABOVE: usize = 32;

/// In the place of another node: there is none.
pub(super) const NOBODY: u32 = u32::MAX;

/// How many nodes are looked at for each that is put in. More make a better graph and take longer.
const CANDIDATES: usize = 100;

/// Layers of nodes; a node that is in a layer is in all below.
pub(super) struct Graph {
    /// Which vector each node is of. Those of upper layers come first.
    pub(super) order: Vec<u32>,
    /// [`NEAR`] neighbours of each node, the nearest first.
    pub(super) near: Vec<u32>,
    /// The layers above, the lowest first: [`NEAR_ABOVE`] neighbours of each of their nodes.
    pub(super) above: Vec<Vec<u32>>,
}

/// A vector among others.
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
    /// The graph of vectors of so many dimensions, on all processors. The same vectors make about the same graph.
    pub(super) fn new(similarity: Similarity, dimensions: usize, numbers: &[f32]) -> Result<Self> {
        let vectors = (0..).zip(numbers.chunks_exact(dimensions));
        let places = vectors.map(|(number, numbers)| Place { similarity, numbers, number }).collect();
        // The neighbours are simply the nearest. To choose those that lie in different directions takes the library eight times as
        // long, for a recall that more candidates give as well.
        let builder = Builder::default().seed(0).ef_construction(CANDIDATES).select_heuristic(None);
        let (graph, _) = builder.build_hnsw::<Place<'_>>(places);
        let bytes = postcard::to_allocvec(&graph).map_err(|error| crate::Error::Corrupt(error.to_string()))?;
        drop(graph);
        Self::read(&bytes)
    }

    /// Reads what the library wrote by `serde`: the nodes it looks at, places of vectors, neighbours, those of the layers.
    fn read(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "graph of vectors");
        reader.varint()?;
        let order = list(&mut reader, 1)?;
        let near = list(&mut reader, NEAR)?;
        let above = (0..reader.length()?).map(|_| list(&mut reader, NEAR_ABOVE)).collect::<Result<_>>()?;
        Ok(Self { order, near, above })
    }
}

/// As many numbers for each element of a list.
fn list(reader: &mut Reader<'_>, numbers: usize) -> Result<Vec<u32>> {
    let count = reader.length()?.saturating_mul(numbers);
    let number = |_| Ok(u32::try_from(reader.varint()?).unwrap_or(NOBODY));
    (0..count).map(number).collect()
}
