//! Indexes vectors of 384 dimensions, and prints the time and, for several numbers of candidates, recall and search
//! time compared with an exhaustive search: `cargo run --release -p settee-search --example vectors -- 100000`.
//! Embeddings of texts form overlapping clusters; independent numbers, with nearly equal distances, are the worst case.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use settee_model::testing::Random;
use settee_search::{
    Analyzer, Analyzers, Caches, Definition, Dialect, Field, FieldOptions, FieldValue, Index, Nearest, Query, Request,
    SearchLimits, Similarity, VectorField,
};
use settee_storage::{CommitToken, Engine, Shard};
use settee_storage_rocksdb::{Options, RocksEngine};

const DIMENSIONS: usize = 384;
const NEAREST: usize = 10;
const QUERIES: usize = 200;

fn normal(random: &mut Random) -> f32 {
    (0..6).map(|_| random.below(10_001_u32) as f32 / 5_000.0 - 1.0).sum::<f32>() * std::f32::consts::FRAC_1_SQRT_2
}

fn unit(mut vector: Vec<f32>) -> Vec<f32> {
    let length = vector.iter().map(|number| number * number).sum::<f32>().sqrt();
    vector.iter_mut().for_each(|number| *number /= length);
    vector
}

fn noise(random: &mut Random) -> Vec<f32> {
    (0..DIMENSIONS).map(|_| normal(random)).collect()
}

fn vectors(random: &mut Random, centres: &[Vec<f32>], count: usize) -> Vec<Vec<f32>> {
    let one = |random: &mut Random| match centres.is_empty() {
        true => noise(random),
        false => {
            let centre = &centres[random.below(centres.len())];
            centre.iter().zip(noise(random)).map(|(centre, noise)| centre + noise).collect()
        }
    };
    (0..count).map(|_| unit(one(random))).collect()
}

fn index(vectors: &[Vec<f32>], engine: Arc<dyn Engine>) -> Index {
    let field = VectorField { name: "v".to_owned(), dimensions: DIMENSIONS, similarity: Similarity::Cosine };
    let default = Analyzer::named(Dialect::Nouveau, "standard", None).expect("a name");
    let analyzers = Analyzers { default, fields: Vec::new() };
    let definition = Definition { dialect: Dialect::Nouveau, analyzers, vectors: vec![field] };
    let next = AtomicU64::new(1);
    let new_token = Arc::new(move || CommitToken(u128::from(next.fetch_add(1, Ordering::Relaxed))));
    let index = Index::new(engine, Shard(9), definition, new_token, Arc::new(Caches::new(64 << 20, 512 << 20)));
    let start = Instant::now();
    let mut writer = index.writer(0).expect("the store").expect("a writer");
    for (number, vector) in vectors.iter().enumerate() {
        let value = FieldValue::Vector(vector.clone());
        let field = Field { name: "v".to_owned(), value, options: FieldOptions::default() };
        writer.update(&format!("doc{number:08}"), None, vec![field]).expect("a document");
    }
    writer.commit(b"end").expect("a commit");
    while writer.merge().expect("a merge") {}
    println!("  indexed in {:.1} s: {:?}", start.elapsed().as_secs_f64(), index.info().expect("numbers"));
    index
}

fn main() {
    let count: usize = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(20_000);
    for centres in [2_000, 0] {
        println!("{count} vectors, {centres} centres");
        let mut random = Random::of(7);
        let centres = (0..centres).map(|_| noise(&mut random)).collect::<Vec<_>>();
        let all = vectors(&mut random, &centres, count);
        let asked = vectors(&mut random, &centres, QUERIES);
        let directory = tempfile::tempdir().expect("a directory");
        let engine = RocksEngine::open(&directory.path().join("engine"), &Options::default()).expect("an engine");
        let index = index(&all, Arc::new(engine));
        let start = Instant::now();
        let expected: Vec<Vec<usize>> = asked.iter().map(|wanted| nearest_of_all(&all, wanted)).collect();
        let all_ms = start.elapsed().as_secs_f64() * 1000.0 / QUERIES as f64;
        println!("  a scan of all of them in memory: {all_ms:.2} ms");
        for candidates in [10, 50, 100, 200, 400, 800, 1_600, 10_000] {
            let mut times: Vec<f64> = Vec::new();
            let mut right = 0;
            for (wanted, expected) in asked.iter().zip(&expected) {
                let start = Instant::now();
                let vector = wanted.clone();
                let near = Nearest { field: "v".to_owned(), vector, count: NEAREST, candidates, filter: None };
                let request = Request { limit: NEAREST, ..Request::new(Query::Nearest(near)) };
                let answer = index.search(&request, &SearchLimits::none()).expect("an answer");
                times.push(start.elapsed().as_secs_f64() * 1000.0);
                let is_right = |id: &str| expected.iter().any(|number| id == format!("doc{number:08}"));
                right += answer.hits.iter().filter(|hit| is_right(&hit.id)).count();
            }
            times.sort_by(f64::total_cmp);
            let recall = right as f64 / (QUERIES * NEAREST) as f64;
            let (median, p99) = (times[QUERIES / 2], times[QUERIES * 99 / 100]);
            println!("  {candidates} candidates: recall {recall:.3}, median {median:.2} ms, p99 {p99:.2} ms");
        }
    }
}

fn nearest_of_all(all: &[Vec<f32>], wanted: &[f32]) -> Vec<usize> {
    let product = |vector: &[f32]| vector.iter().zip(wanted).map(|(one, other)| one * other).sum::<f32>();
    let mut near: Vec<(f32, usize)> = all.iter().enumerate().map(|(number, one)| (product(one), number)).collect();
    near.select_nth_unstable_by(NEAREST, |(one, _), (other, _)| other.total_cmp(one));
    near[..NEAREST].iter().map(|(_, number)| *number).collect()
}
