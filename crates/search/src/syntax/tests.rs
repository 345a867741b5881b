//! Meaning of queries for the fields `default` and `s` (texts), `k` (keyword) and `n` (numbers).
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::analysis::{Analyzer, Analyzers, Dialect};
use crate::limits::SearchLimits;

struct Known;

impl Fields for Known {
    fn is_number(&self, field: &str) -> bool {
        field == "n" || field == "both"
    }

    fn is_text(&self, field: &str) -> bool {
        field != "n"
    }
}

fn analyzers() -> Analyzers {
    let named = |name| Analyzer::named(Dialect::Nouveau, name, None).unwrap();
    let fields = vec![("k".to_owned(), named("keyword")), ("e".to_owned(), named("english"))];
    Analyzers { default: named("standard"), fields }
}

fn read(grammar: Grammar, text: &str) -> String {
    let (analyzers, limits) = (&analyzers(), &SearchLimits::none());
    let context = Context { grammar, analyzers, fields: &Known, locale: Locale::default(), limits };
    match parse(&context, text) {
        Ok(query) => shown(&query),
        Err(error) => format!("! {error}"),
    }
}

fn shown(query: &Query) -> String {
    use std::ops::Bound;
    fn bounds<T: ToString>(lower: &Bound<T>, upper: &Bound<T>) -> String {
        let text = |bound: &Bound<T>| match bound {
            Bound::Included(value) | Bound::Excluded(value) => value.to_string(),
            Bound::Unbounded => "*".to_owned(),
        };
        let open = if matches!(lower, Bound::Excluded(_)) { '{' } else { '[' };
        let close = if matches!(upper, Bound::Excluded(_)) { '}' } else { ']' };
        format!("{open}{} TO {}{close}", text(lower), text(upper))
    }
    match query {
        Query::All => "*:*".to_owned(),
        Query::None => "NONE".to_owned(),
        Query::Term { field, text } => format!("{field}:{text}"),
        Query::Number { field, value } => format!("{field}={value}"),
        Query::Phrase { field, terms, slop } => {
            let terms: Vec<_> = terms.iter().map(|(place, text)| format!("{place}/{text}")).collect();
            format!("{field}:\"{}\"~{slop}", terms.join(" "))
        }
        Query::Prefix { field, prefix } => format!("{field}:{prefix}…"),
        Query::Wildcard { field, pattern } => format!("{field}:W({pattern})"),
        Query::Regex { field, pattern } => format!("{field}:/{pattern}/"),
        Query::Fuzzy { field, text, edits } => format!("{field}:{text}~{edits}"),
        Query::Range { field, lower, upper } => format!("{field}:{}", bounds(lower, upper)),
        Query::NumberRange { field, lower, upper } => format!("{field}={}", bounds(lower, upper)),
        Query::Boolean(boolean) => {
            let parts = [("+", &boolean.must), ("#", &boolean.filter), ("", &boolean.should), ("-", &boolean.must_not)];
            let all = parts
                .iter()
                .flat_map(|(sign, queries)| queries.iter().map(move |query| format!("{sign}{}", shown(query))));
            let least = match boolean.minimum_should_match {
                0 => String::new(),
                count => format!("@{count}"),
            };
            format!("({}){least}", all.collect::<Vec<_>>().join(" "))
        }
        Query::Boost(inner, boost) => format!("{}^{boost}", shown(inner)),
        Query::Intervals { field, source } => format!("{field}:{source:?}"),
        other => format!("{other:?}"),
    }
}

