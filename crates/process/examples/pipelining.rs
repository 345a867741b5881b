//! Compares how fast a query server maps documents in the pipelined way of this crate, and one by one over blocking
//! pipes, as CouchDB sends them. The pipelined variant equals an index build: functions in Python receive only the
//! members that they can see. An additional row measures whole documents.
//! ```text
//! cargo run --release -p settee-process --example pipelining -- python 'couchpy --json-module=json'
//! ```
//! The first argument selects the map function: `python`, `erlang` or `javascript`. The third one is the number of
//! rounds, by default 5. With `erlang` and the command `settee` the script of this crate runs.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use settee_design::{DocumentBatch, Emissions, Language as _, Limits, MapSource};
use settee_process::{QueryServer, Settings};

const BATCH_BYTES: usize = 1 << 20;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, language, command, rest @ ..] = &arguments[..] else {
        eprintln!("usage: pipelining LANGUAGE COMMAND [ROUNDS]");
        return;
    };
    let rounds = rest.first().and_then(|rounds| rounds.parse().ok()).unwrap_or(5);
    let command = match (language.as_str(), command.as_str()) {
        ("erlang", "settee") => {
            let copy = std::env::temp_dir().join("settee-erlang.escript");
            std::fs::write(&copy, settee_process::erlang::SCRIPT).expect("the temporary directory can be written");
            settee_process::erlang::command(&copy)
        }
        _ => command.clone(),
    };
    let processes = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    for (kind, count, members) in [("small", 40_000, 0), ("big", 1_500, 50)] {
        let documents: Vec<String> = (0..count).map(|number| document(number, members)).collect();
        let bytes: usize = documents.iter().map(String::len).sum();
        let source = function(language);
        let [whole, server] = [false, true].map(|project_documents| server(language, &command, project_documents));
        let mut programs: Vec<_> = (0..processes).map(|_| program(&server, source)).collect();
        let mut of_whole = [program(&whole, source)];
        let is_projected = programs[0].engine(0) != of_whole[0].engine(0);
        let mut blocking = Blocking::start(&command, source);
        let mut figures: Vec<Vec<f64>> = vec![Vec::new(); 8];
        for round in 0..=rounds {
            let blocking = rate(count, || blocking.map(&documents));
            let whole = if is_projected { rate(count, || pipelined(&mut of_whole, &documents)) } else { [0.0; 2] };
            let single = rate(count, || pipelined(&mut programs[..1], &documents));
            let all = rate(count, || pipelined(&mut programs, &documents));
            if round > 0 {
                let all = [blocking, whole, single, all].into_iter().flatten();
                figures.iter_mut().zip(all).for_each(|(list, figure)| list.push(figure));
            }
        }
        println!("{kind} documents ({} bytes), a second, and processor time for each:", bytes / documents.len());
        let blocking = median(&mut figures[0]);
        let all = format!("{processes} processes");
        let rows = ["one by one", "one, whole ones", "one process", &all];
        for (name, pair) in rows.iter().zip(figures.chunks_mut(2)) {
            let [rate, cpu] = [0, 1].map(|index| median(&mut pair[index]));
            if rate > 0.0 {
                println!("  {name:<16} {rate:8.0} ({:4.1}x) {cpu:6.1} us", rate / blocking);
            }
        }
    }
}

fn document(number: usize, members: usize) -> String {
    let mut text = format!(
        "{{\"_id\":\"{number:08}\",\"_rev\":\"1-967a00dff5e02add41819138abb3284d\",\"metadata\":{{\"docType\":\
         \"userscore\",\"createdAt\":\"2016-{:02}-19\"}},\"username\":\"user{number}\",\"score\":{}",
        number % 12 + 1,
        number % 100
    );
    for member in 0..members {
        text.push_str(&format!(",\"random{member}\":\"{}\"", "QUJDREVGR0hJSktMTU5PUA+/".repeat(33)));
    }
    text.push('}');
    text
}

