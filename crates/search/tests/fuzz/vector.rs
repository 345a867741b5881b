//! Vectors of any numbers and dimensions.

use settee_search::{Nearest, Query, Request, SearchLimits};

use crate::query::{index, is_of_client};

pub(crate) fn check(data: &[u8]) {
    let (counts, numbers) = data.split_at(data.len().min(2));
    let vector = numbers.as_chunks::<4>().0.iter().map(|bytes| f32::from_be_bytes(*bytes)).collect();
    let count = match counts.first() {
        Some(255) => usize::MAX,
        count => count.copied().unwrap_or(1).into(),
    };
    let candidates = counts.get(1).copied().unwrap_or(9).into();
    let near = Nearest { field: "v".to_owned(), vector, count, candidates, filter: None };
    match index().search(&Request::new(Query::Nearest(near)), &SearchLimits::none()) {
        Ok(answer) => assert!(answer.hits.len() <= count),
        Err(error) => assert!(is_of_client(&error), "{error:?}"),
    }
}
