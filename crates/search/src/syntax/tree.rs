//! The syntax tree of a query, independent of the index.

/// Characters without backslashes, with a flag for escaped ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Text {
    chars: Vec<(char, bool)>,
}

impl Text {
    pub(super) fn plain(text: &str) -> Self {
        Self { chars: text.chars().map(|c| (c, false)).collect() }
    }

    /// Returns `None` if the last backslash escapes nothing, or four hexadecimal digits do not follow `\u`.
    pub(super) fn unescape(image: &str) -> Option<Self> {
        let mut chars = Vec::with_capacity(image.len());
        let mut rest = image.chars();
        while let Some(c) = rest.next() {
            if c != '\\' {
                chars.push((c, false));
                continue;
            }
            match rest.next()? {
                'u' => chars.push((unicode(&mut rest)?, true)),
                escaped => chars.push((escaped, true)),
            }
        }
        Some(Self { chars })
    }

    pub(super) fn text(&self) -> String {
        self.chars.iter().map(|&(c, _)| c).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.chars.len()
    }

    pub(super) fn is(&self, text: &str) -> bool {
        self.chars.iter().copied().eq(text.chars().map(|c| (c, false)))
    }

    pub(super) fn is_wildcard(&self) -> bool {
        self.chars.iter().any(|&c| is_joker(c))
    }

    pub(super) fn leads_with_wildcard(&self) -> bool {
        self.chars.first().is_some_and(|&c| is_joker(c))
    }

    /// Returns the text before a `*` at the end, if that is the only wildcard.
    pub(super) fn prefix(&self) -> Option<String> {
        let (last, before) = self.chars.split_last()?;
        let is_prefix = *last == ('*', false) && !before.iter().any(|&c| is_joker(c));
        is_prefix.then(|| before.iter().map(|&(c, _)| c).collect())
    }

    pub(super) fn pattern(&self, normalize: impl Fn(&str) -> String) -> String {
        let mut out = String::new();
        let mut between = String::new();
        let flush = |between: &mut String, out: &mut String| {
            for c in normalize(between).chars() {
                if matches!(c, '*' | '?' | '\\') {
                    out.push('\\');
                }
                out.push(c);
            }
            between.clear();
        };
        for &(c, escaped) in &self.chars {
            if is_joker((c, escaped)) {
                flush(&mut between, &mut out);
                out.push(c);
            } else {
                between.push(c);
            }
        }
        flush(&mut between, &mut out);
        out
    }

    pub(super) fn shown(&self) -> String {
        self.text()
    }
}

fn is_joker((c, escaped): (char, bool)) -> bool {
    !escaped && matches!(c, '*' | '?')
}

fn unicode(rest: &mut std::str::Chars<'_>) -> Option<char> {
    let mut value = 0;
    for _ in 0..4 {
        value = value * 16 + rest.next()?.to_digit(16)?;
    }
    char::from_u32(value)
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Term { field: Option<String>, text: Text, fuzzy: Option<f32> },
    Quoted { field: Option<String>, text: Text, slop: Option<u32> },
    Regex { field: Option<String>, pattern: String },
    Range { field: Option<String>, lower: Text, upper: Text, includes: (bool, bool) },
    Functions { field: Option<String>, source: Function },
    Boost(Box<Node>, f32),
    Group(Box<Node>),
    AtLeast(usize, Box<Node>),
    Modified(Modifier, Box<Node>),
    Clauses { and: bool, clauses: Vec<Node> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Modifier {
    Required,
    Prohibited,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Function {
    Text(String),
    Wildcard(Text),
    Fuzzy(String, u8),
    Call { name: &'static str, numbers: Vec<u32>, sources: Vec<Function> },
}
