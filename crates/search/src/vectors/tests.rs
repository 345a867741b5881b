//! Distances, files that are read back, and graph search compared with exhaustive search.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use settee_model::testing::Random;
use tantivy::directory::{FileSlice, OwnedBytes};

use super::file::VectorSet;
use super::nearest::{Found, Wanted};
use super::*;
use crate::limits::SearchLimits;

fn field(similarity: Similarity, dimensions: usize) -> VectorField {
    VectorField { name: "v".to_owned(), dimensions, similarity }
}

fn number(random: &mut Random) -> f32 {
    random.below(20_001_u32) as f32 / 10_000.0 - 1.0
}

fn vector(random: &mut Random, dimensions: usize) -> Vec<f32> {
    (0..dimensions).map(|_| number(random)).collect()
}

fn file(field: &VectorField, vectors: &[Vec<f32>]) -> VectorFile {
    let mut set = VectorSet::default();
    for (doc, vector) in (0..).zip(vectors) {
        set.push(doc + doc / 2, vector);
    }
    let mut bytes = Vec::new();
    set.write(field, &mut bytes).unwrap();
    VectorFile::open(&FileSlice::new(Arc::new(OwnedBytes::new(bytes)))).unwrap()
}

#[test]
fn distances_and_scores_are_those_of_the_books() {
    let mut random = Random::new();
    for dimensions in [1, 3, 15, 16, 17, 384] {
        let [one, other] = [vector(&mut random, dimensions), vector(&mut random, dimensions)];
        let computed = |of: fn(f64, f64) -> f64| -> f64 {
            one.iter().zip(&other).map(|(one, other)| of(f64::from(*one), f64::from(*other))).sum()
        };
        let product = computed(|one, other| one * other);
        let square = computed(|one, other| (one - other).powi(2));
        let lengths = (computed(|one, _| one * one) * computed(|_, other| other * other)).sqrt();
        let dot = if product < 0.0 { 1.0 / (1.0 - product) } else { 1.0 + product };
        for (similarity, score) in [
            (Similarity::Cosine, f64::midpoint(1.0, product / lengths)),
            (Similarity::Dot, dot),
            (Similarity::L2, 1.0 / (1.0 + square)),
        ] {
            let field = field(similarity, dimensions);
            let [one, other] = [&one, &other].map(|vector| field.prepare(vector.clone()).unwrap());
            let distance = similarity.distance(&one, &other);
            let stored: Vec<u8> = other.iter().flat_map(|number| number.to_le_bytes()).collect();
            assert_eq!(similarity.distance_to_stored(&one, &stored).to_bits(), distance.to_bits());
            let difference = (f64::from(similarity.score(distance)) - score).abs();
            assert!(difference < 1e-4, "{similarity:?} {dimensions} {difference}");
        }
    }
}

#[test]
fn incomparable_values_are_rejected() {
    let check = |similarity, vector: &[f32], expected: &str| {
        let error = field(similarity, 3).prepare(vector.to_vec()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    check(Similarity::L2, &[1.0, 2.0], "field v has 2 dimensions, not 3");
    check(Similarity::Dot, &[1.0, f32::INFINITY, 0.0], "field v has a number that is too large");
    check(Similarity::Cosine, &[0.0; 3], "field v has no direction, because all of its numbers are zero");
    assert_eq!(field(Similarity::L2, 3).prepare(vec![0.0; 3]).unwrap(), [0.0; 3]);
}

#[test]
fn files_come_back_and_broken_ones_are_noticed() {
    let mut random = Random::new();
    for count in [0, 1, 20, 400] {
        let field = field(Similarity::L2, 5);
        let vectors: Vec<_> = (0..count).map(|_| vector(&mut random, 5)).collect();
        let file = file(&field, &vectors);
        assert_eq!((file.len(), file.has_graph()), (count, count >= 60));
        for longest in [0, usize::MAX] {
            let mut found = Vec::new();
            file.nodes(longest).unwrap().for_each(|doc, vector| found.push((doc, vector.to_vec()))).unwrap();
            let docs = (0..).map(|doc: u32| doc + doc / 2);
            assert_eq!(found, docs.zip(vectors.iter().cloned()).collect::<Vec<_>>());
        }
    }
    let mut set = VectorSet::default();
    set.push(0, &[1.0, 2.0]);
    let mut bytes = Vec::new();
    set.write(&field(Similarity::Dot, 2), &mut bytes).unwrap();
    let open = |bytes: &[u8]| VectorFile::open(&FileSlice::new(Arc::new(OwnedBytes::new(bytes.to_vec()))));
    assert!(open(&bytes).is_ok());
    (0..bytes.len()).for_each(|length| assert!(open(&bytes[..length]).is_err(), "{length}"));
    for word in [0, 1, 2, 3, 4] {
        let mut broken = bytes.clone();
        broken[4 * word + 3] = 0x7f;
        assert!(open(&broken).is_err(), "{word}");
    }
}

#[test]
fn a_graph_search_finds_the_results_of_a_full_scan() {
    const DIMENSIONS: usize = 8;
    let mut random = Random::new();
    for similarity in Similarity::ALL {
        let field = field(similarity, DIMENSIONS);
        let prepared = |random: &mut Random| field.prepare(vector(random, DIMENSIONS)).unwrap();
        let vectors: Vec<_> = (0..3_000).map(|_| prepared(&mut random)).collect();
        let file = file(&field, &vectors);
        let nodes = file.nodes(usize::MAX).unwrap();
        for every in [1, 2, 7, 500] {
            let (mut right, mut all) = (0, 0);
            for _ in 0..30 {
                let wanted = prepared(&mut random);
                let is_allowed = |doc: u32| doc.is_multiple_of(every);
                let docs = (0..).map(|doc: u32| doc + doc / 2);
                let mut expected: Vec<_> = docs
                    .zip(&vectors)
                    .filter(|(doc, _)| is_allowed(*doc))
                    .map(|(doc, vector)| (similarity.distance(&wanted, vector), doc))
                    .collect();
                expected.sort_by(|(one, _), (other, _)| one.total_cmp(other));
                let search = Wanted { similarity, vector: &wanted, count: 10, candidates: 40 };
                let found = search.find(&nodes, expected.len(), is_allowed, &SearchLimits::none()).unwrap();
                expected.truncate(10);
                assert_eq!(found.len(), expected.len());
                assert!(found.is_sorted_by(|one, other| one.distance <= other.distance));
                assert!(found.iter().all(|found| is_allowed(found.doc)));
                all += expected.len();
                let is_right = |(distance, doc): &(f32, u32)| {
                    found.iter().any(|Found { distance: at, doc: other }| at == distance && other == doc)
                };
                right += expected.iter().filter(|expected| is_right(expected)).count();
            }
            assert!(right * 100 >= all * 95, "{similarity:?}, every {every}: {right} of {all}");
            assert!(every < 500 || right == all, "{similarity:?}: {right} of {all}");
        }
    }
}
