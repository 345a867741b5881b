//! [`members`]: the members of a document that a map function in Python can see. The analysis is a proof over tokens: a
//! function can access the document only through the name of its parameter. If that name occurs only in forms that name
//! a member (`doc['a']`, `doc.get('a')`, `'a' in doc`), the function sees no other members. Access without the name
//! (frames, closures, tracebacks, the garbage collector) and any construct that is not proven harmless end the proof,
//! and the function gets whole documents.

#[cfg(test)]
mod tests;
mod tokens;

use std::collections::BTreeSet;

use tokens::{Kind, Token, tokens};

/// Name under which `couchpy` must be configured.
pub(crate) const LANGUAGE: &str = "python";

/// Modules of the standard library whose functions access only their arguments. No other module is accepted.
const MODULES: &[&str] = &[
    "base64",
    "binascii",
    "bisect",
    "calendar",
    "cmath",
    "collections",
    "datetime",
    "decimal",
    "fractions",
    "hashlib",
    "heapq",
    "hmac",
    "itertools",
    "json",
    "math",
    "random",
    "re",
    "simplejson",
    "string",
    "struct",
    "textwrap",
    "time",
    "unicodedata",
    "urllib",
    "urlparse",
    "uuid",
    "zlib",
    "zoneinfo",
];

/// Names that give access to local variables of other frames, to code from text, or to modules with such access. They
/// are rejected as attributes too, because modules are attributes of modules. `case` is included because its patterns
/// read attributes in the syntax of arguments.
const FORBIDDEN: &[&str] = &[
    "JSONDecoder",
    "Formatter",
    "attrgetter",
    "breakpoint",
    "builtins",
    "case",
    "cell_contents",
    "codecs",
    "compile",
    "contextlib",
    "copy",
    "copyreg",
    "ctypes",
    "dataclasses",
    "decoder",
    "delattr",
    "dir",
    "enum",
    "eval",
    "exc_info",
    "exc_traceback",
    "exec",
    "execfile",
    "exit",
    "file",
    "format_map",
    "functools",
    "gc",
    "get_objects",
    "get_referents",
    "get_referrers",
    "getattr",
    "globals",
    "hasattr",
    "help",
    "importlib",
    "input",
    "inspect",
    "io",
    "last_traceback",
    "locals",
    "methodcaller",
    "modules",
    "monitoring",
    "open",
    "operator",
    "os",
    "pickle",
    "platform",
    "quit",
    "raw_input",
    "reload",
    "scanner",
    "setattr",
    "setprofile",
    "settrace",
    "stdin",
    "sys",
    "threading",
    "traceback",
    "types",
    "update_wrapper",
    "vars",
    "vformat",
    "weakref",
    "with_traceback",
    "wraps",
];

/// Prefixes of attributes of frames, code, generators, functions and tracebacks in all versions, and of special names.
const FORBIDDEN_PREFIXES: &[&str] = &["__", "ag_", "co_", "cr_", "f_", "func_", "gi_", "im_", "tb_"];

/// Private attributes lead from one module to others.
const PRIVATE: char = '_';

/// Operators that bind less tightly than `in`, or end the operand before it.
const BEFORE_MEMBERSHIP_TEST: &[&str] = &[
    "if", "elif", "while", "and", "or", "not", "return", "yield", "assert", "else", "(", "[", "{", ",", ":", "=", ";",
];

/// Operators that bind less tightly than `in` and are not comparisons: in `'a' in doc == x` the document itself is
/// compared.
const AFTER_MEMBERSHIP_TEST: &[&str] = &["and", "or", "if", "else", "for", ")", "]", "}", ",", ":", ";"];

/// Returns the members that the function can see; `None` if it may see the whole document.
pub(crate) fn members(source: &str) -> Option<BTreeSet<&str>> {
    let tokens = tokens(source)?;
    let [line, def, name, open, parameter, close, colon, body @ ..] = &tokens[..] else { return None };
    let is_function = (line.kind, line.text) == (Kind::Line, "")
        && def.text == "def"
        && (name.kind, parameter.kind) == (Kind::Name, Kind::Name)
        && (open.text, close.text, colon.text) == ("(", ")", ":");
    let is_alone = !body.iter().any(|token| token.kind == Kind::Line && token.text.is_empty());
    if !is_function || !is_alone {
        return None;
    }
    let mut analysis =
        MemberAnalysis { tokens: &tokens, parameter: parameter.text, members: BTreeSet::new(), uses_has_key: false };
    (analysis.is_harmless(2) && analysis.is_harmless(4)).then_some(())?;
    for index in 7..tokens.len() {
        analysis.check(index)?;
    }
    // Without this method of dictionaries, the exception has the document as its `obj`.
    let is_obj = |token: &Token<'_>| match token.kind {
        Kind::Name | Kind::Formatted => words(token.text).any(|word| word == "obj"),
        _ => false,
    };
    (!analysis.uses_has_key || !tokens.iter().any(is_obj)).then_some(analysis.members)
}

struct MemberAnalysis<'t, 'a> {
    tokens: &'t [Token<'a>],
    parameter: &'a str,
    members: BTreeSet<&'a str>,
    uses_has_key: bool,
}

