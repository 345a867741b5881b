//! Random functions of the subset on random documents, natively and in the engine. A failure prints the seed of its
//! program; `SETTEE_SEED` is the first one.

mod documents;
mod generate;

use std::sync::Arc;

use settee_design::{Emissions, Language as _, Limits, MapSource, RunError};
use settee_js::{Evaluator, JavaScript, PoolSettings, WorkerCommand};
use settee_model::testing::{Random, scaled};

use self::documents::document;
use self::generate::Writer;
use super::super::{batch, language, native_language, show};

const PROGRAMS: u64 = 10;
const FUNCTIONS: usize = 12;
const DOCUMENTS: usize = 12;

fn alone() -> JavaScript {
    let missing_program = WorkerCommand { program: "/does/not/exist".into(), args: Vec::new() };
    JavaScript::new(missing_program, PoolSettings::default()).with_evaluator(Evaluator::Native)
}

pub(super) fn outcome(language: &JavaScript, source: &MapSource, documents: &[&str]) -> Result<Emissions, RunError> {
    let mut output = Emissions::new();
    let mut program = language.program(source, Limits::default()).unwrap_or_else(|error| panic!("{source:?}: {error}"));
    program.map(&batch(documents), &mut output)?;
    Ok(output)
}

/// Number of documents on which the native evaluator does not bail out.
pub(super) fn without_help(source: &MapSource, documents: &[&str]) -> usize {
    let alone = alone();
    documents.iter().filter(|document| outcome(&alone, source, &[document]).is_ok()).count()
}

/// Returns the number of native functions, and of documents without a bail-out.
fn compare(seed: u64) -> (usize, usize) {
    let mut random = Random::of(seed);
    let functions: Vec<Arc<str>> = (0..FUNCTIONS).map(|_| Writer::function(&mut random).into()).collect();
    let documents: Vec<_> = (0..DOCUMENTS).map(|_| document(&mut random)).collect();
    let documents: Vec<_> = documents.iter().map(String::as_str).collect();
    let source = MapSource { functions, library: None };
    let both = [language(), native_language()].map(|language| outcome(language, &source, &documents).unwrap());
    let [engine, native] = both;
    if show(&engine) != show(&native) || engine.failures != native.failures || engine.log != native.log {
        explain(seed, &source, &documents);
    }
    let mut natives = (0, 0);
    for function in &source.functions {
        let source = MapSource { functions: vec![Arc::clone(function)], library: None };
        if native_language().engines(&source).iter().all(|engine| engine.name == "native") {
            natives.0 += 1;
            natives.1 += without_help(&source, &documents);
        }
    }
    natives
}

fn explain(seed: u64, source: &MapSource, documents: &[&str]) {
    for function in &source.functions {
        let source = MapSource { functions: vec![Arc::clone(function)], library: None };
        for document in documents {
            let [engine, native] =
                [language(), native_language()].map(|language| outcome(language, &source, &[document]).unwrap());
            assert_eq!(show(&native), show(&engine), "seed {seed}: {function} on {document}");
            assert_eq!(native.failures, engine.failures, "seed {seed}: {function} on {document}");
            assert_eq!(native.log, engine.log, "seed {seed}: {function} on {document}");
        }
    }
    panic!("seed {seed}: only all functions together differ");
}

#[test]
fn random_functions_come_to_the_same() {
    let first = std::env::var("SETTEE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_120);
    println!("seed {first}");
    let (mut programs, mut functions, mut documents) = (0, 0, 0);
    for seed in first..first + scaled(PROGRAMS) {
        let (native_functions, native_documents) = compare(seed);
        functions += native_functions;
        documents += native_documents;
        programs += 1;
    }
    let all = programs * FUNCTIONS;
    println!(
        "{all} functions, {functions} of them native; {documents} of {} calls without help",
        functions * DOCUMENTS
    );
    assert!(functions * 2 > all && documents * 3 > functions * DOCUMENTS, "the native evaluator hardly did anything");
}
