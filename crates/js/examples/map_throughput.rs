//! Measures documents per CPU second of server and worker together, including transport: natively, in workers, and for
//! the first function compared with Rust. `cargo run --release -p settee-js --example map_throughput [PART OF A NAME]`
#![expect(unsafe_code, reason = "reads the CPU time of finished worker processes")]

use std::time::Instant;

use settee_design::{DocumentBatch, Emissions, Language as _, Limits, MapSource, ReduceRows};
use settee_js::{Evaluator, JavaScript, PoolSettings, WorkerCommand};
use settee_model::json::Value;

const MAP: &str = "function(doc){ if (doc.metadata && doc.metadata.docType === 'score') { var d = doc.metadata.createdAt; \
                   emit([parseInt(d.substr(0,4)), parseInt(d.substr(5,2))], doc.score); } }";

const FOUNDING: &str = "function (doc) { if (doc.metadata && doc.metadata.docType === 'score') { var date = doc.metadata.createdAt.split('-'); \
                        emit([parseInt(date[0], 10), parseInt(date[1], 10)], doc.score); } }";

fn main() {
    if std::env::args().nth(1).as_deref() == Some("worker") {
        let code = settee_js::worker_main();
        std::process::exit(i32::from(code != std::process::ExitCode::SUCCESS));
    }
    let program = std::env::current_exe().expect("this program has a path");
    let command = WorkerCommand { program, args: vec!["worker".to_owned()] };
    let new = || JavaScript::new(command.clone(), PoolSettings { idle_workers: 0, ..PoolSettings::default() });

    let report = new().test_sandbox().expect("a worker starts");
    println!("sandbox: missing [{}], {:?}", report.missing, report.attempts);
    let small = batch(2_000, |_| 0);
    by_hand("small, emits", &small, 1_000);
    measure("small, emits", &new(), MAP, &small, 1_000);
    measure("small, founding map", &new(), FOUNDING, &small, 1_000);
    measure("small, function(doc){}", &new(), "function(doc){}", &small, 500);
    measure("small, absent member", &new(), "function(doc){ if (doc.absent) emit(doc.absent, null); }", &small, 500);
    measure("small, emit(doc._id, doc)", &new(), "function(doc){ emit(doc._id, doc); }", &small, 200);
    let each = "function(doc){ doc.tags.forEach(function(tag) { emit(tag, 1); }); }";
    measure("small, five tags", &new(), each, &tags(2_000), 200);
    let ten = "function(doc){ for (var i = 0; i < 10; i++) emit([doc.username, i], doc.score); }";
    measure("small, ten rows", &new(), ten, &small, 200);
    let sources = [MAP, each, ten, "function(doc){ if (doc.score > 50) emit(doc.score, doc.username); }"];
    measure_all("small, four functions", &new(), &sources, &small, 200);
    measure("small, JSON.stringify", &new(), "function(doc){ emit(JSON.stringify(doc).length, 1); }", &small, 50);
    compile(&command);
    let mut state = 88_172_645_463_325_252_u64;
    let random = move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % 101).expect("small")
    };
    let big = batch(50, random);
    by_hand("40 KB, emits, 2 MB batches", &big, 4_000);
    measure("40 KB, emits, 2 MB batches", &new(), MAP, &big, 4_000);
    let big = batch(1_000, random);
    measure("40 KB, emits, 40 MB batches", &new(), MAP, &big, 200);
    measure("40 KB, absent member", &new(), "function(doc){ if (doc.absent) emit(doc.absent, null); }", &big, 100);
    measure("40 KB, last member", &new(), "function(doc){ emit(doc.score, null); }", &big, 100);
    measure("40 KB, emit(null, doc)", &new(), "function(doc){ emit(null, doc); }", &big, 10);
    reduce(&new(), "function(keys, values) { return sum(values); }");
    reduce(&new(), "function(keys, values) { return keys.length; }");
}

fn batch(documents: usize, mut extra: impl FnMut(usize) -> usize) -> DocumentBatch {
    let mut batch = DocumentBatch::new();
    for number in 0..documents {
        let id = format!("{number:032x}");
        let mut text = format!(
            "{{\"_id\":\"{id}\",\"_rev\":\"1-967a00dff5e02add41819138abb3284d\",\"metadata\":{{\"docType\":\"score\",\
             \"createdAt\":\"2016-12-19\"}},\"username\":\"u{number}\",\"score\":{}",
            number % 100
        );
        for member in 0..extra(number) {
            text.push_str(&format!(",\"extra{member}\":\"{}\"", "QmFzZTY0+/aa".repeat(66)));
        }
        text.push('}');
        let write = |out: &mut Vec<u8>| {
            out.extend_from_slice(text.as_bytes());
            Ok::<(), ()>(())
        };
        batch.push_with(number as u64, &id, write).expect("writing to memory");
    }
    batch
}

