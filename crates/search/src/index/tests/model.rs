//! Random documents, changes and queries compared with a scan of the documents.

use std::collections::BTreeMap;

use settee_model::testing::Random;

use super::*;
use crate::Query;

fn word(random: &mut Random) -> String {
    format!("w{}", random.below(12))
}

#[derive(Clone, Default)]
struct Document {
    words: Vec<String>,
    tag: Option<String>,
    number: Option<f64>,
}

impl Document {
    fn random(random: &mut Random) -> Self {
        let words = (0..random.below(6)).map(|_| word(random)).collect();
        let tag = (random.below(3) > 0).then(|| word(random));
        let number = (random.below(3) > 0).then(|| random.below(20) as f64 - 10.0);
        Self { words, tag, number }
    }

    fn fields(&self) -> Vec<Field> {
        let mut fields = Vec::new();
        if !self.words.is_empty() {
            fields.push(text("default", &self.words.join(" ")));
        }
        fields.extend(self.tag.iter().map(|tag| string("tag", tag)));
        fields.extend(self.number.map(|number| double("n", number)));
        fields
    }

    fn matches(&self, query: &Query) -> bool {
        match query {
            Query::All => true,
            Query::Term { field, text } if field == "tag" => self.tag.as_ref() == Some(text),
            Query::Term { text, .. } => self.words.contains(text),
            Query::Phrase { terms, .. } => {
                let wanted: Vec<&String> = terms.iter().map(|(_, text)| text).collect();
                self.words.windows(wanted.len()).any(|words| words.iter().eq(wanted.iter().copied()))
            }
            Query::Prefix { prefix, .. } => self.words.iter().any(|word| word.starts_with(prefix.as_str())),
            Query::Range { lower, upper, .. } => self
                .tag
                .as_ref()
                .is_some_and(|tag| std::ops::RangeBounds::contains(&(lower.as_ref(), upper.as_ref()), &tag)),
            Query::NumberRange { lower, upper, .. } => {
                self.number.is_some_and(|number| std::ops::RangeBounds::contains(&(*lower, *upper), &number))
            }
            Query::Boolean(boolean) => {
                let all = |queries: &[Query]| queries.iter().all(|query| self.matches(query));
                let should = boolean.should.iter().filter(|query| self.matches(query)).count();
                let least = if boolean.must.is_empty() {
                    boolean.minimum_should_match.max(1)
                } else {
                    boolean.minimum_should_match
                };
                all(&boolean.must) && should >= least && !boolean.must_not.iter().any(|query| self.matches(query))
            }
            other => panic!("{other:?}"),
        }
    }
}

fn query(random: &mut Random, depth: u64) -> String {
    match random.below(if depth == 0 { 6 } else { 9 }) {
        0 => "*:*".to_owned(),
        1 => word(random),
        2 => format!("tag:{}", word(random)),
        3 => format!("\"{} {}\"", word(random), word(random)),
        4 => format!("tag:[{} TO {}}}", word(random), word(random)),
        5 => format!("n:{{{} TO {}]", random.below(10), random.below(20)),
        6 => format!("(+{} {} -{})", query(random, depth - 1), query(random, depth - 1), query(random, depth - 1)),
        7 => format!("({} {} {})@2", query(random, depth - 1), query(random, depth - 1), query(random, depth - 1)),
        _ => format!("({} AND {})", query(random, depth - 1), query(random, depth - 1)),
    }
}

#[test]
fn searches_find_the_documents_of_a_scan() {
    for seed in [1, 0x5eed, 77_777] {
        println!("seed {seed}");
        let mut random = Random::of(seed);
        let index = new_index(definition("standard", &[("tag", "keyword")]));
        let mut model: BTreeMap<String, Document> = BTreeMap::new();
        let mut writer = index.writer(0).unwrap().unwrap();
        for round in 0..40_u64 {
            for _ in 0..random.below(25) {
                let id = format!("id{:02}", random.below(60));
                if random.below(4) == 0 {
                    writer.delete(&id).unwrap();
                    model.remove(&id);
                } else {
                    let document = Document::random(&mut random);
                    writer.update(&id, None, document.fields()).unwrap();
                    if document.fields().is_empty() {
                        model.remove(&id);
                    } else {
                        model.insert(id, document);
                    }
                }
            }
            writer.commit(&round.to_be_bytes()).unwrap();
            if random.below(3) == 0 {
                while writer.merge().unwrap() {}
            }
            if random.below(5) == 0 {
                drop(writer);
                writer = index.writer(0).unwrap().unwrap();
            }
            assert_eq!(index.info().unwrap().docs, model.len() as u64);
            for _ in 0..10 {
                let text = query(&mut random, 2);
                let parsed = index.parse(&text, Locale::default(), &SearchLimits::none()).unwrap();
                let expected: Vec<&str> =
                    model.iter().filter(|(_, document)| document.matches(&parsed)).map(|(id, _)| id.as_str()).collect();
                let sort = vec![crate::Sort::parse("_id").unwrap()];
                let answer = index
                    .search(&Request { limit: 1_000, sort, ..Request::new(parsed.clone()) }, &SearchLimits::none())
                    .unwrap();
                assert_eq!(ids(&answer), expected.join(" "), "seed {seed}, round {round}: {text}");
                let best = index.search(&Request { limit: 3, ..Request::new(parsed) }, &SearchLimits::none()).unwrap();
                assert_eq!(
                    (best.total_hits, best.hits.len()),
                    (expected.len() as u64, expected.len().min(3)),
                    "{text}"
                );
            }
        }
        verified(&index).unwrap();
    }
}
