//! Vectors in addition to texts in an index: changes, merges, filters and queries.

use std::collections::{BTreeMap, BTreeSet};

use settee_model::testing::Random;

use super::*;
use crate::query::Nearest;
use crate::{Query, Similarity, VectorField};

fn with_vectors(similarity: Similarity) -> Definition {
    let vectors = vec![VectorField { name: "v".to_owned(), dimensions: 2, similarity }];
    Definition { vectors, ..definition("standard", &[("tag", "keyword")]) }
}

fn nearest(to: &[f32], count: usize) -> Nearest {
    Nearest { field: "v".to_owned(), vector: to.to_vec(), count, candidates: 100, filter: None }
}

fn ids_of(index: &Index, query: Query) -> String {
    ids(&index.search(&Request::new(query), &SearchLimits::none()).unwrap())
}

fn line() -> Index {
    let index = new_index(with_vectors(Similarity::L2));
    let point = |x: f32, word: &str| vec![vector("v", &[x, 0.0]), text("default", word), string("tag", word)];
    write(
        &index,
        &[
            ("p:a", point(0.0, "red")),
            ("p:b", point(1.0, "green")),
            ("q:c", point(2.0, "red")),
            ("q:d", point(3.0, "green")),
            ("q:e", vec![text("default", "red")]),
        ],
    );
    index
}

#[test]
fn near_ones_come_first_and_say_how_near() {
    let index = line();
    let answer = index.search(&Request::new(Query::Nearest(nearest(&[2.2, 0.0], 3))), &SearchLimits::none()).unwrap();
    assert_eq!((ids(&answer), answer.total_hits), ("q:c q:d p:b".to_owned(), 3));
    let scores: Vec<_> = answer.hits.iter().map(|hit| hit.order[0].clone()).collect();
    let expected = [0.2_f32, 0.8, 1.2].map(|distance| 1.0 / (1.0 + distance * distance));
    for (score, expected) in scores.iter().zip(expected) {
        assert!(matches!(score, crate::OrderValue::Score(score) if (score - expected).abs() < 1e-6), "{score:?}");
    }
}

#[test]
fn they_are_filtered_before_they_are_counted() {
    let index = line();
    let filter = Some(Box::new(Query::term("tag", "green")));
    assert_eq!(ids_of(&index, Query::Nearest(Nearest { filter, ..nearest(&[0.0, 0.0], 1) })), "p:b");
    let request = Request { partition: Some("q".to_owned()), ..Request::new(Query::Nearest(nearest(&[0.0, 0.0], 1))) };
    assert_eq!(ids(&index.search(&request, &SearchLimits::none()).unwrap()), "q:c");
    let counted = Request { counts: vec!["tag".to_owned()], ..Request::new(Query::Nearest(nearest(&[0.0, 0.0], 3))) };
    let counts = index.search(&counted, &SearchLimits::none()).unwrap().counts;
    assert_eq!(counts, [("tag".to_owned(), vec![("red".to_owned(), 2), ("green".to_owned(), 1)])]);
}

#[test]
fn they_add_to_the_relevance_of_texts() {
    let index = line();
    let both = |boost| {
        let near = Query::Boost(Box::new(Query::Nearest(nearest(&[3.0, 0.0], 2))), boost);
        Query::any_of(vec![Query::term("default", "red"), near])
    };
    assert_eq!(ids_of(&index, both(100.0)), "q:d q:c p:a q:e");
    assert!(ids_of(&index, both(0.0)).ends_with("q:d"));
}

#[test]
fn invalid_options_are_rejected() {
    let index = line();
    let refused = |wanted: Nearest| {
        index.search(&Request::new(Query::Nearest(wanted)), &SearchLimits::none()).unwrap_err().to_string()
    };
    assert_eq!(refused(nearest(&[1.0], 3)), "field v has 1 dimensions, not 2");
    let other = Nearest { field: "w".to_owned(), ..nearest(&[1.0, 1.0], 3) };
    assert_eq!(refused(other), "field w is not among the vectors of the index");
    assert!(refused(nearest(&[1.0, 1.0], 0)).starts_with("k must be greater than 0"));
    let mut writer = index.writer(0).unwrap().unwrap();
    let mut update = |fields| writer.update("x", None, fields).unwrap_err().to_string();
    assert_eq!(update(vec![vector("v", &[1.0])]), "field v has 1 dimensions, not 2");
    assert_eq!(update(vec![vector("w", &[1.0])]), "field w is a vector and not among the `vectors` of the index");
    let twice = vec![vector("v", &[1.0, 2.0]), vector("v", &[1.0, 2.0])];
    assert_eq!(update(twice), "field v has more than one vector");
    assert_eq!(update(vec![text("v", "x")]), "field v is of type TEXT not VECTOR");
    assert_eq!(ids_of(&new_index(with_vectors(Similarity::L2)), Query::Nearest(nearest(&[1.0, 1.0], 3))), "");
}

#[test]
fn changes_and_merges_keep_the_right_ones() {
    let mut random = Random::new();
    let index = new_index(with_vectors(Similarity::Dot));
    let mut model: BTreeMap<String, Option<[f32; 2]>> = BTreeMap::new();
    let mut writer = index.writer(0).unwrap().unwrap();
    let coordinate = |random: &mut Random| random.below(2_000_u32) as f32 / 1_000.0 - 1.0;
    for round in 0..40_u64 {
        for _ in 0..random.below(40) {
            let id = format!("id{:03}", random.below(150));
            if random.one_in(4) {
                writer.delete(&id).unwrap();
                model.remove(&id);
            } else {
                let place = [coordinate(&mut random), coordinate(&mut random)];
                let has_vector = !random.one_in(5);
                let mut fields = vec![text("default", "word")];
                fields.extend(has_vector.then(|| vector("v", &place)));
                writer.update(&id, None, fields).unwrap();
                model.insert(id, has_vector.then_some(place));
            }
        }
        writer.commit(&round.to_be_bytes()).unwrap();
        if random.one_in(3) {
            while writer.merge().unwrap() {}
        }
        if random.one_in(5) {
            drop(writer);
            writer = index.writer(0).unwrap().unwrap();
        }
        let [x, y] = [coordinate(&mut random), coordinate(&mut random)];
        let near = |place: [f32; 2]| place[0] * x + place[1] * y;
        let mut expected: Vec<f32> = model.values().flatten().copied().map(near).collect();
        expected.sort_by(|one, other| other.total_cmp(one));
        expected.truncate(5);
        let found = ids_of(&index, Query::Nearest(nearest(&[x, y], 5)));
        let ids: BTreeSet<&str> = found.split_whitespace().collect();
        let mut found: Vec<f32> = ids.iter().map(|id| near(model[*id].unwrap())).collect();
        found.sort_by(|one, other| other.total_cmp(one));
        let is_near = |(one, other): (&f32, &f32)| (one - other).abs() < 1e-5;
        let are_nearest = found.len() == expected.len() && found.iter().zip(&expected).all(is_near);
        assert!(are_nearest, "round {round}: {found:?} of {ids:?}, not {expected:?}");
    }
    verified(&index).unwrap();
}
