//! Parses tokens into a tree, by Lucene's grammars:
//! ```text
//! query     = disjunction+
//! disjunction = conjunction (OR conjunction)*
//! conjunction = clause (AND clause)*
//! clause    = (+ | - | NOT)? ( field (< | <= | > | >=) word | (field (: | =))? (term | group | function) )
//! group     = ( query ) ^n? @n?
//! term      = word ~n? ^n? | "words" ~n? ^n? | /regex/ ^n? | range ^n?
//! ```

use super::functions;
use super::grammar::{self, Grammar, MAX_CLAUSES, too_many_clauses};
use super::lexer::Token;
use super::tree::{Modifier, Node, Text};

const MAX_DEPTH: usize = 100;

type Result<T> = std::result::Result<T, String>;

pub(super) struct Parser<'a> {
    grammar: Grammar,
    tokens: &'a [Token],
    at: usize,
    depth: usize,
    clauses: usize,
}

fn shown(token: &Token) -> String {
    match token {
        Token::Term(text) | Token::Quoted(text) | Token::Bound(text) => grammar::shown(&format!("{:?}", text.text())),
        Token::Number(text) | Token::Regex(text) | Token::Function(text) => grammar::shown(&format!("{text:?}")),
        token => format!("{token:?}"),
    }
}

pub(super) fn parse(grammar: Grammar, tokens: &[Token]) -> Result<Node> {
    let mut parser = Parser { grammar, tokens, at: 0, depth: 0, clauses: 0 };
    let node = parser.query(None)?;
    match parser.peek() {
        None => Ok(node),
        Some(_) => parser.unexpected(),
    }
}

