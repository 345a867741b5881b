//! Constructs that depend on the time of an assignment: functions in variables, implicit globals, polyfills, and dates
//! that change.

use std::fmt::Write as _;

use super::Writer;

const SETTERS: [&str; 15] = [
    "setUTCFullYear(doc.n | 0)",
    "setUTCFullYear(2012, 1, 29)",
    "setFullYear(1999, doc.n & 15)",
    "setUTCMonth(doc.n | 0)",
    "setMonth(3, 31)",
    "setUTCDate(doc.n % 50 || 3.5)",
    "setDate(0)",
    "setUTCHours(-5)",
    "setHours(0, 0, 0, 0)",
    "setUTCMinutes(@, @, @)",
    "setSeconds('7')",
    "setUTCSeconds(-1, 5.7)",
    "setUTCMilliseconds(null)",
    "setMilliseconds(1e5)",
    "setTime(@)",
];

impl Writer<'_> {
    pub(super) fn assign_global(&mut self) {
        let name = self.random.pick(&["g1", "g2", "g3"]);
        if self.random.chance(80) || !self.variables.iter().any(|known| known == name) {
            write!(self.out, " {name} = ").unwrap();
        } else {
            write!(self.out, " {name} += ").unwrap();
        }
        self.expression(2);
        self.out.push(';');
        self.variables.push(name.to_owned());
    }

    pub(super) fn global_loop(&mut self, depth: usize) {
        let name = self.random.pick(&["g1", "g2", "i"]);
        let known = self.variables.len();
        match self.random.below(3) {
            // The limit holds because the body does not assign a name that is not visible to it.
            0 => {
                write!(self.out, " for (i = 0; i < {}; i++) {{ log(i);", self.random.below(4)).unwrap();
                if depth < 2 {
                    self.out.push_str(" emit('g', i);");
                }
                self.out.push_str(" }");
            }
            1 => {
                let object = self.random.pick(&["doc", "doc.o", "doc.l", "{b: 1, '3': 2}"]);
                write!(self.out, " for ({name} in {object})").unwrap();
                self.variables.push(name.to_owned());
                self.looped(depth, Some(name));
            }
            _ => {
                write!(self.out, " for ({name} of (doc.l || []))").unwrap();
                self.variables.push(name.to_owned());
                self.looped(depth, Some(name));
            }
        }
        self.variables.truncate(known);
    }

    fn function_expression(&mut self, depth: usize) {
        let head =
            self.random.pick(&["function(p, q) {", "function own(p, q) {", "(p, q) => {", "function(p, q) { g1 = 1;"]);
        self.out.push_str(head);
        let known = self.variables.len();
        self.variables.extend(["p".to_owned(), "q".to_owned()]);
        let called = std::mem::take(&mut self.functions);
        if self.random.chance(40) {
            self.functions.extend(called.first().cloned());
        }
        if self.random.chance(50) {
            self.statement(depth.max(2));
        }
        if head.contains("own") && self.random.chance(50) {
            self.out.push_str(" if (p === 1) return own(2, q);");
        }
        self.out.push_str(" return ");
        self.expression(2);
        self.out.push_str("; }");
        self.variables.truncate(known);
        self.functions = called;
    }

    pub(super) fn function_variable(&mut self, depth: usize) {
        if !self.functions.is_empty() && self.random.chance(30) {
            let name = self.functions[self.random.below(self.functions.len())].clone();
            write!(self.out, " {name} = ").unwrap();
            let others = std::mem::take(&mut self.functions);
            if self.random.chance(85) {
                self.function_expression(depth + 1);
            } else {
                self.expression(3);
            }
            self.functions = others;
            self.out.push(';');
            return;
        }
        self.next += 1;
        let name = format!("f{}", self.next);
        let kind = self.random.pick(&["var ", "var ", "var ", "let ", "const ", "var", ""]);
        match kind {
            "var" => write!(self.out, " var {name}; if (doc.a) {{ {name} = ").unwrap(),
            kind => write!(self.out, " {kind}{name} = ").unwrap(),
        }
        self.function_expression(depth + 1);
        self.out.push(';');
        if kind == "var" {
            self.out.push_str(" }");
        }
        if kind == "let " || kind == "const " {
            write!(self.out, " emit('f', {name}(").unwrap();
            self.expression(3);
            self.out.push_str(", 1));");
        } else {
            self.functions.push(name);
        }
    }

    pub(super) fn call_of_variable(&mut self, depth: usize) {
        if self.functions.is_empty() {
            return self.simple();
        }
        let name = self.functions[self.random.below(self.functions.len())].clone();
        match self.random.below(5) {
            0 => {
                self.list(depth + 1);
                let visitor = self.random.pick(&["map", "filter", "some", "reduce"]);
                write!(self.out, ".{visitor}({name})").unwrap();
            }
            1 => {
                self.text(depth + 1);
                write!(self.out, ".replace(/\\w/g, {name})").unwrap();
            }
            _ => {
                write!(self.out, "{name}(").unwrap();
                self.expression(depth + 2);
                self.out.push_str(", ");
                self.simple();
                self.out.push(')');
            }
        }
    }

    pub(super) fn closure_before_declarations(&mut self) {
        let (outer, inner, value) = (self.fresh(), self.fresh(), self.fresh());
        let kind = self.random.pick(&["var", "let", "const"]);
        write!(self.out, " {{ {kind} {outer} = function(x) {{ return {inner}(x) + {value}; }};").unwrap();
        let early = self.random.chance(20);
        if early {
            write!(self.out, " emit({outer}(1), null);").unwrap();
        }
        write!(self.out, " {kind} {inner} = function(x) {{ return ").unwrap();
        self.expression(3);
        write!(self.out, "; }}; {kind} {value} = ").unwrap();
        self.expression(3);
        write!(self.out, "; emit({outer}(doc.a), 'closure'); }}").unwrap();
    }

    pub(super) fn polyfill(&mut self) {
        let polyfill = self.random.pick(&[
            "Object.keys = Object.keys || function(o) { return []; };",
            "Array.prototype.forEach = Array.prototype.forEach || function(f) { for (var i in this) f(this[i]); };",
            "if (!Array.prototype.map) { Array.prototype.map = function() { return 1; }; }",
            "if (!Array.isArray) Array.isArray = function(a) { return a instanceof Array; }; else log('isArray');",
            "if (typeof Date.now !== 'function') { Date.now = function() { return 1; } } else { log('now'); }",
            "String.prototype.trim || (String.prototype.trim = function() { return ''; });",
            "Date.prototype.toISOString = Date.prototype.toISOString ? Date.prototype.toISOString : function() {};",
            "Object.keys ||= function() { return ['x']; };",
            "isArray = isArray || function() { return 1; };",
            "if (Object.keys === undefined || JSON == null) { emit('none', null); }",
            "Array.prototype.none = Array.prototype.none || 1;",
        ]);
        write!(self.out, " {polyfill}").unwrap();
    }

    pub(super) fn change_date(&mut self) {
        let name = self.fresh();
        let date = self.random.pick(&["doc.n | 0", "0", "'2013-12-31T23:59:59.999Z'", "2012, 1, 29", ""]);
        write!(self.out, " var {name} = new Date({date});").unwrap();
        if date.is_empty() {
            write!(self.out, " {name}.setTime(86399999);").unwrap();
        }
        if self.random.chance(40) {
            write!(self.out, " emit({name}, [{name}]);").unwrap();
        }
        for _ in 0..=self.random.below(2) {
            let setter = self.random.pick(&SETTERS);
            write!(self.out, " log({name}.").unwrap();
            self.with_arguments(setter, 2);
            self.out.push_str(");");
        }
        self.variables.push(name);
    }

    pub(super) fn changed_date(&mut self, depth: usize) {
        self.out.push_str("(function(d) { d.");
        let known = self.variables.len();
        self.variables.push("d".to_owned());
        let setter = self.random.pick(&SETTERS);
        self.with_arguments(setter, depth + 1);
        self.variables.truncate(known);
        let result = self.random.pick(&["d.getTime()", "d", "d.toString()", "d.toUTCString()", "+d", "d - 1", "[d]"]);
        let date = self.random.pick(&["0", "1325376000000", "2011, 0, 31", "doc.n * 1e9 | 0", "-62135596800000"]);
        write!(self.out, "; return {result}; }})(new Date({date}))").unwrap();
    }

    pub(super) fn current(&mut self, depth: usize) {
        let expression = self.random.pick(&[
            "(Date.now() > 1e12)",
            "(new Date() > new Date(1e12))",
            "(new Date - 0 === @)",
            "new Date().getTime().toString().length",
            "Date().length",
            "typeof Date()",
            "(Math.random() < 1)",
            "(Math.floor(Math.random()) + @)",
            "isNaN(new Date())",
            "(Date.now() % 1)",
            "new Date(Date.now()).setHours(0, 0, 0, 0) % 86400000",
        ]);
        self.with_arguments(expression, depth);
    }
}
