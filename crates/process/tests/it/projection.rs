//! Python functions that get projected documents: the rows equal those of whole documents.

use settee_design::{Emissions, Language as _, Limits};
use settee_model::testing::Random;
use settee_process::{QueryServer, Settings};

use super::{batch, command, language, run, settings, show, source};

/// A fixed hash seed gives sets the same order in every process.
fn python(project_documents: bool) -> QueryServer {
    let mut settings = Settings { project_documents, ..settings() };
    settings.environment.push(("PYTHONHASHSEED".into(), "0".into()));
    language("python", &command().replace(" -E ", " "), settings).0
}

const DOCUMENT: &str = r#"{"_rev":"1-a","a":{"b":1},"b":[1.50],"c":"}","n\u0061me":null}"#;

fn engines(server: &QueryServer, functions: &[&str]) -> Vec<&'static str> {
    server.engines(&source(functions)).iter().map(|engine| engine.name).collect()
}

#[track_caller]
fn check_sent(server: &QueryServer, functions: &[&str], expected: &str, engine: &[&str]) {
    assert_eq!(engines(server, functions), engine);
    let output = run(server, functions, &[DOCUMENT]).unwrap();
    let row = output.rows().last().unwrap();
    assert_eq!(String::from_utf8(row.key.to_vec()).unwrap(), expected);
}

const SENT: &str = "def sees_little(doc):\n    yield sent(), doc['b']\n";
const MORE: &str = "def sees_more(doc):\n    if 'c' in doc:\n        yield sent(), doc.get('nothing')\n";
const ALL: &str = "def sees_all(doc):\n    yield sent(), doc\n";