impl Parser<'_> {
    pub(super) fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn peek_second(&self) -> Option<&Token> {
        self.tokens.get(self.at + 1)
    }

    pub(super) fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    pub(super) fn eat(&mut self, token: &Token) -> bool {
        let is_next = self.peek() == Some(token);
        self.at += usize::from(is_next);
        is_next
    }

    pub(super) fn expect(&mut self, token: &Token) -> Result<()> {
        if self.eat(token) { Ok(()) } else { self.unexpected() }
    }

    pub(super) fn unexpected<T>(&self) -> Result<T> {
        Err(match self.peek() {
            Some(token) => format!("Encountered {} as token {}", shown(token), self.at + 1),
            None => "Encountered <EOF>".to_owned(),
        })
    }

    pub(super) fn count(&mut self) -> Result<()> {
        self.clauses += 1;
        if self.clauses > MAX_CLAUSES { Err(too_many_clauses()) } else { Ok(()) }
    }

    fn query(&mut self, field: Option<&str>) -> Result<Node> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("parentheses are nested more than {MAX_DEPTH} deep"));
        }
        let mut clauses = vec![self.disjunction(field)?];
        while !matches!(self.peek(), None | Some(Token::Close)) {
            clauses.push(self.disjunction(field)?);
        }
        self.depth -= 1;
        let is_negative = matches!(clauses.as_slice(), [Node::Modified(Modifier::Prohibited, _)]);
        Ok(if clauses.len() > 1 || is_negative {
            Node::Clauses { and: false, clauses }
        } else {
            clauses.swap_remove(0)
        })
    }

    fn disjunction(&mut self, field: Option<&str>) -> Result<Node> {
        let mut clauses = vec![self.conjunction(field)?];
        while self.eat(&Token::Or) {
            clauses.push(self.conjunction(field)?);
        }
        Ok(if clauses.len() == 1 { clauses.swap_remove(0) } else { Node::Clauses { and: false, clauses } })
    }

    fn conjunction(&mut self, field: Option<&str>) -> Result<Node> {
        let mut clauses = vec![self.modified(field)?];
        while self.eat(&Token::And) {
            clauses.push(self.modified(field)?);
        }
        Ok(if clauses.len() == 1 { clauses.swap_remove(0) } else { Node::Clauses { and: true, clauses } })
    }

    fn modified(&mut self, field: Option<&str>) -> Result<Node> {
        self.count()?;
        let modifier = match self.peek() {
            Some(Token::Plus) => Some(Modifier::Required),
            Some(Token::Minus | Token::Not) => Some(Modifier::Prohibited),
            _ => None,
        };
        self.at += usize::from(modifier.is_some());
        let clause = self.clause(field)?;
        Ok(match modifier {
            Some(modifier) => Node::Modified(modifier, Box::new(clause)),
            None => clause,
        })
    }

    fn clause(&mut self, field: Option<&str>) -> Result<Node> {
        let mut named = field.map(str::to_owned);
        if let (Some(Token::Term(name)), Some(sign)) = (self.peek(), self.peek_second()) {
            let name = name.text();
            match sign {
                Token::Less | Token::LessEqual | Token::More | Token::MoreEqual => return self.comparison(name),
                Token::Colon | Token::Equal => {
                    self.at += 2;
                    named = Some(name);
                }
                _ => {}
            }
        }
        match self.peek() {
            Some(Token::Open) => self.group(named.as_deref()),
            Some(Token::Function(_)) => {
                let source = functions::function(self)?;
                Ok(Node::Functions { field: named, source })
            }
            _ => self.term(named),
        }
    }

    fn comparison(&mut self, field: String) -> Result<Node> {
        self.at += 1;
        let sign = self.next();
        let value = match self.next() {
            Some(Token::Term(text) | Token::Quoted(text)) => text,
            Some(Token::Number(number)) => Text::plain(&number),
            _ => {
                self.at -= 1;
                return self.unexpected();
            }
        };
        let open = Text::plain("*");
        let (lower, upper, includes) = match sign {
            Some(Token::Less) => (open, value, (true, false)),
            Some(Token::LessEqual) => (open, value, (true, true)),
            Some(Token::More) => (value, open, (false, true)),
            _ => (value, open, (true, true)),
        };
        Ok(Node::Range { field: Some(field), lower, upper, includes })
    }

    fn group(&mut self, field: Option<&str>) -> Result<Node> {
        self.at += 1;
        let inner = self.query(field)?;
        self.expect(&Token::Close)?;
        let inner = self.boost(inner)?;
        if self.grammar == Grammar::Standard && self.eat(&Token::At) {
            let count = self.number()?.parse().map_err(|_| "a whole number belongs behind @".to_owned())?;
            return Ok(Node::AtLeast(count, Box::new(inner)));
        }
        Ok(Node::Group(Box::new(inner)))
    }

    fn boost(&mut self, node: Node) -> Result<Node> {
        if !self.eat(&Token::Caret) {
            return Ok(node);
        }
        let boost = self.number()?.parse().map_err(|_| "a number belongs behind ^".to_owned())?;
        Ok(Node::Boost(Box::new(node), boost))
    }

    pub(super) fn number(&mut self) -> Result<String> {
        match self.peek() {
            Some(Token::Number(number)) => {
                let number = number.clone();
                self.at += 1;
                Ok(number)
            }
            _ => self.unexpected(),
        }
    }

    fn term(&mut self, field: Option<String>) -> Result<Node> {
        let node = match self.next() {
            Some(Token::Regex(pattern)) => Node::Regex { field, pattern },
            Some(Token::Term(text)) => self.word(field, text)?,
            Some(Token::Number(number)) => self.word(field, Text::plain(&number))?,
            Some(Token::Quoted(text)) => {
                let mut slop = None;
                if self.eat(&Token::Tilde) {
                    // The classic grammar permits a fraction and ignores it.
                    let number: f64 = self.number()?.parse().map_err(|_| "a number belongs behind ~".to_owned())?;
                    #[expect(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "saturates, digits have no sign"
                    )]
                    let places = number as u32;
                    slop = Some(places);
                }
                Node::Quoted { field, text, slop }
            }
            Some(Token::RangeStart(lower_in)) => self.range(field, lower_in)?,
            _ => {
                self.at -= 1;
                return self.unexpected();
            }
        };
        self.boost(node)
    }

    fn word(&mut self, field: Option<String>, text: Text) -> Result<Node> {
        let mut fuzzy = None;
        if self.eat(&Token::Tilde) {
            let mut similarity = 2.0;
            if let Some(Token::Number(number)) = self.peek() {
                similarity = number.parse::<f32>().map_err(|_| "a number belongs behind ~".to_owned())?;
                self.at += 1;
            }
            if similarity >= 1.0 && similarity.fract() != 0.0 {
                return Err("Fractional edit distances are not allowed.".to_owned());
            }
            fuzzy = Some(similarity);
        }
        Ok(Node::Term { field, text, fuzzy })
    }

    fn range(&mut self, field: Option<String>, lower_in: bool) -> Result<Node> {
        let lower = self.bound()?;
        self.expect(&Token::To)?;
        let upper = self.bound()?;
        match self.next() {
            Some(Token::RangeEnd(upper_in)) => Ok(Node::Range { field, lower, upper, includes: (lower_in, upper_in) }),
            _ => {
                self.at -= 1;
                self.unexpected()
            }
        }
    }

    fn bound(&mut self) -> Result<Text> {
        match self.next() {
            Some(Token::Bound(text)) => Ok(text),
            Some(Token::To) => Ok(Text::plain("TO")),
            _ => {
                self.at -= 1;
                self.unexpected()
            }
        }
    }
}