#[test]
fn queries_are_interpreted_as_by_lucene() {
    for (text, expected) in [
        ("fox", "default:fox"),
        ("FOX cats", "(default:fox default:cats)"),
        ("a AND b OR c", "(+default:a +default:b default:c)"),
        ("a OR b AND c", "(+default:b +default:c default:a)"),
        ("a AND NOT b", "(+default:a -default:b)"),
        ("NOT a", "(-default:a)"),
        ("a AND (NOT b)", "(+default:a +(-default:b))"),
        ("((a))", "default:a"),
        ("k:(x OR y)", "(k:x k:y)"),
        ("(a b c)@2", "(default:a default:b default:c)@2"),
        ("(a b)^2@1", "(default:a default:b)@1^2"),
        ("a@2", "! Syntax Error, cannot parse a@2: Encountered At as token 2"),
        ("x-y", "(default:x default:y)"),
        ("\"x-y z\"~3", "default:\"0/x 1/y 2/z\"~3"),
        ("e:\"jump over the lazy\"", "e:\"0/jump 1/over 3/lazi\"~0"),
        ("e:the", "NONE"),
        ("fox e:the", "default:fox"),
        ("*:*", "*:*"),
        ("k:Alp*", "k:Alp…"),
        ("Alp*", "default:alp…"),
        ("A?b\\*C*", "default:W(a?b\\*c*)"),
        ("k:q\\*", "k:q*"),
        ("k:\\u0061\\+b", "k:a+b"),
        ("quikc~ Quikc~1 q~0.5", "(default:quikc~2 default:quikc~1 default:q~0)"),
        ("/f.x/^2", "default:/f.x/^2"),
        ("[A TO b}", "default:[a TO b}"),
        ("k:{A TO *]", "k:{A TO *]"),
        ("k:[TO TO TO]", "k:[TO TO TO]"),
        ("n:[1 TO 2.5}", "n=[1 TO 2.5}"),
        ("n:[* TO *]", "n=[* TO *]"),
        ("n>=1 n<2 k>a", "(n=[1 TO *] n=[* TO 2} k:{a TO *])"),
        ("n=1", "n=1"),
        ("n:\\-3 n:\"-3\"", "(n=-3 n=-3)"),
        ("n:1e10 n:1E10 n:1,000 n:1* n:1~", "(n=1 n=10000000000 n=1000 n=1 n=1)"),
        ("fox^2 cats", "(default:fox^2 default:cats)"),
        ("a && b || c !d", "(+default:a +default:b default:c -default:d)"),
        ("fn:ordered(a b)", "default:Ordered([Term(\"a\"), Term(\"b\")])"),
        ("e:fn:maxgaps(2 fn:unordered(foxes \"the dog\"))", "e:MaxGaps(2, Unordered([Term(\"fox\"), Term(\"dog\")]))"),
        ("fn:within(a 3 b)", "default:Within(Term(\"a\"), 3, Term(\"b\"), true)"),
        ("fn:atLeast(2 a b c)", "default:AtLeast(2, [Term(\"a\"), Term(\"b\"), Term(\"c\")])"),
        ("*ick", "! Leading wildcard is not allowed: default:*ick"),
        ("k:*", "! Leading wildcard is not allowed: k:*"),
        ("n:foo", "! Could not parse text \"foo\" using java.text.DecimalFormat"),
    ] {
        assert_eq!(read(Grammar::Standard, text), expected, "{text}");
    }
}

#[test]
fn the_classic_grammar_differs() {
    for (text, expected) in [
        ("a@b.c", "(default:a default:b.c)"),
        ("n:[1 TO 2]", "n=[1 TO 2]"),
        ("n:5", "n=5"),
        ("n:x", "n:x"),
        ("both:5", "(both=5 both:5)"),
        ("k:<x>", "k:<x>"),
        ("\"a b\"~1.9", "default:\"0/a 1/b\"~1"),
        ("fn:x", "fn:x"),
        ("*a", "! Cannot parse '*a': '*' or '?' not allowed as first character in WildcardQuery"),
        ("(a", "! Cannot parse '(a': Encountered <EOF>"),
    ] {
        assert_eq!(read(Grammar::Classic, text), expected, "{text}");
    }
}

#[test]
fn invalid_queries_are_rejected() {
    let nested = format!("{}a{}", "(".repeat(200), ")".repeat(200));
    let many = "a ".repeat(2_000);
    for text in [
        "(fox",
        "fox)",
        "fox AND",
        "AND",
        "OR fox",
        "a:b:c",
        "foo:",
        "[",
        "\"abc",
        "[a TO b]x:",
        "n:[1 TO",
        "n:[1 2]",
        "fox AND AND slow",
        "fox~x y:",
        "user@example.com",
        "()",
        " ",
        "",
        "fox^-1",
        "fox^x",
        "fox^",
        "n:-3",
        "a\\",
        "fox~1.5",
        "fn:nosuch(a)",
        "fn:ordered()",
        "fn:maxgaps(a b)",
        "/a",
        &nested,
        &many,
    ] {
        let error = read(Grammar::Standard, text);
        assert!(error.starts_with(&format!("! Syntax Error, cannot parse {text}:")), "{text}: {error}");
    }
    assert!(read(Grammar::Standard, &"a".repeat(2 << 20)).starts_with("! a query has at most"));
}

#[test]
fn numbers_follow_the_locale() {
    for (locale, text, expected) in [
        ("en", "1,234.5", Some(1234.5)),
        ("de", "1.234,5", Some(1234.5)),
        ("de-CH", "1’234.5", Some(1234.5)),
        ("fr", "1\u{202f}234,5", Some(1234.5)),
        ("xx", "2.5x", Some(2.5)),
        ("en", "-.5", Some(-0.5)),
        ("en", "1E", Some(1.0)),
        ("en", "1E-2", Some(0.01)),
        ("en", "1.5.3", Some(1.5)),
        ("en", "+1", None),
        ("en", "", None),
        ("en", "-", None),
    ] {
        assert_eq!(Locale::named(locale).parse(text), expected, "{locale} {text}");
    }
}
