//! Interval functions: `fn:ordered(quick fox)`.

use super::lexer::Token as Written;
use super::parser::Parser;
use super::tree::{Function, Text};
use crate::analysis::{Analyzer, Token};
use crate::error::Error;
use crate::query::{Interval, Query, Relative};

type Result<T, E = String> = std::result::Result<T, E>;

const MAX_DEPTH: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Arguments: at least one source.
    Sources,
    Two,
    /// Arguments: a number, then one source (false) or several (true).
    NumberFirst(bool),
    /// Arguments: source, number, source.
    NumberBetween,
    /// Arguments: source, number, number.
    NumbersLast,
}

const FUNCTIONS: [(&str, Shape); 19] = [
    ("atleast", Shape::NumberFirst(true)),
    ("maxgaps", Shape::NumberFirst(false)),
    ("maxwidth", Shape::NumberFirst(false)),
    ("ordered", Shape::Sources),
    ("unordered", Shape::Sources),
    ("or", Shape::Sources),
    ("phrase", Shape::Sources),
    ("unorderednooverlaps", Shape::Two),
    ("before", Shape::Two),
    ("after", Shape::Two),
    ("containing", Shape::Two),
    ("notcontaining", Shape::Two),
    ("containedby", Shape::Two),
    ("notcontainedby", Shape::Two),
    ("overlapping", Shape::Two),
    ("nonoverlapping", Shape::Two),
    ("within", Shape::NumberBetween),
    ("notwithin", Shape::NumberBetween),
    ("extend", Shape::NumbersLast),
];

pub(super) fn function(parser: &mut Parser<'_>) -> Result<Function> {
    nested(parser, 0)
}

fn nested(parser: &mut Parser<'_>, depth: usize) -> Result<Function> {
    if depth > MAX_DEPTH {
        return Err(format!("functions are nested more than {MAX_DEPTH} deep"));
    }
    parser.count()?;
    match parser.peek().cloned() {
        Some(Written::Function(name)) => {
            parser.next();
            let name = name.to_ascii_lowercase();
            parser.expect(&Written::Open)?;
            let function = arguments(parser, &name, depth)?;
            parser.expect(&Written::Close)?;
            Ok(function)
        }
        Some(Written::Term(text) | Written::Quoted(text)) => {
            parser.next();
            Ok(Function::Text(text.text()))
        }
        Some(Written::Number(number)) => {
            parser.next();
            Ok(Function::Text(number))
        }
        _ => parser.unexpected(),
    }
}

fn arguments(parser: &mut Parser<'_>, name: &str, depth: usize) -> Result<Function> {
    if name == "wildcard" {
        return match parser.next() {
            Some(Written::Term(text) | Written::Quoted(text)) => Ok(Function::Wildcard(text)),
            Some(Written::Number(number)) => Ok(Function::Wildcard(Text::plain(&number))),
            _ => Err("a word belongs into fn:wildcard".to_owned()),
        };
    }
    if name == "fuzzyterm" {
        return fuzzy(parser);
    }
    let Some(&(name, shape)) = FUNCTIONS.iter().find(|(known, _)| *known == name) else {
        return Err(format!("unknown function {name}"));
    };
    let (mut numbers, mut sources) = (Vec::new(), Vec::new());
    match shape {
        Shape::Sources => many(parser, depth, &mut sources)?,
        Shape::Two => {
            sources.push(nested(parser, depth + 1)?);
            sources.push(nested(parser, depth + 1)?);
        }
        Shape::NumberFirst(is_many) => {
            numbers.push(number(parser)?);
            if is_many {
                many(parser, depth, &mut sources)?;
            } else {
                sources.push(nested(parser, depth + 1)?);
            }
        }
        Shape::NumberBetween => {
            sources.push(nested(parser, depth + 1)?);
            numbers.push(number(parser)?);
            sources.push(nested(parser, depth + 1)?);
        }
        Shape::NumbersLast => {
            sources.push(nested(parser, depth + 1)?);
            numbers.extend([number(parser)?, number(parser)?]);
        }
    }
    Ok(Function::Call { name, numbers, sources })
}