#[test]
fn functions_are_sent_the_members_they_read() {
    let server = python(true);
    check_sent(&server, &[SENT], r#"["_id","_rev","b","name"]"#, &["projected"]);
    check_sent(&server, &[SENT, MORE], r#"["_id","_rev","b","c","name"]"#, &["projected"; 2]);
    check_sent(&server, &[MORE], r#"["_id","_rev","c","name"]"#, &["projected"]);
    check_sent(&server, &[ALL, SENT], r#"["_id","_rev","a","b","c","name"]"#, &["whole"; 2]);
    check_sent(&server, &[SENT], r#"["_id","_rev","b","name"]"#, &["projected"]);
    assert_eq!(server.processes(), (0, 1), "one process has run them all");
}

#[test]
fn other_languages_are_sent_whole_documents() {
    let whole = r#"["_id","_rev","a","b","c","name"]"#;
    check_sent(&python(false), &[SENT], whole, &["whole"]);
    check_sent(&language("snake", &command(), settings()).0, &[SENT], whole, &[]);
}

fn outcome(server: &QueryServer, function: &str, documents: &[String]) -> String {
    let mut output = Emissions::new();
    let result = match server.program(&source(&[function]), Limits::default()) {
        Ok(mut program) => program.map(&batch(documents), &mut output).map_err(|error| error.to_string()),
        Err(error) => Err(format!("{error:?}")),
    };
    let text = format!("{result:?} {} {:?}", show(&output), output.log);
    let mut parts = text.split(" at 0x");
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |text, part| text + part.trim_start_matches(|c: char| c.is_ascii_hexdigit()))
}

#[track_caller]
fn check_same([parts, whole]: &[QueryServer; 2], function: &str, documents: &[String]) -> bool {
    let (of_parts, of_whole) = (outcome(parts, function, documents), outcome(whole, function, documents));
    assert_eq!(of_parts, of_whole, "{function}");
    engines(parts, &[function]) == ["projected"] && of_whole.starts_with("Ok")
}

#[test]
fn functions_of_all_kinds_cannot_distinguish_parts_from_documents() {
    let servers = [python(true), python(false)];
    let mut random = Random::new();
    let documents: Vec<_> = (0..30).map(|_| document(&mut random)).collect();
    for body in [
        "yield doc['a'], doc.get('b', doc['c'])",
        "if 'a' in doc and 'doc' not in doc or '' in doc: yield doc['_id'], 1",
        "import re\n  yield re.compile('1').sub('x', str(doc['a'])), 1",
        "year, month, _ = doc['a'].split('-')\n  yield [int(year), month], 1",
        "for x in doc['a']: yield x, '{:>5} {}'.format(str(x), doc.get('b'))",
        "doc['a'] = 1\n  doc['b'] += 1\n  yield doc['a'], doc['b']",
        "del doc['a']\n  yield 'a' in doc, doc.get('a')",
        "try: doc.has_key('a')\n  except Exception as error: yield str(error), 1",
        "yield [doc['a'] for _ in range(2)], list(map(lambda x: [x, 'b' in doc], [1, 2]))",
        "def inner(x):\n    nonlocal y\n    y = doc.get('c')\n    return y\n  y = 1\n  yield inner(1), y",
        "class A:\n    b = doc.get('b')\n  yield A.b, 1",
        "return [(doc['b'], 1)] if 'b' in doc else []",
        "yield doc.get('doc', 1), doc.get(\"a'\")",
        "yield 1 / 0, doc['a']",
    ] {
        assert!(check_same(&servers, &format!("# A view.\n\ndef f(doc):\n  {body}\n"), &documents), "{body}");
    }
}

fn document(random: &mut Random) -> String {
    let names = ["a", "b", "c", "d", "doc", "x", "", "é", "a'", r"\u0061", r#"b\""#, "_rev", "other"];
    let values = [
        "1",
        "-2.5",
        "null",
        "true",
        r#""2016-01-19""#,
        r#""a""#,
        r#"["a","b"]"#,
        "[1,2,{}]",
        r#"{"a":1,"doc":{"b":"}"}}"#,
        "{}",
    ];
    let members = (0..random.below(9)).map(|_| format!("\"{}\":{}", random.pick(&names), random.pick(&values)));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

fn expression(random: &mut Random, depth: u32) -> String {
    let simple = [
        "doc['a']",
        "doc['b']",
        "doc['c']",
        "doc.get('a')",
        "doc.get('b')",
        "doc.get('d')",
        "x",
        "x",
        "1",
        "'a'",
        "'doc'",
        "None",
        "doc.get(u'doc')",
    ];
    let rare = [
        "doc",
        "len(doc)",
        "sorted(doc)",
        "list(doc.items())",
        "doc == {}",
        "doc.has_key('a')",
        "doc.pop('a', 1)",
        "dict(**doc)",
        "[*doc]",
        "f'{doc}'",
        "f'{x}'",
        "doc.keys()",
        "doc.copy()",
        "doc[x]",
        "doc.get(x)",
        "'a' 'b' in doc",
        "x in doc",
        "locals()",
        "'a' in doc == {'_id': doc['_id'], 'a': doc['a']}",
        "'a' in doc != x",
        "'do' + 'c' in doc",
        "'do' 'c' in doc",
        "x % 'a' in doc",
        "doc['do' 'c']",
        "doc['do' + 'c']",
        "doc.get('do' + 'c')",
        "doc.get('do' 'c')",
        "doc['doc' if x else 'b']",
        "doc['a', 'b']",
        "[doc for doc in 'ab']",
    ];
    if depth == 0 {
        return if random.one_in(9) { random.pick(&rare) } else { random.pick(&simple) }.to_owned();
    }
    let [one, other] = [0, 1].map(|_| expression(random, depth - 1));
    match random.below(16) {
        0 => format!("'{{}} {{0!r}}'.format({one})"),
        1 => format!("'%s' % ({one},)"),
        2 => format!("{one} + {other}"),
        3 => format!("({one} if {other} else 'b' in doc)"),
        4 => format!("(not {one} or 'c' not in doc and {other})"),
        5 => format!("[{one} for x in {other}]"),
        6 => format!("(lambda x: {one})({other})"),
        7 => format!("doc.get('c', {one})"),
        8 => format!("dict([('a', {one}), ('b' in doc, {other})])"),
        9 => format!("({one} == {other})"),
        10 => format!("sorted([str({one}), {other}])"),
        11 => format!("('a' in doc, {one})[0:1]"),
        12 => format!("{one}['a']"),
        _ => one,
    }
}

fn statement(random: &mut Random, indent: usize, depth: u32, out: &mut String) {
    let [one, other] = [0, 1].map(|_| {
        let depth = random.below(3);
        expression(random, depth)
    });
    let pad = " ".repeat(indent);
    let head = match random.below(if depth == 0 { 7 } else { 12 }) {
        0 => format!("x = {one}"),
        1 => format!("doc['{}'] = {one}", random.pick(&["a", "d", "new"])),
        2 => format!("del doc['{}']", random.pick(&["a", "d"])),
        3 => format!("log(str({one}))"),
        4 => "import re, json; from datetime import date".to_owned(),
        5 | 6 => format!("yield {one}, {other}"),
        7 => format!("if {one}:"),
        8 => format!("for x in {one}:"),
        9 => format!("def g(y={one}):"),
        10 => "try:".to_owned(),
        _ => "if 'a' in doc:".to_owned(),
    };
    out.push_str(&format!("{pad}{head}\n"));
    if head.ends_with(':') {
        for _ in 0..=random.below(2) {
            statement(random, indent + 1, depth - 1, out);
        }
        if head == "try:" {
            out.push_str(&format!("{pad}except Exception as error:\n{pad} yield str(error), x\n"));
        }
    }
}

/// Most results are invalid. Braces are excluded, because the order of sets differs between processes.
fn mutated(random: &mut Random, source: &str) -> String {
    let words = [
        "doc",
        "x",
        "'a'",
        "\"",
        "'",
        "in",
        "not",
        "[",
        "]",
        "(",
        ")",
        ".",
        ",",
        ":",
        ";",
        "=",
        "==",
        "\n",
        "\n ",
        "\\\n",
        "#",
        " ",
        "is",
        "f'{doc}'",
        "f\"",
        "if",
        "else",
        "for x in",
        "lambda doc:",
        "and",
        "*",
        "**",
        "%",
        "+",
        "1",
        "b",
        "r",
        "u",
        "0x",
        ".5",
        "yield",
        "get",
        "del ",
        "import ",
        "from ",
        "'''",
        "del doc",
        "\r\n",
        "doc=",
        "as doc",
        ":=",
        "global doc\n",
    ];
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut parts: Vec<&str> = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len()).max(first.len_utf8());
        let (part, others) = rest.split_at(length);
        parts.push(part);
        rest = others;
    }
    for _ in 0..=random.below(2) {
        let at = random.below(parts.len());
        match random.below(4) {
            0 => parts[at] = random.pick(&words),
            1 => drop(parts.remove(at)),
            2 => parts.swap(at, random.below(source.len().min(at + 1))),
            _ => parts.insert(at, random.pick(&words)),
        }
    }
    parts.concat()
}

#[test]
fn random_functions_cannot_distinguish_parts_from_documents() {
    let servers = [python(true), python(false)];
    let mut random = Random::new();
    let mut in_parts = 0;
    for round in 0..2_000 {
        let mut function = "def f(doc):\n x = 1\n".to_owned();
        for _ in 0..=random.below(3) {
            statement(&mut random, 1, 2, &mut function);
        }
        function.push_str(" yield x, doc.get('b')\n");
        if round % 2 == 0 {
            function = mutated(&mut random, &function);
        }
        let documents: Vec<_> = (0..5).map(|_| document(&mut random)).collect();
        in_parts += u32::from(check_same(&servers, &function, &documents));
    }
    assert!(in_parts > 200, "only {in_parts} functions got parts of documents");
    eprintln!("{in_parts} functions got parts of documents");
}
