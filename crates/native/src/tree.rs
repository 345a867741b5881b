//! The executable form of functions: [`Program`], a tree whose names are resolved to slots. It has no state but hints.

use std::cell::Cell;

use crate::text::fingerprint;

#[derive(Debug)]
pub(super) struct Program {
    pub(super) main: u16,
    pub(super) functions: Vec<Function>,
}

#[derive(Debug, Default)]
pub(super) struct Function {
    pub(super) parameters: u16,
    /// Number of variables, including parameters, which come first.
    pub(super) slots: u16,
    /// Variables of `let` and `const`, which are unset before their declarations run.
    pub(super) unset: Vec<u16>,
    pub(super) body: Vec<Statement>,
    pub(super) depth: u16,
}

/// `levels` is the number of functions between the use and the definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Variable {
    pub(super) levels: u16,
    pub(super) slot: u16,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Callee {
    pub(super) target: Target,
    /// Number of functions between the call and the definition.
    pub(super) levels: u16,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    Function(u16),
    /// The slot of a variable. All functions that it can contain are defined in the function that owns the variable.
    Variable(u16),
}

#[derive(Debug)]
pub(super) enum Statement {
    Expression(Expression),
    Block(Vec<Statement>),
    If(Expression, Box<Statement>, Option<Box<Statement>>),
    Loop(Box<Loop>),
    ForIn(AssignmentTarget, Expression, Box<Statement>),
    ForOf(AssignmentTarget, Expression, Box<Statement>),
    Switch(Expression, Vec<(Option<Expression>, Vec<Statement>)>),
    Return(Option<Expression>),
    Break,
    Continue,
    /// The handler is never executed, because exceptions are left to the engine.
    Try(Box<Statement>, Vec<Statement>),
    BailOut,
    Empty,
}

#[derive(Debug)]
pub(super) struct Loop {
    pub(super) init: Option<Statement>,
    /// True for `do`, which runs the body before the first test.
    pub(super) body_first: bool,
    pub(super) test: Option<Expression>,
    pub(super) update: Option<Expression>,
    pub(super) body: Statement,
}

#[derive(Debug)]
pub(super) enum AssignmentTarget {
    Variable(Variable),
    Member(Box<Expression>, Box<[u8]>),
    Index(Box<(Expression, Expression)>),
}

#[derive(Debug)]
pub(super) enum Expression {
    Undefined,
    Null,
    Bool(bool),
    Number(f64),
    Text(Box<[u8]>),
    Variable(Variable),
    SetFunction(u16, u16),
    Assign(AssignmentTarget, Box<Expression>),
    Compound(AssignmentTarget, Binary, Box<Expression>),
    CompoundLogical(AssignmentTarget, Logical, Box<Expression>),
    /// `++a`, `a++`: the amount, and true if the new value is the result.
    Update(AssignmentTarget, f64, bool),
    Member(Box<Expression>, Name),
    Index(Box<(Expression, Expression)>),
    Guard(Box<Expression>),
    Chain(Box<Expression>),
    Method(Box<Expression>, Method, Vec<Expression>),
    Visit(Box<Visit>),
    Builtin(Builtin, Vec<Expression>),
    Call(Callee, Vec<Expression>),
    Binary(Binary, Box<(Expression, Expression)>),
    Logical(Logical, Box<(Expression, Expression)>),
    Conditional(Box<(Expression, Expression, Expression)>),
    Unary(Unary, Box<Expression>),
    InstanceOf(Box<Expression>, Class),
    Template(Vec<Expression>),
    Array(Vec<Element>),
    Object(Vec<Property>),
    Sequence(Vec<Expression>),
    Pattern(Box<super::pattern::Pattern>),
}

#[derive(Debug)]
pub(super) struct Name {
    pub(super) text: Box<[u8]>,
    /// Bits that distinguish most names, see [`fingerprint`].
    pub(super) fingerprint: u64,
    /// Position of the member at the last lookup, as a hint: documents often have the same members in the same order.
    pub(super) hint: Cell<usize>,
}

impl Name {
    pub(super) fn new(text: &[u8]) -> Self {
        Self { text: text.into(), fingerprint: fingerprint(text), hint: Cell::new(0) }
    }
}

#[derive(Debug)]
pub(super) enum Element {
    One(Expression),
    Spread(Expression),
}

#[derive(Debug)]
pub(super) enum Property {
    Named(Box<[u8]>, Expression),
    Computed(Expression, Expression),
    Spread(Expression),
}

/// A method that calls a function for each element of an array, or for each match.
#[derive(Debug)]
pub(super) struct Visit {
    pub(super) object: Expression,
    pub(super) visitor: Visitor,
    pub(super) callee: Callee,
    pub(super) initial: Option<Expression>,
}