impl<'a> MemberAnalysis<'_, 'a> {
    fn code(&self, index: usize) -> &'a str {
        match self.tokens.get(index) {
            Some(Token { kind: Kind::Name | Kind::Number | Kind::Operator, text }) => text,
            Some(Token { kind: Kind::Line, .. }) => "\n",
            _ => "",
        }
    }

    fn check(&mut self, index: usize) -> Option<()> {
        let token = self.tokens[index];
        match token.kind {
            Kind::Name if token.text == self.parameter && self.code(index - 1) != "." => self.check_use(index),
            Kind::Name => self.is_harmless(index).then_some(()),
            Kind::Formatted => {
                let is_bad = |word: &str| {
                    is_forbidden(word) || word == "format" || word.starts_with(PRIVATE) || word == self.parameter
                };
                (!words(token.text).any(is_bad)).then_some(())
            }
            Kind::Line | Kind::Number | Kind::Plain | Kind::Text | Kind::Operator => Some(()),
        }
    }

    fn check_use(&mut self, index: usize) -> Option<()> {
        let after = |ahead| self.code(index + ahead);
        let at = match (after(1), after(2)) {
            ("[", _) if after(3) == "]" => index + 2,
            (".", "get") if after(3) == "(" && matches!(after(5), ")" | ",") => index + 4,
            (".", "has_key") if after(3) == "(" && after(5) == ")" => {
                self.uses_has_key = true;
                index + 4
            }
            ("[" | ".", _) => return None,
            _ => self.membership_test(index)?,
        };
        self.add(at)
    }

    fn membership_test(&self, index: usize) -> Option<usize> {
        let words = if self.code(index - 2) == "not" { 2 } else { 1 };
        let string = index - words - 1;
        let is_test = self.code(index - 1) == "in"
            && (self.code(string - 1) == "\n" || BEFORE_MEMBERSHIP_TEST.contains(&self.code(string - 1)))
            && (self.code(index + 1) == "\n"
                || index + 1 == self.tokens.len()
                || AFTER_MEMBERSHIP_TEST.contains(&self.code(index + 1)));
        is_test.then_some(string)
    }

    /// Names that are not ASCII end the proof: in Python 2 they equal no byte string.
    fn add(&mut self, index: usize) -> Option<()> {
        let token = self.tokens.get(index)?;
        if token.kind != Kind::Plain || !token.text.is_ascii() {
            return None;
        }
        self.members.insert(token.text);
        Some(())
    }

    fn is_harmless(&self, index: usize) -> bool {
        let name = self.tokens[index].text;
        let is_attribute = self.code(index - 1) == ".";
        match name {
            "import" => return self.is_harmless_import(index),
            "format" => return is_attribute && self.is_harmless_format(index - 2),
            // `re.compile` is common. The code that `compile` produces cannot run without other forbidden names.
            "compile" => return is_attribute && self.code(index - 2) == "re" && self.code(index - 3) != ".",
            _ => {}
        }
        // An assignment to an attribute could replace a function of a module.
        let is_private = name.starts_with(PRIVATE) || is_assignment(self.code(index + 1));
        !(is_forbidden(name) || is_attribute && is_private)
    }

    /// Format strings can access attributes, so the receiver of `format` must be one whole literal without such access.
    fn is_harmless_format(&self, string: usize) -> bool {
        let is_whole = self.tokens[string].kind == Kind::Plain
            && !matches!(self.tokens[string - 1].kind, Kind::Plain | Kind::Text | Kind::Formatted);
        let is_simple = |field: &str| {
            let rest = field.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == PRIVATE);
            // An empty field is an escaped brace.
            rest.starts_with(['}', ':', '!']) || field.is_empty()
        };
        is_whole && self.tokens[string].text.split('{').skip(1).all(is_simple)
    }

    /// Accepts `import a, b.c as d` and `from a.b import c, d as e` from [`MODULES`].
    fn is_harmless_import(&self, index: usize) -> bool {
        let is_start = |code: &str| matches!(code, "\n" | ";" | ":");
        let is_path = |code: &str| code == "." || !code.is_empty() && !is_start(code) && code != "from";
        let mut from = index - 1;
        while is_path(self.code(from)) {
            from -= 1;
        }
        let imported =
            || (index + 1..).map(|index| self.code(index)).take_while(|code| !matches!(*code, "\n" | ";" | ""));
        if imported().any(|code| code.starts_with(PRIVATE) || code == "*") {
            return false;
        }
        if self.code(from) == "from" {
            return is_start(self.code(from - 1)) && MODULES.contains(&self.code(from + 1));
        }
        let mut is_first = true;
        is_start(self.code(index - 1))
            && imported().all(|code| {
                let is_known = !is_first || MODULES.contains(&code);
                is_first = code == ",";
                is_known
            })
    }
}

fn is_forbidden(name: &str) -> bool {
    FORBIDDEN.contains(&name) || FORBIDDEN_PREFIXES.iter().any(|beginning| name.starts_with(beginning))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != PRIVATE)
}

fn is_assignment(code: &str) -> bool {
    code.ends_with('=') && !matches!(code, "==" | "!=" | "<=" | ">=")
}
