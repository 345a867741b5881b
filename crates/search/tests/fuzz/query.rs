//! Accepted queries of both grammars can be executed, and no query panics or exceeds its limits.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use settee_search::{
    Analyzer, Analyzers, Caches, Definition, Dialect, Error, Field, FieldOptions, FieldValue, Highlighting, Index,
    Locale, Request, SearchLimits, Similarity, StoredValue, VectorField,
};
use settee_storage::{CommitToken, Shard};

pub(crate) fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let limits = SearchLimits::none();
    for parsed in [index().parse(&text, Locale::default(), &limits), index().parse_classic(&text, &limits)] {
        let query = match parsed {
            Ok(query) => query,
            Err(error) => {
                assert!(is_of_client(&error), "{error:?}");
                continue;
            }
        };
        let fields = vec!["default".to_owned()];
        let (pre_tag, post_tag) = ("<".to_owned(), ">".to_owned());
        let highlight = Some(Highlighting { fields, pre_tag, post_tag, number: 3, size: 10 });
        match index().search(&Request { highlight, ..Request::new(query) }, &limits) {
            Ok(answer) => assert!(answer.hits.len() as u64 <= answer.total_hits),
            Err(error) => assert!(is_of_client(&error), "{error:?}"),
        }
    }
}

pub(crate) fn is_of_client(error: &Error) -> bool {
    matches!(error, Error::Syntax { .. } | Error::BadRequest(_) | Error::TooLarge(_))
}

pub(crate) fn index() -> &'static Index {
    static INDEX: OnceLock<Index> = OnceLock::new();
    INDEX.get_or_init(make)
}

fn make() -> Index {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let named = |name| Analyzer::named(Dialect::Nouveau, name, None).expect("an analyzer");
    let analyzers = Analyzers { default: named("standard"), fields: vec![("s".to_owned(), named("keyword"))] };
    let vectors = vec![VectorField { name: "v".to_owned(), dimensions: 3, similarity: Similarity::Cosine }];
    let definition = Definition { dialect: Dialect::Nouveau, analyzers, vectors };
    let new_token = Arc::new(|| CommitToken(u128::from(NEXT.fetch_add(1, Ordering::Relaxed))));
    let engine = settee_storage_testing::engine();
    let index = Index::new(engine, Shard(7), definition, new_token, Arc::new(Caches::new(1 << 20, 1 << 20)));
    let mut writer = index.writer(0).expect("the store works").expect("the shard is empty");
    let stored = FieldOptions { store: true, ..FieldOptions::default() };
    for (number, words) in
        ["the quick brown fox", "quick dogs, quick cats", "a fox a fox a fox", "x-y 中文 naïve"].into_iter().enumerate()
    {
        #[expect(clippy::cast_precision_loss, reason = "small")]
        let n = number as f64;
        let of = |name: &str, value, options| Field { name: name.to_owned(), value, options };
        let fields = vec![
            of("default", FieldValue::Text(words.to_owned()), stored),
            of("s", FieldValue::String(words.to_owned()), stored),
            of("n", FieldValue::Double(n), FieldOptions::default()),
            #[expect(clippy::cast_possible_truncation, reason = "small")]
            of("v", FieldValue::Vector(vec![1.0, n as f32, 0.5]), FieldOptions::default()),
            of("x", FieldValue::Stored(StoredValue::Double(n)), stored),
        ];
        writer.update(&format!("id{number}"), None, fields).expect("the fields are right");
    }
    writer.commit(b"position").expect("the store works");
    index
}
