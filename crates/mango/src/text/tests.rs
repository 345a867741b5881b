//! Definitions, fields of documents, and queries for selectors, from CouchDB's own tests and recorded responses.
#![expect(clippy::unwrap_used, reason = "tests")]

use settee_design::SearchKind;
use settee_model::json::Json;

use super::definition::TextDefinition;
use super::fields::{MAX_STRING_BYTES, Mapper, cut};
use super::translate::clause;
use super::{clause::Clause, sort};
use crate::error::Refusal;
use crate::{FindOptions, Selector};

fn json(text: &str) -> Json {
    Json::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn translated(selector: &str) -> Clause {
    clause(Selector::parse(json(selector).value()).unwrap().node()).unwrap()
}

fn definition(text: &str) -> TextDefinition {
    TextDefinition::parse(SearchKind::Clouseau, json(text).value()).unwrap()
}

#[test]
fn queries_are_those_that_couchdb_makes() {
    let check = |selector: &str, expected: &str| {
        let mut out = String::new();
        translated(selector).write(&mut out);
        assert_eq!(out, expected, "{selector}");
    };
    let exists = "(($fieldnames:field_3a*) OR ($fieldnames:field.*))";
    check(r#"{"field":null}"#, "(field_3anull:true)");
    check(r#"{"field":true}"#, "(field_3aboolean:true)");
    check(r#"{"field":42}"#, "(field_3anumber:42)");
    check(r#"{"field":"value"}"#, r#"(field_3astring:"value")"#);
    check(
        r#"{"field":[1,2,3]}"#,
        concat!(
            "((field._5b_5d_3alength:3) AND (field._5b_5d_3anumber:1) AND (field._5b_5d_3anumber:2)",
            " AND (field._5b_5d_3anumber:3))"
        ),
    );
    check(r#"{"field1":{"field2":"value"}}"#, r#"(field1.field2_3astring:"value")"#);
    check(r#"{"field1":"value1","field2":"value2"}"#, r#"((field1_3astring:"value1") AND (field2_3astring:"value2"))"#);
    check(r#"{"$text":"text"}"#, r#"($default:"text")"#);
    check(r#"{"field":{"$lt":42}}"#, "(field_3anumber:[* TO 42})");
    check(r#"{"field":{"$lte":42}}"#, "(field_3anumber:[* TO 42])");
    check(r#"{"field":{"$gte":42}}"#, "(field_3anumber:[42 TO *])");
    check(r#"{"field":{"$gt":42}}"#, "(field_3anumber:{42 TO *])");
    check(r#"{"field":{"$lt":"b"}}"#, r#"(field_3astring:["" TO "b"})"#);
    check(r#"{"field":{"$gte":"b"}}"#, r#"(field_3astring:["b" TO \u0x10FFFF])"#);
    for operator in ["$lt", "$lte", "$gt", "$gte"] {
        for argument in ["null", "[1,2,3]", r#"{"a":1}"#] {
            check(&format!(r#"{{"field":{{"{operator}":{argument}}}}}"#), exists);
        }
    }
    check(r#"{"field":{"$ne":42}}"#, &format!("({exists} AND NOT ((field_3anumber:42)))"));
    check(
        r#"{"field":{"$all":["value1","value2"]}}"#,
        r#"((field._5b_5d_3astring:"value1") AND (field._5b_5d_3astring:"value2"))"#,
    );
    check(r#"{"field":{"$elemMatch":{"$eq":"value"}}}"#, r#"(field._5b_5d_3astring:"value")"#);
    check(r#"{"field":{"$allMatch":{"$eq":"value"}}}"#, r#"(field._5b_5d_3astring:"value")"#);
    check(r#"{"field":{"$in":[]}}"#, "");
    check(
        r#"{"field":{"$in":["value1","value2"]}}"#,
        concat!(
            r#"(((field_3astring:"value1") OR (field._5b_5d_3astring:"value1"))"#,
            r#" OR ((field_3astring:"value2") OR (field._5b_5d_3astring:"value2")))"#
        ),
    );
    check(r#"{"field":{"$nin":[]}}"#, &format!("({exists})"));
    check(
        r#"{"field":{"$nin":[1]}}"#,
        &format!("({exists} AND NOT ((((field_3anumber:1) OR (field._5b_5d_3anumber:1)))))"),
    );
    check(r#"{"field":{"$exists":true}}"#, exists);
    check(r#"{"field":{"$exists":false}}"#, &format!("($fieldnames:/.*/  AND NOT ({exists}))"));
    check(r#"{"field":{"$type":"string"}}"#, exists);
    check(r#"{"field":{"$mod":[2,0]}}"#, "($fieldnames:field_3anumber)");
    check(r#"{"field":{"$regex":".*"}}"#, "($fieldnames:field_3astring)");
    check(r#"{"field":{"$size":6}}"#, "(field._5b_5d_3alength:6)");
    check(r#"{"field":{"$not":{"$mod":[2,0]}}}"#, &format!("({exists} AND NOT (($fieldnames:field_3anumber)))"));
    check(r#"{"$or":[{"field":"value"}]}"#, r#"((field_3astring:"value"))"#);
    check(r#"{"field":{"$beginsWith":"foo"}}"#, "(field_3astring:foo*)");
    check(
        r#"{"favorites.1":"Python"}"#,
        r#"((favorites.1_3astring:"Python") OR (favorites._5b_5d_3astring:"Python"))"#,
    );
    check(r#"{"name\\.first":"x"}"#, r#"(name_2efirst_3astring:"x")"#);
    check(r#"{"s":"a+b (c) \"d\" && e"}"#, r#"(s_3astring:"a\+b\ \(c\)\ \"d\"\ \&&\ e")"#);
    check(r#"{"s":"a-1"}"#, r#"(s_3astring:"a-1")"#);
    check(r#"{"$and":[{"a":1},{"b":{"$in":[]}}]}"#, "((a_3anumber:1))");
}

#[test]
fn selectors_need_fields_of_an_index() {
    let check = |selector: &str, expected: &[&str]| {
        let mut fields = Vec::new();
        translated(selector).fields(&mut fields);
        let shown =
            |(name, kind): &(String, &str)| if kind.is_empty() { name.clone() } else { format!("{name}:{kind}") };
        assert_eq!(fields.iter().map(shown).collect::<Vec<_>>(), expected, "{selector}");
    };
    check(
        r#"{"$text":"text","field1":true,"field2":42,"field3":{"$regex":".*"}}"#,
        &["$default", "field1:boolean", "field2:number", "field3:string"],
    );
    check(
        r#"{"$and":[{"f1":"v1"},{"f2":"v2"}],"$or":[{"f3":"v3"},{"f4":"v4"}],"$not":{"f5":"v5"}}"#,
        &["f1:string", "f2:string", "f3:string", "f4:string", "f5:string"],
    );
    check(r#"{"$and":[{"f2":"v1"},{"f2":"v2"}]}"#, &["f2:string"]);
    check(r#"{"field1":null,"field2":{"$size":3},"field3":{"$type":"type"}}"#, &[]);
    check(r#"{"$or":[{"f3":null},{"f4":null}],"$not":{"f5":null}}"#, &[]);
    check(r#"{"f":{"$in":[1,"x"]}}"#, &["f:number", "f:string"]);
    check(r#"{"f":{"$nin":[1]}}"#, &["f:number"]);
    check(r#"{"f.0":"x"}"#, &["f.0:string"]);
    check(r#"{"f":{"$elemMatch":{"$eq":"x"}}}"#, &["f.[]:string"]);
    check(r#"{"f":{"$elemMatch":{"g":1}}}"#, &["f.[].g:number"]);
    check(r#"{"a":"foo","b":{"$exists":false}}"#, &["a:string"]);
    check(r#"{"f":{"$keyMapMatch":{"$eq":"x"}}}"#, &[]);
    check(r#"{"f":{"$gt":[]}}"#, &[]);
}

#[test]
fn definitions_are_stored_as_recorded() {
    let check = |kind: SearchKind, given: &str, stored: &str, listed: &str| {
        let definition = TextDefinition::parse(kind, json(given).value()).unwrap();
        assert_eq!(definition.member(), json(stored), "{given}");
        let mut out = Vec::new();
        definition.write_listed(&mut out);
        assert_eq!(String::from_utf8(out).unwrap(), listed, "{given}");
        let again = TextDefinition::parse(kind, json(stored).value().get("index").unwrap()).unwrap();
        assert_eq!(again.member(), definition.member(), "what is stored is read back");
    };
    check(
        SearchKind::Nouveau,
        "{}",
        r#"{"index":{"default_analyzer":"keyword","default_field":{},"partial_filter_selector":{},"selector":{},"fields":"all_fields","index_array_lengths":true},"analyzer":{"name":"perfield","default":"keyword","fields":{"$default":"standard"}},"lucene_version":10}"#,
        r#"{"default_analyzer":"keyword","default_field":{},"selector":{},"fields":[],"index_array_lengths":true}"#,
    );
    check(
        SearchKind::Clouseau,
        r#"{"default_field":{"enabled":false}}"#,
        r#"{"index":{"default_analyzer":"keyword","default_field":{"enabled":false},"partial_filter_selector":{},"selector":{},"fields":"all_fields","index_array_lengths":true},"analyzer":"keyword"}"#,
        r#"{"default_analyzer":"keyword","default_field":{"enabled":false},"selector":{},"fields":[],"index_array_lengths":true}"#,
    );
    check(
        SearchKind::Nouveau,
        r#"{"fields":[{"name":"s","type":"string"},{"name":"n","type":"number"}],"default_analyzer":"english","default_field":{"enabled":true,"analyzer":"german"},"partial_filter_selector":{"n":{"$gt":1}},"index_array_lengths":false}"#,
        r#"{"index":{"default_analyzer":"english","default_field":{"enabled":true,"analyzer":"german"},"partial_filter_selector":{"n":{"$gt":1}},"selector":{},"fields":[{"name":"s","type":"string"},{"name":"n","type":"number"}],"index_array_lengths":false},"analyzer":{"name":"perfield","default":"english","fields":{"$default":"german"}},"lucene_version":10}"#,
        r#"{"default_analyzer":"english","default_field":{"enabled":true,"analyzer":"german"},"partial_filter_selector":{"n":{"$gt":1}},"selector":{},"fields":[{"s":"string"},{"n":"number"}],"index_array_lengths":false}"#,
    );
}

#[test]
fn definitions_that_make_no_sense_are_refused() {
    let check = |given: &str, name: &str| {
        let refusal = TextDefinition::parse(SearchKind::Clouseau, json(given).value()).unwrap_err();
        assert_eq!(refusal.name(), name, "{given}: {refusal}");
    };
    let fields = [
        r#"["s"]"#,
        r#""s""#,
        r#"[{"name":"s"}]"#,
        r#"[{"name":"s","type":"nosuch"}]"#,
        r#"[{"name":"","type":"string"}]"#,
        r#"[{"name":5,"type":"string"}]"#,
        r#"[{"s":"asc"}]"#,
        "true",
        "2.0",
        r#"[{"type":"number"}]"#,
        r#"[{"name":"age","type":"number"},{"name":"bad"}]"#,
        r#"[{"name":"age","type":"number"},"bla"]"#,
        r#"[{"name":"age","type":"number","x":1}]"#,
    ];
    for fields in fields {
        check(&format!(r#"{{"fields":{fields}}}"#), "invalid_index_fields_definition");
    }
    check(r#"{"nosuch":1}"#, "invalid_key");
    check(r#"{"partial_filter_selector":5}"#, "invalid_selector_json");
    check(r#"{"selector":[]}"#, "invalid_selector_json");
    check(r#"{"partial_filter_selector":{"a":{"$nosuch":1}}}"#, "invalid_operator");
    check(r#"{"index_array_lengths":"x"}"#, "invalid_boolean");
    check(r#"{"default_field":5}"#, "invalid_boolean");
    for given in ["5", "[]", r#""x""#, "null"] {
        check(given, "invalid_index");
    }
    let shown = TextDefinition::parse(SearchKind::Clouseau, json("5").value()).unwrap_err().to_string();
    assert_eq!(shown, "Text indexes must be an object, not: 5");
}

fn mapped(given: &str, document: &str) -> Vec<String> {
    let mut rows = Vec::new();
    Mapper::new(&definition(given)).map(json(document).value(), &mut |key, value| {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        rows.push(format!("{} {}", text(key), text(value)));
    });
    rows
}

#[test]
fn documents_become_fields() {
    let names = |rows: &[String]| rows.iter().filter(|row| row.starts_with(r#"["string","$fieldnames"]"#)).count();
    let rows = mapped("{}", r#"{"_id":"a","n":1.5,"b":false,"o":{"k.x":"v"},"l":["x",null,{"y":[]}],"e":{}}"#);
    assert_eq!(
        rows,
        [
            r#"["string","_5fid_3astring"] "a""#,
            r#"["text","$default"] "a""#,
            r#"["double","n_3anumber"] 1.5"#,
            r#"["string","b_3aboolean"] "false""#,
            r#"["string","o.k_2ex_3astring"] "v""#,
            r#"["text","$default"] "v""#,
            r#"["double","l._5b_5d_3alength"] 3"#,
            r#"["string","l._5b_5d_3astring"] "x""#,
            r#"["text","$default"] "x""#,
            r#"["double","l._5b_5d.y._5b_5d_3alength"] 0"#,
            r#"["string","$fieldnames"] "_5fid_3astring""#,
            r#"["string","$fieldnames"] "b_3aboolean""#,
            r#"["string","$fieldnames"] "e_3aobject""#,
            r#"["string","$fieldnames"] "l._5b_5d.y._5b_5d_3alength""#,
            r#"["string","$fieldnames"] "l._5b_5d.y_3aarray""#,
            r#"["string","$fieldnames"] "l._5b_5d_3alength""#,
            r#"["string","$fieldnames"] "l._5b_5d_3anull""#,
            r#"["string","$fieldnames"] "l._5b_5d_3astring""#,
            r#"["string","$fieldnames"] "n_3anumber""#,
            r#"["string","$fieldnames"] "o.k_2ex_3astring""#,
        ]
    );
    let fields =
        r#"{"fields":[{"name":"n","type":"number"},{"name":"l.[]","type":"string"},{"name":"t","type":"number"}]}"#;
    let rows = mapped(fields, r#"{"_id":"a","n":1,"t":"no number","l":["x",2]}"#);
    assert_eq!(rows.len() - names(&rows), 4, "{rows:?}");
    assert_eq!(names(&rows), 6, "{rows:?}");
    assert!(rows.contains(&r#"["string","l._5b_5d_3astring"] "x""#.to_owned()));
    let rows = mapped(r#"{"index_array_lengths":false,"default_field":false}"#, r#"{"l":["x"]}"#);
    assert_eq!(rows, [r#"["string","l._5b_5d_3astring"] "x""#, r#"["string","$fieldnames"] "l._5b_5d_3astring""#]);
    let rows = mapped(r#"{"default_analyzer":"english"}"#, r#"{"s":"x"}"#);
    assert_eq!(rows[0], r#"["text","s_3astring"] "x""#);
}

#[test]
fn long_strings_are_cut_between_characters() {
    assert_eq!(cut("abc"), "abc");
    let long = "é".repeat(MAX_STRING_BYTES);
    assert_eq!(cut(&long).len(), MAX_STRING_BYTES);
    assert_eq!(cut(&format!("a{long}")).len(), MAX_STRING_BYTES - 1);
}

#[test]
fn sorts_have_a_type() {
    let keys = |selector: &str, sort: &str| {
        let options = FindOptions::parse(json(&format!(r#"{{"selector":{selector},"sort":{sort}}}"#)).value()).unwrap();
        sort::keys(&options).map(|keys| sort::explained(&keys, options.sort.order).join(" "))
    };
    let check = |selector: &str, sort: &str, expected: &str| {
        assert_eq!(keys(selector, sort), Ok(expected.to_owned()), "{selector} {sort}");
    };
    check(r#"{"age":{"$gt":0}}"#, r#"["age:number"]"#, "age_3anumber<number>");
    check(r#"{"age":{"$gt":0}}"#, r#"[{"age":"desc"}]"#, "-age_3anumber<number>");
    check(r#"{"email":{"$gt":null}}"#, r#"["email:string"]"#, "email_3astring<string>");
    check(r#"{"favorites":{"$exists":true}}"#, r#"["favorites.[]:string"]"#, "favorites._5b_5d_3astring<string>");
    let two = r#"{"$or":[{"age":{"$gt":0}},{"email":{"$gt":null}},{"name.last":"Harvey"}]}"#;
    check(two, r#"["name.last","age"]"#, "name.last_3astring<string> age_3anumber<number>");
    check(two, r#"["name.last:string","age"]"#, "name.last_3astring<string> age_3anumber<number>");
    check(r#"{"$and":[{"age":{"$gt":0}},{"age":{"$lte":100}}]}"#, r#"["age"]"#, "age_3anumber<number>");
    for (selector, sort) in [
        (r#"{"email":{"$gt":null}}"#, "email"),
        (r#"{"$or":[{"age":{"$gt":0}},{"age":"34"}]}"#, "age"),
        (r#"{"b":true}"#, "b"),
    ] {
        let refusal = keys(selector, &format!(r#"["{sort}"]"#)).unwrap_err();
        assert_eq!(refusal, Refusal::TextSort(sort.to_owned()));
        assert_eq!(refusal.name(), "text_sort_error");
    }
}

#[test]
fn only_a_text_is_looked_for() {
    let refused = |selector: &str| clause(Selector::parse(json(selector).value()).unwrap().node()).unwrap_err();
    let refusal = refused(r#"{"$text":5}"#);
    assert_eq!((refusal.name(), refusal.to_string().as_str()), ("invalid_operator", "Invalid text operator: $text"));
}

#[test]
fn clauses_are_bounded_for_every_selector() {
    let check = |selector: &str| {
        let clause = translated(selector);
        let mut out = String::new();
        clause.write(&mut out);
        assert!(out.len() < 8 << 20, "{}", out.len());
        clause.fields(&mut Vec::new());
    };
    let positions =
        |levels: usize| format!("{}{{\"$gt\":0}}{}", r#"{"0":{"$elemMatch":"#.repeat(levels), "}}".repeat(levels));
    check(&positions(10));
    check(&positions(60));
    let nested = format!("{}1{}", "[".repeat(900), "]".repeat(900));
    check(&format!("{{\"a\":{nested}}}"));
    check(&format!("{{\"a\":{{\"$in\":[{}]}}}}", vec![nested.as_str(); 500].join(",")));
    check(&format!("{{\"a\":{{\"$all\":[{}]}}}}", vec![nested.as_str(); 2_000].join(",")));
    check(&format!("{{\"a\":[{}]}}", vec!["1"; 100_000].join(",")));
    let objects = format!("{}1{}", r#"{"b":"#.repeat(100), "}".repeat(100));
    check(&format!("{{\"$or\":[{}]}}", vec![format!("{{\"a\":{{\"$in\":[{objects}]}}}}"); 300].join(",")));
}
