//! Numbers as Java parses them for a locale: the longest numeric prefix, with grouping separators and a capital `E`.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Locale {
    decimal: char,
    group: char,
}

impl Default for Locale {
    fn default() -> Self {
        Self { decimal: '.', group: ',' }
    }
}

impl Locale {
    /// Returns the locale of a language tag such as `de` or `fr-CA`; English for unknown tags.
    #[must_use]
    pub fn named(tag: &str) -> Self {
        let mut parts = tag.split(['-', '_']);
        let language = parts.next().unwrap_or_default().to_ascii_lowercase();
        let country = parts.next_back().unwrap_or_default().to_ascii_uppercase();
        let (decimal, group) = match (language.as_str(), country.as_str()) {
            ("de" | "it" | "fr", "CH") | ("de", "LI") => ('.', '\u{2019}'),
            ("es", "MX" | "US" | "PR" | "DO" | "GT" | "HN" | "NI" | "PA" | "PE" | "SV") => ('.', ','),
            ("de", "AT") => (',', '\u{a0}'),
            ("pt", "PT") => (',', '\u{a0}'),
            (
                "de" | "es" | "it" | "nl" | "pt" | "da" | "tr" | "id" | "el" | "ro" | "hr" | "sl" | "sr" | "vi" | "is"
                | "ca" | "eu" | "gl" | "az" | "bs" | "mk" | "fo",
                _,
            ) => (',', '.'),
            ("fr", _) => (',', '\u{202f}'),
            (
                "ru" | "uk" | "pl" | "cs" | "sk" | "sv" | "nb" | "nn" | "no" | "fi" | "hu" | "bg" | "et" | "lt" | "lv"
                | "be" | "kk" | "hy" | "sq" | "ka",
                _,
            ) => (',', '\u{a0}'),
            _ => ('.', ','),
        };
        Self { decimal, group }
    }

    pub(super) fn parse(self, text: &str) -> Option<f64> {
        let (sign, rest) = match text.strip_prefix('-') {
            Some(rest) => ("-", rest),
            None => ("", text),
        };
        if rest.starts_with('∞') {
            return Some(if sign.is_empty() { f64::INFINITY } else { f64::NEG_INFINITY });
        }
        let mut digits = String::from(sign);
        let mut seen = (false, false);
        let mut chars = rest.char_indices().peekable();
        while let Some(&(at, c)) = chars.peek() {
            match c {
                '0'..='9' => {
                    digits.push(c);
                    seen.0 = true;
                }
                c if c == self.decimal && !seen.1 => {
                    digits.push('.');
                    seen.1 = true;
                }
                c if c == self.group && !seen.1 && seen.0 => {}
                'E' if seen.0 => {
                    digits.push_str(exponent(&rest[at..]));
                    break;
                }
                _ => break,
            }
            chars.next();
        }
        if !seen.0 {
            return None;
        }
        digits.parse().ok().filter(|number: &f64| !number.is_nan())
    }
}

fn exponent(text: &str) -> &str {
    let from = if text[1..].starts_with('-') { 2 } else { 1 };
    let length = text[from..].bytes().take_while(u8::is_ascii_digit).count();
    if length == 0 { "" } else { &text[..from + length] }
}

/// The whole text must be a number, as in `_search`.
pub(super) fn whole(text: &str) -> Option<f64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    text.parse().ok().filter(|number: &f64| is_plain && number.is_finite())
}
