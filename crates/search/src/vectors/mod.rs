//! Vectors: [`VectorField`] defines those of a field, [`VectorFile`] stores them, [`nearest`] searches.

mod file;
mod graph;
pub(crate) mod nearest;

pub(crate) use file::{VectorFile, VectorSet};

use crate::error::{Error, Result};

/// Twice that of the largest current embeddings.
pub const MAX_DIMENSIONS: usize = 8_192;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VectorField {
    pub name: String,
    pub dimensions: usize,
    pub similarity: Similarity,
}

/// Scores are those of Lucene: higher is nearer, and none is negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Similarity {
    /// Angle: `(1 + cos) / 2`.
    Cosine,
    /// Dot product `p`, which favours long vectors: `1 + p`, or `1 / (1 - p)` if it is negative.
    Dot,
    /// Euclidean distance `d`: `1 / (1 + d²)`.
    L2,
}

impl Similarity {
    pub const ALL: [Self; 3] = [Self::Cosine, Self::Dot, Self::L2];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cosine => "cosine",
            Self::Dot => "dot",
            Self::L2 => "l2",
        }
    }

    /// Distance of prepared vectors: less is nearer, and it may be negative.
    pub(crate) fn distance(self, one: &[f32], other: &[f32]) -> f32 {
        self.distance_of(one, other, |number| number)
    }

    /// The stored numbers have four bytes, little-endian.
    pub(crate) fn distance_to_stored(self, one: &[f32], stored: &[u8]) -> f32 {
        self.distance_of(one, stored.as_chunks::<4>().0, f32::from_le_bytes)
    }

    fn distance_of<T: Copy>(self, one: &[f32], other: &[T], number: impl Fn(T) -> f32) -> f32 {
        match self {
            Self::Cosine | Self::Dot => -sum(one, other, number, |one, other| one * other),
            Self::L2 => sum(one, other, number, |one, other| (one - other) * (one - other)),
        }
    }

    pub(crate) fn score(self, distance: f32) -> f32 {
        match self {
            Self::Cosine => f32::midpoint(1.0, -distance).max(0.0),
            Self::Dot if distance > 0.0 => 1.0 / (1.0 + distance),
            Self::Dot => 1.0 - distance,
            Self::L2 => 1.0 / (1.0 + distance),
        }
    }
}

impl VectorField {
    /// Normalizes a vector for angles to length one. Returns [`Error::BadField`] if it cannot be compared.
    pub(crate) fn prepare(&self, mut vector: Vec<f32>) -> Result<Vec<f32>> {
        let refuse = |reason: String| Err(Error::BadField(format!("field {} {reason}", self.name)));
        if vector.len() != self.dimensions {
            return refuse(format!("has {} dimensions, not {}", vector.len(), self.dimensions));
        }
        let square: f64 = vector.iter().map(|number| f64::from(*number).powi(2)).sum();
        if !square.is_finite() || vector.iter().any(|number| !number.is_finite()) {
            return refuse("has a number that is too large".to_owned());
        }
        if self.similarity == Similarity::Cosine {
            let length = square.sqrt();
            if length == 0.0 {
                return refuse("has no direction, because all of its numbers are zero".to_owned());
            }
            #[expect(clippy::cast_possible_truncation, reason = "stored with single precision")]
            vector.iter_mut().for_each(|number| *number = (f64::from(*number) / length) as f32);
        }
        Ok(vector)
    }
}

/// Several independent sums permit vector instructions.
#[inline]
fn sum<T: Copy>(one: &[f32], other: &[T], number: impl Fn(T) -> f32, of: impl Fn(f32, f32) -> f32) -> f32 {
    const LANES: usize = 16;
    let (ones, one_rest) = one.as_chunks::<LANES>();
    let (others, other_rest) = other.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for (one, other) in ones.iter().zip(others) {
        for lane in 0..LANES {
            sums[lane] += of(one[lane], number(other[lane]));
        }
    }
    let rest: f32 = one_rest.iter().zip(other_rest).map(|(one, other)| of(*one, number(*other))).sum();
    rest + sums.iter().sum::<f32>()
}

#[cfg(test)]
mod tests;