fn function(language: &str) -> &'static str {
    match language {
        "erlang" => {
            "fun({Doc}) -> {Meta} = proplists:get_value(<<\"metadata\">>, Doc), <<Y:4/binary, \"-\", M:2/binary, \
             _/binary>> = proplists:get_value(<<\"createdAt\">>, Meta), Emit([binary_to_integer(Y), \
             binary_to_integer(M)], proplists:get_value(<<\"score\">>, Doc)) end."
        }
        "javascript" => {
            "function(doc) { var d = doc.metadata.createdAt.split('-'); emit([parseInt(d[0], 10), parseInt(d[1], 10)], doc.score); }"
        }
        _ => {
            "def scores(doc):\n    if 'metadata' in doc:\n        date = doc['metadata']['createdAt'].split('-')\n        yield [int(date[0]), int(date[1])], doc['score']\n"
        }
    }
}

fn server(language: &str, command: &str, project_documents: bool) -> QueryServer {
    let environment = std::env::vars_os().filter(|(name, _)| name == "PATH" || name == "HOME").collect();
    let log = Arc::new(|language: &str, line: &str| eprintln!("{language}: {line}"));
    QueryServer::new(language, command, Settings { environment, project_documents, ..Settings::default() }, log)
}

fn program(server: &QueryServer, source: &str) -> Box<dyn settee_design::Program> {
    let source = MapSource { functions: vec![source.into()], library: None };
    server.program(&source, Limits::default()).expect("the function compiles")
}

/// Returns documents per second, and microseconds of processor time per document, which other load distorts less.
fn rate(count: usize, work: impl FnOnce() -> usize) -> [f64; 2] {
    let (began, before) = (Instant::now(), processor_ms());
    assert_eq!(work(), count, "every document emits one row");
    let used = processor_ms() - before;
    [count as f64 / began.elapsed().as_secs_f64(), used * 1000.0 / count as f64]
}

/// Includes the children of this process. The resolution of Linux is 10 ms.
fn processor_ms() -> f64 {
    let own = std::process::id();
    let stats = std::fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let text = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let pid: u32 = text.split(' ').next()?.parse().ok()?;
        let fields: Vec<i64> = text.rsplit(')').next()?.split(' ').filter_map(|field| field.parse().ok()).collect();
        (pid == own || i64::from(own) == *fields.first()?).then(|| fields[10] + fields[11])
    });
    stats.sum::<i64>() as f64 * 10.0
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

struct Blocking {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    answer: String,
}

impl Blocking {
    fn start(command: &str, source: &str) -> Self {
        let mut child = Command::new("/bin/sh")
            .args(["-c", &format!("exec {command}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut blocking = Self { child, input, output, answer: String::new() };
        blocking.ask(b"[\"reset\"]\n");
        let mut add = b"[\"add_fun\",".to_vec();
        settee_model::json::write_string(&mut add, source);
        add.extend_from_slice(b"]\n");
        blocking.ask(&add);
        blocking
    }

    fn ask(&mut self, line: &[u8]) -> usize {
        self.input.write_all(line).expect("the server reads");
        self.answer.clear();
        self.output.read_line(&mut self.answer).expect("the server answers");
        usize::from(self.answer.starts_with("[[["))
    }

    fn map(&mut self, documents: &[String]) -> usize {
        documents.iter().map(|document| self.ask(format!("[\"map_doc\",{document}]\n").as_bytes())).sum()
    }
}

impl Drop for Blocking {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pipelined(programs: &mut [Box<dyn settee_design::Program>], documents: &[String]) -> usize {
    let per_batch = (BATCH_BYTES / documents[0].len()).max(1);
    let batches = std::sync::Mutex::new(documents.chunks(per_batch));
    let work = |program: &mut Box<dyn settee_design::Program>| {
        let (mut rows, mut batch, mut output) = (0, DocumentBatch::new(), Emissions::new());
        loop {
            let next = batches.lock().expect("no thread panics").next();
            let Some(chunk) = next else {
                return rows;
            };
            batch.clear();
            for document in chunk {
                let write = |out: &mut Vec<u8>| {
                    out.extend_from_slice(document.as_bytes());
                    Ok::<(), ()>(())
                };
                batch.push_with(1, "", write).expect("it does not fail");
            }
            output.clear();
            program.map(&batch, &mut output).expect("it maps");
            rows += output.len();
        }
    };
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = programs.iter_mut().map(|program| scope.spawn(move || work(program))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it maps")).sum()
    })
}