impl Visit {
    pub(super) fn is_sorting(&self) -> bool {
        matches!(self.visitor, Visitor::SortAscending | Visitor::SortDescending)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Visitor {
    ForEach,
    Map,
    Filter,
    Some,
    Every,
    Find,
    FindIndex,
    Reduce,
    Replace,
    /// Sorting supports only `a - b` and `b - a`.
    SortAscending,
    SortDescending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Array,
    Object,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unary {
    Not,
    Minus,
    Plus,
    BitNot,
    TypeOf,
    Void,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Logical {
    And,
    Or,
    Nullish,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binary {
    Equal,
    NotEqual,
    StrictEqual,
    StrictNotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Power,
    ShiftLeft,
    ShiftRight,
    ShiftRightUnsigned,
    BitAnd,
    BitOr,
    BitXor,
    In,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Builtin {
    Emit,
    /// `index` with a type before the name.
    IndexTyped,
    /// `index` without a type.
    IndexNamed,
    Log,
    Sum,
    Stringify,
    IsArray,
    Keys,
    Values,
    Entries,
    ParseInt,
    ParseFloat,
    IsNaN,
    IsFinite,
    NumberIsNaN,
    NumberIsFinite,
    NumberIsInteger,
    ToString,
    ToNumber,
    ToBoolean,
    FromCharCode,
    FromCodePoint,
    NewDate,
    DateNow,
    /// `Date()`, a text.
    DateText,
    DateParse,
    DateUtc,
    Math(Math),
    /// `Math.max.apply(null, array)` and similar.
    MathApply(Math),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Math {
    Abs,
    Ceil,
    Floor,
    Max,
    Min,
    Pow,
    Round,
    Sign,
    Sqrt,
    Trunc,
    Sin,
    Cos,
    Atan2,
    Log,
    Random,
}

macro_rules! methods {
    ($($variant:ident $name:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Method {
            $($variant,)*
        }

        impl Method {
            pub(super) fn named(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)*
                    _ => None,
                }
            }

            pub(super) fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

methods! {
    CharAt "charAt",
    CharCodeAt "charCodeAt",
    CodePointAt "codePointAt",
    Concat "concat",
    EndsWith "endsWith",
    Exec "exec",
    GetDate "getDate",
    GetDay "getDay",
    GetFullYear "getFullYear",
    GetHours "getHours",
    GetMilliseconds "getMilliseconds",
    GetMinutes "getMinutes",
    GetMonth "getMonth",
    GetSeconds "getSeconds",
    GetTime "getTime",
    GetTimezoneOffset "getTimezoneOffset",
    GetUtcDate "getUTCDate",
    GetUtcDay "getUTCDay",
    GetUtcFullYear "getUTCFullYear",
    GetUtcHours "getUTCHours",
    GetUtcMilliseconds "getUTCMilliseconds",
    GetUtcMinutes "getUTCMinutes",
    GetUtcMonth "getUTCMonth",
    GetUtcSeconds "getUTCSeconds",
    GetYear "getYear",
    HasOwnProperty "hasOwnProperty",
    Includes "includes",
    IndexOf "indexOf",
    Join "join",
    LastIndexOf "lastIndexOf",
    Match "match",
    PadEnd "padEnd",
    PadStart "padStart",
    Pop "pop",
    Push "push",
    Repeat "repeat",
    Replace "replace",
    Reverse "reverse",
    Search "search",
    SetDate "setDate",
    SetFullYear "setFullYear",
    SetHours "setHours",
    SetMilliseconds "setMilliseconds",
    SetMinutes "setMinutes",
    SetMonth "setMonth",
    SetSeconds "setSeconds",
    SetTime "setTime",
    SetUtcDate "setUTCDate",
    SetUtcFullYear "setUTCFullYear",
    SetUtcHours "setUTCHours",
    SetUtcMilliseconds "setUTCMilliseconds",
    SetUtcMinutes "setUTCMinutes",
    SetUtcMonth "setUTCMonth",
    SetUtcSeconds "setUTCSeconds",
    Shift "shift",
    Slice "slice",
    Sort "sort",
    Split "split",
    StartsWith "startsWith",
    Substr "substr",
    Substring "substring",
    Test "test",
    ToDateString "toDateString",
    ToFixed "toFixed",
    ToGmtString "toGMTString",
    ToIsoString "toISOString",
    ToJson "toJSON",
    ToLowerCase "toLowerCase",
    ToString "toString",
    ToUpperCase "toUpperCase",
    ToUtcString "toUTCString",
    Trim "trim",
    ValueOf "valueOf",
}
