//! Runs the fuzz targets of this crate with random inputs; `fuzz/` runs them with libFuzzer.

mod analyzer;
mod query;
mod request;
mod vector;

use settee_model::testing::fuzz;

const QUERIES: &[&[u8]] = &[
    b"quick AND (fox OR -dog)^2 n:[1 TO 5} \"brown fox\"~3 wor?d* /f.x{1,3}/ qiuck~2 s:a\\ b",
    b"fn:ordered(quick fn:maxgaps(2 fn:unordered(fox dog))) n>=1 (a b c)@2 *:* _id:a fn:wildcard(q*)",
];

const WORDS: &[&str] = &[
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "\"",
    "\\",
    "/",
    "~",
    "~2",
    "^",
    "^3",
    ":",
    "*",
    "?",
    "+",
    "-",
    "!",
    "@2",
    " AND ",
    " OR ",
    " NOT ",
    " TO ",
    "&&",
    "||",
    "<",
    ">",
    "=",
    "fn:",
    "fn:or(",
    "fn:unorderedNoOverlaps(",
    "fn:extend(",
    "fn:atLeast(",
    "n:",
    "s:",
    "v:",
    "default:",
    "fox",
    "1e400",
    "4294967295",
    "\u{3000}",
    "\u{e9}",
    "中",
    "\u{301}",
    "\\u0041",
    ".*",
    "{99}",
    "<1-9>",
];

#[test]
fn any_query() {
    fuzz(QUERIES, WORDS, query::check);
}

#[test]
fn any_request() {
    let seeds: &[&[u8]] =
        &[b"[0 TO 5}\n-n<number>\n-_id\nW10\ns\nAlpha", b"{* TO 1e5]\n<distance,n,n,1,2,km>\nrelevance\nAQBv\nn\n1"];
    let words = [
        "\n", "[", "]", "{", "}", " TO ", "*", "<", ">", "number", "string", ",", "-", "AAAA", "AQ", "Aw", "_id", "n",
        "s",
    ];
    fuzz(seeds, &words, request::check);
}

#[test]
fn any_vector() {
    fuzz(&[&[0; 13], &[1, 2, 3, 4, 0x3f, 0x80, 0, 0, 0x7f, 0x80, 0, 0]], &["\u{7f}", "\0\0\0\0"], vector::check);
}

#[test]
fn any_analyzer() {
    let seeds: &[&[u8]] = &[
        br#"{"name":"perfield","default":"english","fields":{"a":{"name":"standard","stopwords":["x"]}}} The quick-fox's a@b.com"#,
        "\"cjk\" 中文ＡＢ한국어 x.y,z_1 \u{301}\u{1f600}\u{200d}\u{1f600}".as_bytes(),
    ];
    let names = "arabic armenian basque bulgarian catalan cjk classic czech danish dutch email english finnish french galician german \
                 greek hindi hungarian indonesian irish italian keyword latvian norwegian persian polish portugese romanian russian \
                 simple simple_asciifolding spanish standard swedish thai turkish whitespace";
    let mut words: Vec<&str> = names.split_whitespace().collect();
    words.extend([
        "\"", "{", "}", "[", "]", "'s", "\u{301}", "\u{200d}", "😀", "ก", "ひ", "カ", "İ", "ß", ".", "@", "_",
        "http://", "\u{fdfa}",
    ]);
    fuzz(seeds, &words, analyzer::check);
}
