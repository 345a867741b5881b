//! [`Subject`]: the language under test, and the calls of its functions that all properties share.

use std::sync::Arc;

use settee_model::json::Json;

use crate::{CompileError, DocumentBatch, Emissions, Language, Limits, MapSource, Program, Reducer, RunError};

/// A language, and the functions of the suite written in it.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// Implementation of the language.
    pub language: &'a dyn Language,
    /// Limits of functions. The time limit must suffice on a loaded machine: no test may reach it.
    pub limits: Limits,
    /// A language and small limits for functions that hang: the suite waits until the time limit.
    pub short_timeout: (&'a dyn Language, Limits),
    /// Map functions.
    pub map: MapFunctions<'a>,
    /// Reduce functions.
    pub reduce: ReduceFunctions<'a>,
    /// Functions of search indexes, if the language has them.
    pub index: Option<IndexFunctions<'a>>,
    /// A library, if map functions of the language can have one.
    pub library: Option<LibraryFunctions<'a>>,
    /// A design document as JSON text, if the language has other functions than those of views:
    ///
    /// * `validate_doc_update` rejects documents without a member `title` as forbidden, and others as unauthorized if
    ///   the user has no name (`null`);
    /// * `shows.id` returns the id of the document, `shows.fails` throws;
    /// * `updates.same` returns the document unchanged, and the text `done`;
    /// * `filters.kind` passes documents whose member `kind` equals that of the query; `views.x.map` emits for those of
    ///   kind `x`;
    /// * `lists.ids` sends `head,`, for each row its id and a comma, and `tail`.
    pub design: Option<&'a str>,
    /// Permitted differences.
    pub ways: Ways,
}

/// The map functions of the suite.
#[derive(Clone, Copy)]
pub struct MapFunctions<'a> {
    /// Emits the members `k` and `v`, each null if absent.
    pub pair: &'a str,
    /// Emits each element of the array `list` with its position; nothing without an array.
    pub each: &'a str,
    /// Emits 1 and null, and throws if there is a member `bad`.
    pub fails: &'a str,
    /// Emits 1 and null, and loops forever if there is a member `bad`.
    pub hangs: &'a str,
    /// Logs `hello` and emits nothing.
    pub logs: &'a str,
    /// Sources that do not compile, with a part of the reason.
    pub broken: &'a [(&'a str, &'a str)],
}

/// The reduce functions of the suite.
#[derive(Clone, Copy)]
pub struct ReduceFunctions<'a> {
    /// Returns the number of values; in a rereduce, their sum.
    pub count: &'a str,
    /// Returns an array of its arguments: keys, values and the rereduce flag.
    pub gather: &'a str,
    /// As `count`, but throws if the first value is the text `bad`.
    pub fails: &'a str,
    /// As `count`, but loops forever if the first value is the text `bad`.
    pub hangs: &'a str,
    /// A source that does not compile, with a part of the reason.
    pub broken: (&'a str, &'a str),
}

/// The functions of search indexes of the suite.
#[derive(Clone, Copy)]
pub struct IndexFunctions<'a> {
    /// For Nouveau: indexes the member `t` as a stored text `default`, and each number of `list` as a double `n`.
    pub typed: &'a str,
    /// For the older form: the same, without types.
    pub named: &'a str,
    /// For Nouveau: indexes the member `v` as a string `s`, whatever its type, and then 1 as a double `n`.
    pub strict: &'a str,
}

/// A library and a map function that needs it.
#[derive(Clone, Copy)]
pub struct LibraryFunctions<'a> {
    /// `views.lib` as JSON text.
    pub library: &'a str,
    /// Emits twice the member `n`, computed by a function of the library, and null.
    pub twice: &'a str,
}

/// Permitted differences between languages.
#[derive(Clone, Copy, Debug)]
pub struct Ways {
    /// Precision of numbers.
    pub numbers: Numbers,
    /// Report of an exception in a map function; in every language its document emits nothing.
    pub map_exceptions: MapExceptions,
    /// Effect of an exception in a reduce function.
    pub reduce_exceptions: ReduceExceptions,
}

