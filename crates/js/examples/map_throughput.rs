//! Measures map functions: documents per CPU second of server and worker together, transport included.
//!
//! Run with `cargo run --release -p settee-js --example map_throughput [PART OF A NAME]`.
#![expect(unsafe_code, reason = "reads the CPU time of finished worker processes")]

use std::time::Instant;

use settee_design::{DocumentBatch, Emissions, Language as _, Limits, MapSource, ReduceRows};
use settee_js::{JavaScript, PoolSettings, WorkerCommand};

const MAP: &str = "function(doc){ if (doc.metadata && doc.metadata.docType === 'score') { var d = doc.metadata.createdAt; \
                   emit([parseInt(d.substr(0,4)), parseInt(d.substr(5,2))], doc.score); } }";

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
    measure("small, emits", &new(), MAP, &small, 1_000);
    measure("small, function(doc){}", &new(), "function(doc){}", &small, 500);
    measure("small, absent member", &new(), "function(doc){ if (doc.absent) emit(doc.absent, null); }", &small, 500);
    measure("small, emit(doc._id, doc)", &new(), "function(doc){ emit(doc._id, doc); }", &small, 200);
    let each = "function(doc){ doc.tags.forEach(function(tag) { emit(tag, 1); }); }";
    measure("small, five tags", &new(), each, &tags(2_000), 200);
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

/// The time from a source to a program, in a new process and in an idle one.
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
    if std::env::args().nth(1).is_some_and(|part| !name.contains(&part)) {
        return;
    }
    let source = MapSource { functions: vec![source.into()], library: None };
    let mut program = language.program(&source, Limits::default()).expect("it compiles");
    let mut output = Emissions::new();
    let (cpu, clock) = (cpu_seconds(), Instant::now());
    for _ in 0..rounds {
        output.clear();
        program.map(batch, &mut output).expect("it runs");
    }
    let wall = clock.elapsed().as_secs_f64();
    // The worker's time counts once it has ended.
    drop(program);
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let documents = (batch.len() * rounds) as f64;
    let cpu = cpu_seconds() - cpu;
    println!(
        "{name}: {:.0}/CPU s, {:.0}/s, {} rows a round, {} bytes a document",
        documents / cpu,
        documents / wall,
        output.len(),
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

/// CPU time of this process and its finished children.
fn cpu_seconds() -> f64 {
    let mut seconds = 0.0;
    for who in [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN] {
        // SAFETY: getrusage fills the structure that is given, which is plain data.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(who, &raw mut usage);
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
