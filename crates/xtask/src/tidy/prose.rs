//! Comments and string literals of Rust sources, as text for the rules about language ([`comments`], [`strings`]).

use super::tokens;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece<'a> {
    pub(super) text: &'a str,
    pub(super) line: usize,
    pub(super) is_documentation: bool,
}

pub(super) fn comments(source: &str) -> Vec<Piece<'_>> {
    tokens::texts(source).into_iter().filter_map(|(text, line)| comment(text, line)).collect()
}

/// String literals without a space are names, which are omitted.
pub(super) fn strings(source: &str) -> Vec<Piece<'_>> {
    let is_string = |text: &str| !text.starts_with('/') && text.contains(' ');
    let found = tokens::texts(source).into_iter().filter(|(text, _)| is_string(text));
    found.map(|(text, line)| Piece { text, line, is_documentation: false }).collect()
}

fn comment(text: &str, line: usize) -> Option<Piece<'_>> {
    let rest = text.strip_prefix("//")?;
    let is_documentation = rest.starts_with(['/', '!']);
    Some(Piece { text: rest.trim_start_matches(['/', '!']).trim(), line, is_documentation })
}

pub(super) fn openings<'a>(comments: &[Piece<'a>]) -> Vec<Piece<'a>> {
    let mut found: Vec<Piece<'a>> = Vec::new();
    let mut last = None;
    for piece in comments.iter().filter(|piece| piece.is_documentation) {
        if last != Some(piece.line - 1) {
            found.push(piece.clone());
        }
        last = Some(piece.line);
    }
    found
}

/// Lower case, except keywords in capitals such as `BEGIN` in SQL. Code between backticks and punctuation is left out.
pub(super) fn words(text: &str) -> Vec<String> {
    let prose: String = text.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let is_boundary = |c: char| !c.is_alphabetic() && c != '\'' && c != '_';
    let is_keyword = |word: &str| word.len() > 1 && word.chars().all(char::is_uppercase);
    let normalized = |word: &str| if is_keyword(word) { word.to_owned() } else { word.to_lowercase() };
    prose.split(is_boundary).filter(|word| !word.is_empty()).map(normalized).collect()
}