/// Precision of numbers that pass through a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// The text is preserved.
    Kept,
    /// All numbers become doubles.
    Doubles,
    /// Integers of any length are preserved, others become doubles.
    Integers,
}

/// Report of an exception in a map function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapExceptions {
    /// [`Emissions::failures`].
    Reported,
    /// A line in [`Emissions::log`].
    Logged,
}

/// Effect of an exception in a reduce function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReduceExceptions {
    /// The group is reduced to null.
    Null,
    /// The reduction fails.
    Fatal,
}

pub(super) type Row = (u32, u32, String, String);

impl<'a> Subject<'a> {
    pub(super) fn short_timeout(&self) -> Subject<'a> {
        let (language, limits) = self.short_timeout;
        Subject { language, limits, ..*self }
    }

    pub(super) fn try_program(
        &self,
        functions: &[&str],
        library: Option<&str>,
    ) -> Result<Box<dyn Program>, CompileError> {
        let functions = functions.iter().map(|function| Arc::from(*function)).collect();
        self.language.program(&MapSource { functions, library: library.map(Arc::from) }, self.limits)
    }

    pub(super) fn program(&self, functions: &[&str]) -> Box<dyn Program> {
        self.try_program(functions, None).unwrap_or_else(|error| panic!("{functions:?}: {error}"))
    }

    pub(super) fn reducer(&self, source: &str) -> Box<dyn Reducer> {
        self.language.reducer(source, self.limits).unwrap_or_else(|error| panic!("{source}: {error}"))
    }

    pub(super) fn map(&self, functions: &[&str], documents: &[&str]) -> Emissions {
        mapped(&mut *self.program(functions), documents)
    }
}

/// The ids are `doc1`, `doc2` …, inserted before the other members.
pub(super) fn batch(documents: &[&str]) -> DocumentBatch {
    let mut batch = DocumentBatch::new();
    for (seq, members) in (1..).zip(documents) {
        let members = members.strip_prefix('{').unwrap_or_else(|| panic!("{members} is no document"));
        let comma = if members == "}" { "" } else { "," };
        let text = format!("{{\"_id\":\"doc{seq}\"{comma}{members}");
        let json = Json::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
        let write = |out: &mut Vec<u8>| {
            out.extend_from_slice(json.as_bytes());
            Ok::<_, std::convert::Infallible>(())
        };
        batch.push_with(seq, &format!("doc{seq}"), write).unwrap_or_else(|never| match never {});
    }
    batch
}

pub(super) fn try_map(program: &mut dyn Program, documents: &[&str]) -> Result<Emissions, RunError> {
    let mut output = Emissions::new();
    program.map(&batch(documents), &mut output)?;
    Ok(output)
}

pub(super) fn mapped(program: &mut dyn Program, documents: &[&str]) -> Emissions {
    try_map(program, documents).unwrap_or_else(|error| panic!("documents cannot be mapped: {error}"))
}

pub(super) fn rows(output: &Emissions) -> Vec<Row> {
    output.rows().map(|row| (row.document, row.function, text(row.key), text(row.value))).collect()
}

pub(super) fn expected(rows: &[(u32, u32, &str, &str)]) -> Vec<Row> {
    rows.iter().map(|(document, function, key, value)| (*document, *function, (*key).into(), (*value).into())).collect()
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(super) fn check_fatal<T>(result: Result<T, RunError>, name: &str, part: &str) {
    match result {
        Err(RunError::Fatal { name: actual, reason }) => {
            assert_eq!(actual, name, "the name of the error; its reason is: {reason}");
            assert!(reason.contains(part), "the reason should contain {part}: {reason}");
        }
        Err(error) => panic!("{name} was expected, and not: {error}"),
        Ok(_) => panic!("{name} was expected, and not success"),
    }
}