fn fuzzy(parser: &mut Parser<'_>) -> Result<Function> {
    let text = match parser.next() {
        Some(Written::Term(text) | Written::Quoted(text)) => text.text(),
        Some(Written::Number(number)) => number,
        _ => return Err("a word belongs into fn:fuzzyTerm".to_owned()),
    };
    let edits = match parser.peek() {
        Some(Written::Number(_)) => number(parser)?.min(2),
        _ => 2,
    };
    Ok(Function::Fuzzy(text, u8::try_from(edits).unwrap_or(2)))
}

fn number(parser: &mut Parser<'_>) -> Result<u32> {
    parser.number()?.parse().map_err(|_| "a whole number is due".to_owned())
}

fn many(parser: &mut Parser<'_>, depth: usize, sources: &mut Vec<Function>) -> Result<()> {
    sources.push(nested(parser, depth + 1)?);
    while parser.peek() != Some(&Written::Close) {
        sources.push(nested(parser, depth + 1)?);
    }
    Ok(())
}

/// Returns `None` if the analyzer yields no words.
pub(super) fn meaning(
    function: &Function,
    field: &str,
    analyzer: &Analyzer,
    words: &dyn Fn(&str) -> Result<Vec<Token>, Error>,
) -> Result<Option<Interval>, Error> {
    Ok(match function {
        Function::Text(text) => {
            let mut terms: Vec<_> = words(text)?.into_iter().map(|token| Interval::Term(token.text)).collect();
            match terms.len() {
                0 => None,
                1 => terms.pop(),
                _ => Some(Interval::Phrase(terms)),
            }
        }
        Function::Wildcard(text) => {
            let pattern = text.pattern(|part| analyzer.normalize(part));
            Some(Interval::Terms(Box::new(Query::Wildcard { field: field.to_owned(), pattern })))
        }
        Function::Fuzzy(text, edits) => {
            let (field, text) = (field.to_owned(), analyzer.normalize(text));
            Some(Interval::Terms(Box::new(Query::Fuzzy { field, text, edits: *edits })))
        }
        Function::Call { name, numbers, sources } => {
            let sources = sources.iter().map(|source| meaning(source, field, analyzer, words));
            let sources: Vec<Option<Interval>> = sources.collect::<Result<_, Error>>()?;
            call(name, numbers, sources.into_iter().flatten().collect())
        }
    })
}

fn call(name: &str, numbers: &[u32], mut sources: Vec<Interval>) -> Option<Interval> {
    let first_number = numbers.first().copied().unwrap_or(0);
    match name {
        "ordered" => return Some(Interval::Ordered(sources)),
        "unordered" => return Some(Interval::Unordered(sources)),
        "or" => return Some(Interval::Or(sources)),
        "phrase" => return Some(Interval::Phrase(sources)),
        "atleast" => return Some(Interval::AtLeast(first_number as usize, sources)),
        _ => {}
    }
    let second = if sources.len() > 1 { sources.pop() } else { None };
    let first = Box::new(sources.pop()?);
    let relation = match name {
        "maxgaps" => return Some(Interval::MaxGaps(first_number, first)),
        "maxwidth" => return Some(Interval::MaxWidth(first_number, first)),
        "extend" => return Some(Interval::Extend(first, first_number, numbers.get(1).copied().unwrap_or(0))),
        "before" => Relative::Before,
        "after" => Relative::After,
        "containing" => Relative::Containing,
        "notcontaining" => Relative::NotContaining,
        "containedby" => Relative::ContainedBy,
        "notcontainedby" => Relative::NotContainedBy,
        "overlapping" => Relative::Overlapping,
        "nonoverlapping" => Relative::NonOverlapping,
        "unorderednooverlaps" => return Some(Interval::UnorderedNoOverlaps(first, Box::new(second?))),
        _ => {
            let within = name == "within";
            return Some(Interval::Within(first, first_number, Box::new(second?), within));
        }
    };
    Some(Interval::Filter(relation, first, Box::new(second?)))
}
