use settee_design::Limits;

use super::{check, check_throws, run, show};

const DOCUMENT: &str = r#"{"_id":"d1","_rev":"1-x","n":17,"f":1.50,"neg":-3,"big":12345678901234567890,"s":"text","e":"a\"b\\c\/\u00e9\ud83d\ude00\n","t":true,"no":false,"z":null,"o":{"a":{"b":[1,{"c":2},"x"]},"empty":{}},"l":[3,1,2],"":"empty name","esc\u0061ped":1}"#;

#[test]
fn members_have_their_values() {
    let table = [
        ("doc.n + 1", "18"),
        ("doc.f", "1.5"),
        ("doc.neg", "-3"),
        ("doc.big", "12345678901234567000"),
        ("doc.s.length", "4"),
        ("[doc.e.length, doc.e]", r#"[10,"a\"b\\c/é😀\n"]"#),
        ("[doc.t, doc.no, doc.z]", "[true,false,null]"),
        ("typeof doc.missing", r#""undefined""#),
        ("doc.o.a.b[1].c", "2"),
        ("doc.o.a.b.length", "3"),
        ("doc['']", r#""empty name""#),
        ("doc.escaped", "1"),
        ("doc['o']['a'] === doc.o.a && doc.l === doc.l", "true"),
        ("Array.isArray(doc.l) && isArray(doc.o.a.b) && !Array.isArray(doc.o)", "true"),
        ("doc.l.map(function(x) { return x * 2; })", "[6,2,4]"),
        ("doc.l.slice().sort()", "[1,2,3]"),
        ("doc.l.concat(4)", "[3,1,2,4]"),
        ("doc.l.indexOf(2) + doc.l.join('-')", r#""23-1-2""#),
        ("[].concat.apply([], [doc.l, doc.l])", "[3,1,2,3,1,2]"),
        ("sum(doc.l)", "6"),
        ("Math.max.apply(null, doc.l)", "3"),
        ("'n' in doc && !('missing' in doc) && 'toString' in doc", "true"),
        ("doc.hasOwnProperty('n') && !doc.hasOwnProperty('toString')", "true"),
        (
            "[String(doc), doc.constructor === Object, doc instanceof Object, typeof doc]",
            r#"["[object Object]",true,true,"object"]"#,
        ),
        ("Object.keys(doc.o)", r#"["a","empty"]"#),
        ("Object.entries(doc.o.empty)", "[]"),
        ("(function() { var k = []; for (var name in doc.o) k.push(name); return k; })()", r#"["a","empty"]"#),
        ("Object.values(doc.o.a.b[1])", "[2]"),
        ("({...doc.o.a.b[1], d: 3})", r#"{"c":2,"d":3}"#),
        ("Object.assign({}, doc.o.a.b[1], {c: 4})", r#"{"c":4}"#),
        ("(({n, ...rest}) => [n, Object.keys(rest).length])(doc)", "[17,14]"),
        ("JSON.stringify(doc.o)", r#""{\"a\":{\"b\":[1,{\"c\":2},\"x\"]},\"empty\":{}}""#),
        ("JSON.stringify(doc.o) === toJSON(doc.o)", "true"),
        ("JSON.parse(JSON.stringify(doc)).o.a.b[2]", r#""x""#),
        (
            "Object.getOwnPropertyDescriptor(doc, 'n')",
            r#"{"value":17,"writable":false,"enumerable":true,"configurable":false}"#,
        ),
        (
            "[Object.isFrozen(doc), Object.isFrozen(doc.o), Object.isFrozen(doc.l), Object.isSealed(doc)]",
            "[true,true,true,true]",
        ),
        ("doc[Symbol.iterator] === undefined && doc[Symbol('n')] === undefined", "true"),
        ("doc.o", r#"{"a":{"b":[1,{"c":2},"x"]},"empty":{}}"#),
        ("doc.o.a.b", r#"[1,{"c":2},"x"]"#),
    ];
    for (expression, expected) in table {
        check(&format!("function(doc) {{ emit(0, {expression}); }}"), DOCUMENT, &format!("[[0,{expected}]]"));
    }
}

#[test]
fn whole_documents_can_be_emitted() {
    check(
        "function(doc) { emit(doc._id, doc); }",
        r#"{"_id":"a","b":[1.0,{"c":1e2}]}"#,
        r#"[["a",{"_id":"a","b":[1,{"c":100}]}]]"#,
    );
    check("function(doc) { doc.b.c; emit(doc.b, [doc]); }", r#"{"b":{"c":1}}"#, r#"[[{"c":1},[{"b":{"c":1}}]]]"#);
    check(
        "function(doc) { Object.prototype.toJSON = function() { return 'x'; }; emit(0, doc); }",
        "{}",
        r#"[[0,"x"]]"#,
    );
}

#[test]
fn names_that_are_indexes_come_first_as_in_ordinary_objects() {
    let document = r#"{"b":1,"10":2,"a":3,"9":4,"01":5,"-1":6}"#;
    check(
        "function(doc) { emit(Object.keys(doc), doc['10'] + doc[9]); }",
        document,
        r#"[[["9","10","b","a","01","-1"],6]]"#,
    );
    check("function(doc) { emit(0, doc); }", document, r#"[[0,{"9":4,"10":2,"b":1,"a":3,"01":5,"-1":6}]]"#);
    check("function(doc) { emit(0, JSON.stringify(doc)); }", r#"{"b":1,"1":2}"#, r#"[[0,"{\"1\":2,\"b\":1}"]]"#);
}

#[test]
fn names_of_prototypes_are_ordinary_members() {
    let document = r#"{"__proto__":{"x":1},"constructor":"c","hasOwnProperty":1,"toString":null,"length":9}"#;
    check(
        "function(doc) { emit([doc.__proto__.x, doc.constructor, doc.toString, doc.length], doc.x === undefined); }",
        document,
        r#"[[[1,"c",null,9],true]]"#,
    );
    check("function(doc) { emit(Object.getPrototypeOf(doc) === Object.prototype, 0); }", document, "[[true,0]]");
    check("function(doc) { emit(doc.__proto__ === Object.prototype, 0); }", "{}", "[[true,0]]");
}

#[test]
fn documents_with_many_members_find_them() {
    let members: Vec<_> = (0..500).map(|number| format!("\"m{number}\":{number}")).collect();
    let document = format!("{{{}}}", members.join(","));
    check(
        "function(doc) { var s = doc.none === undefined; for (var i = 499; i >= 0; i--) s = s && doc['m' + i] === i; emit(s, doc.m); }",
        &document,
        "[[true,null]]",
    );
    let members: Vec<_> = (0..5000).map(|number| format!("\"k{number}\":{number}")).collect();
    let document = format!("{{{}}}", members.join(","));
    check(
        "function(doc) { var n = 0; for (var k in doc) n += doc[k]; for (var k in doc) n -= doc[k]; emit(n, Object.keys(doc).length); }",
        &document,
        "[[0,5000]]",
    );
}

fn random_value(next: &mut impl FnMut(usize) -> usize, depth: usize, out: &mut String) {
    const NUMBERS: [&str; 12] = [
        "0",
        "-0",
        "17",
        "-3.50",
        "1e3",
        "1E-7",
        "12345678901234567890",
        "0.1",
        "2147483648",
        "-2147483649",
        "1e400",
        "999999999",
    ];
    const TEXTS: [&str; 10] = [
        "\"\"",
        "\"a\"",
        "\"10\"",
        "\"2\"",
        "\"01\"",
        "\"\\u00e9\"",
        "\"\\/\\n\\u0007\"",
        "\"ü€😀\"",
        "\"\\ud83d\\ude00\"",
        "\"__proto__\"",
    ];
    match next(if depth > 4 { 5 } else { 8 }) {
        0 => out.push_str(["true", "false", "null"][next(3)]),
        1 | 2 => out.push_str(NUMBERS[next(NUMBERS.len())]),
        3 | 4 => out.push_str(TEXTS[next(TEXTS.len())]),
        5 => {
            out.push('[');
            for number in 0..next(5) {
                out.push_str(if number == 0 { "" } else { "," });
                random_value(next, depth + 1, out);
            }
            out.push(']');
        }
        _ => {
            out.push('{');
            let mut names: Vec<_> = TEXTS.to_vec();
            for number in 0..next(8) {
                out.push_str(if number == 0 { "" } else { "," });
                out.push_str(names.swap_remove(next(names.len())));
                out.push(':');
                random_value(next, depth + 1, out);
            }
            out.push('}');
        }
    }
}

#[test]
fn documents_behave_like_parsed_ones() {
    let seed = 0x9e37_79b9_7f4a_7c15_u64;
    println!("seed {seed}");
    let mut state = seed;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 11).unwrap() % below
    };
    let documents: Vec<_> = (0..2_000)
        .map(|_| {
            let mut value = String::new();
            random_value(&mut next, 0, &mut value);
            let mut quoted = Vec::new();
            settee_model::json::write_string(&mut quoted, &value);
            format!("{{\"text\":{},\"lazy\":{value}}}", String::from_utf8(quoted).unwrap())
        })
        .collect();
    let documents: Vec<_> = documents.iter().map(String::as_str).collect();
    let walk = "function(doc) { function names(v) { var r = []; for (var k in v) { r.push(k, typeof v[k], typeof v[k] === 'object' ? names(v[k]) : v[k]); } \
                return v && typeof v === 'object' ? [Array.isArray(v), r, Object.keys(v)] : v; } \
                var plain = JSON.parse(doc.text); \
                emit(JSON.stringify(plain) === JSON.stringify(doc.lazy), JSON.stringify(names(plain)) === JSON.stringify(names(doc.lazy))); \
                emit(plain, 0); emit(doc.lazy, 0); }";
    let output = run(&[walk], &documents, Limits::default()).unwrap();
    assert_eq!(output.failures, []);
    let rows: Vec<_> = output.rows().collect();
    for rows in rows.chunks(3) {
        let document = documents[rows[0].document as usize];
        assert_eq!((rows[0].key, rows[0].value), (&b"true"[..], &b"true"[..]), "{document}");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        assert_eq!(text(rows[2].key), text(rows[1].key), "{document}");
    }
}

#[test]
fn spaces_in_documents_do_not_matter() {
    check(
        "function(doc) { emit(doc.a.b, [doc.c, doc.e]); }",
        "{ \"a\" : { \"b\" : [ 1 , { \"x\" : [ ] } ] } ,\n \"c\" : \"d\" , \"e\" : { } }",
        r#"[[[1,{"x":[]}],["d",{}]]]"#,
    );
}

#[test]
fn documents_are_frozen() {
    let document = r#"{"a":1,"o":{"b":2},"l":[2,1]}"#;
    let sloppy = "doc.a = 9; doc.x = 9; doc.o.b = 9; doc.o.y = 9; delete doc.a; delete doc.nothing; doc.l[0] = 9; doc.l[5] = 9; doc.l.length = 0;";
    check(&format!("function(doc) {{ {sloppy} emit(0, doc); }}"), document, &format!("[[0,{document}]]"));
    check("function(doc) { emit(delete doc.a, delete doc.nothing); }", document, "[[false,true]]");
    for change in [
        "doc.a = 9",
        "doc.x = 9",
        "doc.o.b = 9",
        "delete doc.a",
        "doc.l[0] = 9",
        "doc.l[2] = 9",
        "Object.defineProperty(doc, 'a', {value: 9})",
        "Object.defineProperty(doc, 'x', {value: 9})",
        "Object.setPrototypeOf(doc, {})",
        "doc.l.push(3)",
        "doc.l.sort()",
        "doc.l.pop()",
        "doc[Symbol('s')] = 1",
    ] {
        let source = format!(
            "function(doc) {{ 'use strict'; try {{ {change}; }} catch (e) {{ emit(e instanceof TypeError, doc); }} }}"
        );
        check(&source, document, &format!("[[true,{document}]]"));
    }
    check("function(doc) { var d = Object.create(doc); d.own = 1; d.a = 2; emit(d.own, d.a); }", document, "[[1,1]]");
}

#[test]
fn changes_never_reach_the_next_function() {
    let output = run(
        &[
            "function(doc) { doc.l.x = 1; doc.added = 1; try { doc.l.push(9); } catch (e) {} emit(0, doc); }",
            "function(doc) { emit(1, doc); }",
        ],
        &[r#"{"l":[1]}"#],
        Limits::default(),
    )
    .unwrap();
    assert_eq!(show(&output), r#"[[0,0,0,{"l":[1]}],[0,1,1,{"l":[1]}]]"#);
}

#[test]
fn documents_that_a_function_keeps_stay_whole() {
    let source = "function(doc) { if (this.kept) emit(kept.map(function(d) { return d.o ? d.o.n : d.n; }), kept[0]); \
                  else kept = []; kept.push(doc.whole ? doc : doc.o); }";
    let long = "x".repeat(700_000);
    let documents = [
        r#"{"whole":true,"pad":"aaaaaaaaaaaaaaaa","o":{"n":1}}"#.to_owned(),
        r#"{"whole":false,"pad":"bbbbbbbbbbbbbbbb","o":{"n":2}}"#.to_owned(),
        format!("{{\"whole\":true,\"o\":{{\"n\":3}},\"pad\":\"{long}\"}}"),
        r#"{"whole":true,"o":{"n":4}}"#.to_owned(),
    ];
    let documents: Vec<_> = documents.iter().map(String::as_str).collect();
    let output = run(&[source], &documents, Limits::default()).unwrap();
    let first = r#"{"whole":true,"pad":"aaaaaaaaaaaaaaaa","o":{"n":1}}"#;
    assert_eq!(show(&output), format!("[[1,0,[1],{first}],[2,0,[1,2],{first}],[3,0,[1,2,3],{first}]]"));
}

#[test]
fn batches_larger_than_the_shared_memory_arrive() {
    let long = "y".repeat(3_000_000);
    let large = format!("{{\"a\":\"{long}\",\"z\":1}}");
    let documents = ["{\"a\":\"\",\"z\":0}", &large, "{\"a\":\"b\",\"z\":2}", &large];
    let output = run(
        &["function(doc) { emit(doc.z, doc.a.length); }", "function(doc) { emit(0, doc.a); }"],
        &documents,
        Limits::default(),
    );
    let output = output.unwrap();
    let rows: Vec<_> = output.rows().map(|row| (row.document, row.value.len())).collect();
    assert_eq!(rows, [(0, 1), (0, 2), (1, 7), (1, 3_000_002), (2, 1), (2, 3), (3, 7), (3, 3_000_002)]);
}

#[test]
fn a_document_that_is_not_json_affects_no_other() {
    for broken in ["{", "{\"a", "{\"a\":", "{\"a\":1,", "{\"a\":[1,", "[", "", "{\"a\":{\"b\":\"c"] {
        let source = "function(doc) { emit(JSON.stringify(doc).length >= 0, Object.keys(doc).length < 2); }";
        check(source, broken, "[[true,true]]");
    }
    check_throws("function(doc) { doc.none.none; }", "{\"a\":", "TypeError: cannot read property 'none' of undefined");
}
