//! Random functions of the subset and slightly outside of it.

mod constructs;

use std::fmt::Write as _;

use settee_model::testing::Random;

use super::documents::{NAMES, NUMBERS, STRINGS};

pub(crate) struct Writer<'r> {
    random: &'r mut Random,
    out: String,
    variables: Vec<String>,
    functions: Vec<String>,
    next: usize,
    loops: usize,
}

impl Writer<'_> {
    pub(crate) fn function(random: &mut Random) -> String {
        let mut writer =
            Writer { random, out: String::new(), variables: Vec::new(), functions: Vec::new(), next: 0, loops: 0 };
        let head = writer.random.pick(&["function(doc) {", "function map(doc) {", "doc => {", "(doc) => {"]);
        writer.out.push_str(head);
        if writer.random.chance(20) {
            writer.out.push_str(" function help(x, y) { ");
            writer.variables = vec!["x".to_owned(), "y".to_owned()];
            writer.statement(2);
            writer.out.push_str(" return ");
            writer.expression(2);
            writer.out.push_str("; } var h = help(doc.a, 1);");
            writer.variables = vec!["h".to_owned()];
        }
        if writer.random.chance(20) {
            writer.polyfill();
        }
        for _ in 0..1 + writer.random.below(4) {
            writer.statement(0);
        }
        writer.out.push_str(" emit(");
        writer.expression(1);
        writer.out.push_str(", ");
        writer.expression(1);
        writer.out.push_str("); }");
        writer.out
    }

    fn fresh(&mut self) -> String {
        self.next += 1;
        format!("v{}", self.next)
    }

    fn block(&mut self, depth: usize) {
        let known = self.variables.len();
        self.out.push_str(" {");
        for _ in 0..=self.random.below(2) {
            self.statement(depth + 1);
        }
        self.out.push_str(" }");
        self.variables.truncate(known);
    }

    fn statement(&mut self, depth: usize) {
        match self.random.below(if depth > 2 { 10 } else { 20 }) {
            0..=2 => {
                let name = self.fresh();
                let kind = self.random.pick(&["var", "let", "const"]);
                write!(self.out, " {kind} {name} = ").unwrap();
                self.expression(1);
                self.out.push(';');
                if kind != "const" {
                    self.variables.push(name);
                }
            }
            3 => {
                self.out.push_str(" emit(");
                self.expression(2);
                self.out.push_str(", ");
                self.expression(2);
                self.out.push_str(");");
            }
            4 if !self.variables.is_empty() => {
                let name = self.variables[self.random.below(self.variables.len())].clone();
                let operator = self.random.pick(&["=", "+=", "-=", "*=", "||=", "&&=", "??=", "|=", "%="]);
                write!(self.out, " {name} {operator} ").unwrap();
                self.expression(2);
                self.out.push(';');
            }
            5 => {
                self.out.push_str(" log(");
                self.expression(2);
                self.out.push_str(");");
            }
            6 => {
                let name = self.fresh();
                let made = self.random.pick(&["{}", "[]", "{a: 1, '7': 2}", "[1, 'b']"]);
                write!(self.out, " var {name} = {made}; ").unwrap();
                let change = self.random.pick(&[".a = ", ".b = ", "['c'] = ", "[0] = ", "[1] = ", ".x = {}; "]);
                if !(made.starts_with('[') && change.starts_with('.')) {
                    write!(self.out, "{name}{change}").unwrap();
                    self.expression(2);
                    self.out.push(';');
                }
                self.variables.push(name);
            }
            7 => self.assign_global(),
            8 => self.change_date(),
            9 => self.polyfill(),
            15 | 16 => self.function_variable(depth),
            17 => self.global_loop(depth),
            18 => self.closure_before_declarations(),
            10 | 11 => {
                self.out.push_str(" if (");
                self.expression(1);
                self.out.push(')');
                self.block(depth);
                if self.random.chance(40) {
                    self.out.push_str(" else");
                    self.block(depth);
                }
            }
            12 => {
                let (name, limit) = (self.fresh(), self.random.below(4));
                write!(self.out, " for (var {name} = 0; {name} < {limit}; {name}++)").unwrap();
                self.looped(depth, Some("i"));
            }
            13 => {
                let name = self.fresh();
                let object = self.random.pick(&["doc", "doc.o", "doc.l", "{b: 1, '3': 2, a: 3}", "doc.s", "doc.a"]);
                let kind = self.random.pick(&["var", "let", "const"]);
                write!(self.out, " for ({kind} {name} in {object})").unwrap();
                self.looped(depth, Some(&name));
            }
            14 => {
                let name = self.fresh();
                let object =
                    self.random.pick(&["(doc.l || [])", "[1, 'b', null]", "Object.keys(doc)", "[[1, 2], [3, 4]]"]);
                write!(self.out, " for (const {name} of {object})").unwrap();
                self.looped(depth, Some(&name));
            }
            19 if self.random.chance(30) => {
                self.out.push_str(" switch (");
                self.expression(2);
                self.out.push_str(") { case 'a':");
                self.statement(3);
                self.out.push_str(" break; case 1: case ");
                self.expression(3);
                self.out.push(':');
                let statement = self.random.pick(&[" log('two');", " emit('case', 1); break;", " break;"]);
                self.out.push_str(statement);
                self.out.push_str(" default: log('none'); }");
            }
            19 if self.random.chance(40) => {
                self.out.push_str(" try");
                self.block(depth);
                self.out.push_str(" catch (e) { log('caught');");
                if self.random.chance(30) {
                    let known = self.variables.len();
                    self.statement(3);
                    self.variables.truncate(known);
                }
                self.out.push_str(" }");
            }
            _ => {
                self.out.push_str(" (doc.l || []).forEach(function(x, i) {");
                let known = self.variables.len();
                self.variables.push("x".to_owned());
                self.statement(depth + 1);
                self.out.push_str(" emit(x, i); });");
                self.variables.truncate(known);
            }
        }
    }

    fn looped(&mut self, depth: usize, variable: Option<&str>) {
        let known = self.variables.len();
        self.loops += 1;
        self.out.push_str(" {");
        if let Some(name) = variable.filter(|name| *name != "i") {
            write!(self.out, " log({name});").unwrap();
        }
        self.statement(depth + 1);
        if self.random.chance(20) {
            self.out.push_str(" if (");
            self.expression(2);
            let exit = self.random.pick(&[") break;", ") continue;"]);
            self.out.push_str(exit);
            self.statement(depth + 1);
        }
        self.out.push_str(" }");
        self.loops -= 1;
        self.variables.truncate(known);
    }

    fn list(&mut self, depth: usize) {
        let list = self.random.below(7);
        match list {
            0 | 1 => self.out.push_str("(doc.l || [])"),
            2 => self.out.push_str("Object.keys(doc)"),
            3 => {
                self.out.push_str("String(");
                self.expression(depth + 1);
                let by = self.random.pick(&["','", "' '", "''", "'a'", "/\\W+/", "/,/", "/[aeiou]/", "/\\s*,\\s*/"]);
                write!(self.out, ").split({by})").unwrap();
            }
            4 => {
                self.list(depth + 1);
                let more =
                    self.random.pick(&[".slice(1)", ".slice(0, 2)", ".concat([1])", ".concat(2, [])", ".slice()"]);
                self.out.push_str(more);
            }
            _ => {
                self.out.push('[');
                for number in 0..self.random.below(4) {
                    self.out.push_str(if number == 0 { "" } else { ", " });
                    self.expression(depth + 1);
                }
                self.out.push(']');
            }
        }
    }

    fn text(&mut self, depth: usize) {
        match self.random.below(4) {
            0 => self.out.push_str("doc.s"),
            1 => write!(self.out, "'{}'", self.random.pick(&STRINGS)).unwrap(),
            _ => {
                self.out.push_str("String(");
                self.expression(depth + 1);
                self.out.push(')');
            }
        }
    }

    fn simple(&mut self) {
        match self.random.below(12) {
            0 => write!(self.out, "{}", self.random.pick(&NUMBERS)).unwrap(),
            1 | 2 => write!(self.out, "'{}'", self.random.pick(&STRINGS)).unwrap(),
            3 => self.out.push_str(self.random.pick(&["true", "false", "null", "undefined", "NaN", "Infinity", "-0"])),
            4 | 5 if !self.variables.is_empty() => {
                let name = &self.variables[self.random.below(self.variables.len())];
                self.out.push_str(name);
            }
            6 => {
                let name = self.random.pick(&NAMES[..7]);
                write!(self.out, "doc.o?.{name}").unwrap();
            }
            7 => {
                let name = self.random.pick(&NAMES[..10]);
                write!(self.out, "(doc.o || {{}})['{name}']").unwrap();
            }
            8 => self.out.push_str(self.random.pick(&["doc", "doc.l", "doc.o", "doc._id", "doc.l?.[0]"])),
            _ => write!(self.out, "doc.{}", self.random.pick(&NAMES[..8])).unwrap(),
        }
    }

    fn expression(&mut self, depth: usize) {
        if depth > 4 {
            return self.simple();
        }
        match self.random.below(29) {
            26 => self.call_of_variable(depth),
            27 => self.changed_date(depth),
            28 => self.current(depth),
            0..5 => self.simple(),
            5..9 => {
                let operator = self.random.pick(&[
                    "+", "+", "+", "-", "*", "/", "%", "**", "==", "!=", "===", "!==", "<", "<=", ">", ">=", "&", "|",
                    "^", "<<", ">>", ">>>",
                ]);
                self.out.push('(');
                self.sides(depth, operator);
                self.out.push(')');
            }
            9 | 10 => {
                let operator = self.random.pick(&["&&", "||", "??"]);
                self.out.push('(');
                self.sides(depth, operator);
                self.out.push(')');
            }
            11 => {
                let operator = self.random.pick(&["!", "-", "+", "~", "typeof ", "void ", "!!"]);
                write!(self.out, "({operator}(").unwrap();
                self.expression(depth + 1);
                self.out.push_str("))");
            }
            12 => {
                self.out.push('(');
                self.expression(depth + 1);
                self.out.push_str(" ? ");
                self.expression(depth + 1);
                self.out.push_str(" : ");
                self.expression(depth + 1);
                self.out.push(')');
            }
            13 | 14 => self.text_method(depth),
            15 | 16 => self.list_method(depth),
            17 => self.global(depth),
            18 => self.list(depth),
            19 => {
                self.out.push_str("({b: ");
                self.expression(depth + 1);
                let name = self.random.pick(&["a", "'2'", "1", "'x y'", "[doc.s]"]);
                write!(self.out, ", {name}: ").unwrap();
                self.expression(depth + 1);
                self.out.push_str(if self.random.chance(20) { ", ...doc.o})" } else { "})" });
            }
            20 => {
                self.out.push_str("`p${");
                self.expression(depth + 1);
                self.out.push_str("}q${");
                self.expression(depth + 1);
                self.out.push_str("}`");
            }
            21 => {
                let name = self.random.pick(&["'a'", "'o'", "1", "doc.s", "'none'"]);
                let object = self.random.pick(&["doc", "({a: 1})", "[1, 2]"]);
                let test = self.random.below(3);
                match test {
                    0 => write!(self.out, "({name} in {object})").unwrap(),
                    1 => write!(self.out, "{object}.hasOwnProperty({name})").unwrap(),
                    _ => write!(self.out, "(doc.l instanceof {})", self.random.pick(&["Array", "Object"])).unwrap(),
                }
            }
            22 => {
                self.out.push_str("new Date(");
                let date = self.random.pick(&[
                    "doc.s",
                    "'2011-03-04T05:06:07Z'",
                    "1325376000000 + 1",
                    "doc.n",
                    "2010, 11, 31",
                    "2012, 1, 29, 23, 59",
                ]);
                let method = self.random.pick(&[
                    "getTime",
                    "getFullYear",
                    "getMonth",
                    "getDate",
                    "getDay",
                    "getHours",
                    "getMinutes",
                    "getYear",
                    "getTimezoneOffset",
                    "toString",
                    "toDateString",
                    "toUTCString",
                    "toISOString",
                    "getUTCSeconds",
                    "toJSON",
                ]);
                write!(self.out, "{date}).{method}()").unwrap();
            }
            23 => {
                let visitor = self.random.pick(&["map", "filter", "some", "every", "find", "findIndex"]);
                self.list(depth + 1);
                write!(self.out, ".{visitor}(function(e) {{ return ").unwrap();
                self.variables.push("e".to_owned());
                self.expression(depth + 2);
                self.variables.pop();
                self.out.push_str("; })");
            }
            24 => {
                self.list(depth + 1);
                self.out.push_str(".reduce((t, e) => ");
                self.variables.extend(["t".to_owned(), "e".to_owned()]);
                self.out.push('(');
                self.expression(depth + 2);
                self.out.push(')');
                self.variables.truncate(self.variables.len() - 2);
                self.out.push_str(if self.random.chance(80) { ", 0)" } else { ")" });
            }
            _ => self.pattern_call(depth),
        }
    }

    fn sides(&mut self, depth: usize, operator: &str) {
        // `**` takes no unary operator on its left, `??` cannot be mixed: all operands are in parentheses.
        self.out.push('(');
        self.expression(depth + 1);
        write!(self.out, ") {operator} (").unwrap();
        self.expression(depth + 1);
        self.out.push(')');
    }

    fn text_method(&mut self, depth: usize) {
        self.text(depth);
        let call = self.random.pick(&[
            ".length",
            ".charAt(1)",
            ".charAt(@)",
            ".charCodeAt(0)",
            ".indexOf(@)",
            ".indexOf('a', 1)",
            ".lastIndexOf('a')",
            ".includes('b')",
            ".startsWith('a')",
            ".endsWith('d')",
            ".slice(1)",
            ".slice(-2)",
            ".slice(@, 3)",
            ".substr(0, 4)",
            ".substr(5, 2)",
            ".substr(-3, @)",
            ".substring(2, 0)",
            ".substring(0, @)",
            ".toLowerCase()",
            ".toUpperCase()",
            ".trim()",
            ".concat(@, 1)",
            ".replace('a', 'X')",
            ".replace(/[aeiou]/g, '_')",
            ".replace(/^\\s+|\\s+$/g, '')",
            ".replace(/(\\w)\\w*/, '$1')",
            ".repeat(2)",
            ".padStart(5, '0')",
            ".padEnd(4)",
            ".toString()",
            "[0]",
            "[@]",
            ".match(/\\w+/g)",
            ".match(/(\\d+)-(\\d+)/)",
            ".search(/\\d/)",
            ".codePointAt(0)",
            ".codePointAt(@)",
            ".replace(/\\w/g, function(m, i) { return i + m; })",
            ".replace(/(a)|\\s/, (m, g) => g)",
            ".replace(/[aeiou]/g, m => @)",
            ".replace('a', function(m, i, s) { return m + i + s.length; })",
        ]);
        self.with_arguments(call, depth);
    }

    fn pattern(&mut self, depth: usize) {
        for _ in 0..1 + self.random.below(3) {
            match self.random.below(10) {
                0 if depth < 3 => {
                    let open = self.random.pick(&["(", "(?:", "(?=", "(?!"]);
                    self.out.push_str(open);
                    self.pattern(depth + 1);
                    if self.random.chance(40) {
                        self.out.push('|');
                        self.pattern(depth + 1);
                    }
                    self.out.push(')');
                }
                1 => self.out.push_str(self.random.pick(&["^", "$", "\\b", "\\B"])),
                _ => {
                    let atom = self.random.pick(&[
                        "a", "b", "x", "1", ".", "\\d", "\\w", "\\s", "\\W", "\\S", "[a-z]", "[^a]", "[0-9.-]",
                        "[aeiou]", "\\.", "-", ",", " ", "[\\w@]", "\\u00e9", "@",
                    ]);
                    self.out.push_str(atom);
                    if self.random.chance(50) {
                        let times = self.random.pick(&["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?", "+?", "??"]);
                        self.out.push_str(times);
                    }
                }
            }
        }
    }

    fn pattern_call(&mut self, depth: usize) {
        let (before, after) = *[
            (".match(", ")"),
            (".match(", ")?.[1]"),
            (".search(", ")"),
            (".replace(", ", '<$&>')"),
            (".replace(", ", '')"),
            (".split(", ")"),
        ]
        .get(self.random.below(6))
        .unwrap();
        let test = self.random.chance(20);
        if !test {
            self.text(depth);
            self.out.push_str(before);
        }
        self.out.push('/');
        self.pattern(0);
        self.out.push('/');
        if test {
            self.out.push_str(".test(");
            self.text(depth);
            self.out.push(')');
        } else {
            self.out.push_str(self.random.pick(&["", "g", "i", "gi", "m", "gm"]));
            self.out.push_str(after);
        }
    }

    fn list_method(&mut self, depth: usize) {
        self.list(depth);
        let call = self.random.pick(&[
            ".length",
            ".join()",
            ".join('-')",
            ".join(@)",
            ".indexOf(@)",
            ".lastIndexOf(1)",
            ".includes(@)",
            "[0]",
            "[@]",
            ".slice().reverse()",
            ".slice().sort()",
            ".concat(@)",
            ".slice(@)",
            ".slice().pop()",
            ".slice().shift()",
            ".slice().push(@)",
            ".map(Number)",
            ".map(x => +x).sort((a, b) => a - b)",
        ]);
        self.with_arguments(call, depth);
    }

    fn global(&mut self, depth: usize) {
        let call = self.random.pick(&[
            "parseInt(@)",
            "parseInt(@, 10)",
            "parseFloat(@)",
            "Number(@)",
            "String(@)",
            "Boolean(@)",
            "isNaN(@)",
            "isFinite(@)",
            "encodeURI(@)",
            "encodeURIComponent(@)",
            "decodeURI('%2f%41' + @)",
            "decodeURIComponent(encodeURIComponent(@))",
            "Math.floor(@)",
            "Math.ceil(@)",
            "Math.round(@)",
            "Math.abs(@)",
            "Math.max(@, @)",
            "Math.min(1, @)",
            "Math.pow(@, 2)",
            "Math.sqrt(@)",
            "Math.trunc(@)",
            "Math.sign(@)",
            "Array.isArray(@)",
            "isArray(@)",
            "JSON.stringify(@)",
            "toJSON(@)",
            "sum([1, doc.n])",
            "sum(doc.l || [])",
            "Object.keys({a: @, '1': 2})",
            "Object.values({a: @, '1': 2})",
            "Object.entries(doc.o || {})",
            "(@ * 1).toFixed(2)",
            "(+@).toString()",
            "Date.parse('2013-05-06')",
            "Date.UTC(2013, 1, 29)",
            "Number.isInteger(@)",
            "String.fromCharCode(65, 233)",
            "String.fromCodePoint(@)",
            "String.fromCodePoint(65, 0x1f600)",
        ]);
        self.with_arguments(call, depth);
    }

    fn with_arguments(&mut self, call: &str, depth: usize) {
        for (number, part) in call.split('@').enumerate() {
            if number > 0 {
                self.expression(depth + 2);
            }
            self.out.push_str(part);
        }
    }
}