fn tags(documents: usize) -> DocumentBatch {
    let mut batch = DocumentBatch::new();
    for number in 0..documents {
        let id = format!("{number:032x}");
        let write = |out: &mut Vec<u8>| {
            let text = format!("{{\"_id\":\"{id}\",\"tags\":[\"red\",\"green\",\"blue\",\"white\",\"{number}\"]}}");
            out.extend_from_slice(text.as_bytes());
            Ok::<(), ()>(())
        };
        batch.push_with(number as u64, &id, write).expect("writing to memory");
    }
    batch
}

fn compile(command: &WorkerCommand) {
    let language = JavaScript::new(command.clone(), PoolSettings::default());
    let source = MapSource { functions: vec![MAP.into()], library: None };
    for name in ["first program", "second program", "third program"] {
        let clock = Instant::now();
        drop(language.program(&source, Limits::default()).expect("it compiles"));
        println!("{name}: {} us", clock.elapsed().as_micros());
    }
}

fn measure(name: &str, language: &JavaScript, source: &str, batch: &DocumentBatch, rounds: usize) {
    measure_all(name, language, &[source], batch, rounds);
}

fn measure_all(name: &str, language: &JavaScript, sources: &[&str], batch: &DocumentBatch, rounds: usize) {
    if std::env::args().nth(1).is_some_and(|part| !name.contains(&part)) {
        return;
    }
    let source = MapSource { functions: sources.iter().map(|source| (*source).into()).collect(), library: None };
    for evaluator in [Evaluator::Native, Evaluator::Workers] {
        let language = language.clone().with_evaluator(evaluator);
        let mut program = language.program(&source, Limits::default()).expect("it compiles");
        let mut output = Emissions::new();
        let (cpu, clock) = (cpu_seconds(), Instant::now());
        for _ in 0..rounds {
            output.clear();
            program.map(batch, &mut output).expect("it runs");
        }
        let wall = clock.elapsed().as_secs_f64();
        let engine = program.engine(0).map_or("", |engine| engine.name);
        drop(program);
        report(&format!("{name}, {engine}"), batch, rounds, cpu, wall, output.len());
    }
}

fn by_hand(name: &str, batch: &DocumentBatch, rounds: usize) {
    if std::env::args().nth(1).is_some_and(|part| !name.contains(&part)) {
        return;
    }
    let mut output = Emissions::new();
    let mut key = Vec::new();
    let (cpu, clock) = (cpu_seconds(), Instant::now());
    for _ in 0..rounds {
        output.clear();
        for (index, document) in (0u32..).zip(batch.iter()) {
            let document = Value::trusted(document.json);
            let Some(metadata) = document.get("metadata") else { continue };
            if !metadata.get("docType").is_some_and(|kind| kind.is_string("score")) {
                continue;
            }
            let Some(date) = metadata.get("createdAt").and_then(Value::string_bytes) else { continue };
            let number = |digits: &[u8]| digits.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
            key.clear();
            key.push(b'[');
            settee_model::json::write_u64(&mut key, number(&date[..4]));
            key.push(b',');
            settee_model::json::write_u64(&mut key, number(&date[5..7]));
            key.push(b']');
            output.push(index, 0, &key, document.get("score").unwrap_or(Value::NULL).raw());
        }
    }
    report(&format!("{name}, by hand"), batch, rounds, cpu, clock.elapsed().as_secs_f64(), output.len());
}

fn report(name: &str, batch: &DocumentBatch, rounds: usize, cpu: f64, wall: f64, rows: usize) {
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let documents = (batch.len() * rounds) as f64;
    let cpu = cpu_seconds() - cpu;
    println!(
        "{name}: {:.0}/CPU s, {:.0}/s, {rows} rows a round, {} bytes a document",
        documents / cpu,
        documents / wall,
        batch.size_bytes() / batch.len()
    );
}

fn reduce(language: &JavaScript, source: &str) {
    if std::env::args().nth(1).is_some_and(|part| !source.contains(&part)) {
        return;
    }
    let mut reducer = language.reducer(source, Limits::default()).expect("it compiles");
    let rows: Vec<_> = (0..100).map(|_| (&b"[2016,12]"[..], "0123456789abcdef", &b"17"[..])).collect();
    let groups: Vec<_> = (0..1_000).map(|_| ReduceRows { rows: rows.clone() }).collect();
    let cpu = cpu_seconds();
    let rounds = 30;
    for _ in 0..rounds {
        reducer.reduce(&groups).expect("it runs");
    }
    drop(reducer);
    let cpu = cpu_seconds() - cpu;
    println!("{source}: {:.0} rows/CPU s", f64::from(rounds * 100_000) / cpu);
}

fn cpu_seconds() -> f64 {
    let mut seconds = 0.0;
    for user in [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN] {
        // SAFETY: getrusage fills the structure that is given, which is plain data.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(user, &raw mut usage);
            usage
        };
        for time in [usage.ru_utime, usage.ru_stime] {
            #[expect(clippy::cast_precision_loss, reason = "a measurement")]
            let part = time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
            seconds += part;
        }
    }
    seconds
}
