//! [`Reason`]: why a native run bails out, so that the engine runs the function on the document; [`Stop`]: that it does;
//! [`Steps`]: when it has taken too long.

/// The reasons to bail out: things that the evaluator does not do exactly as the engine. Counted, and shown to who asks
/// why a view is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// The document is longer than what is mapped natively, or no object.
    Document,
    /// More steps than a call may take.
    Steps,
    /// More memory than a call may take.
    Memory,
    /// Calls or values nested too deeply.
    Depth,
    /// More rows, or more bytes of them, than are handed on natively.
    Rows,
    /// A statement that throws.
    Throw,
    /// An exception whose text is the engine's.
    Exception,
    /// A name that objects inherit.
    Inherited,
    /// A loop over something else than plain arrays and members.
    Loop,
    /// An operand of an unusual kind.
    Operand,
    /// An assignment to something else than a plain variable or member.
    Assignment,
    /// A call with arguments, or of a function, whose result is not known.
    Call,
    /// A conversion that may call functions.
    Conversion,
    /// A number whose text or parts need care.
    Number,
    /// A date in an unusual form or range.
    Date,
    /// Characters beyond the basic plane, or an unusual argument of a method of texts.
    Text,
    /// An array with holes, or one that changes meanwhile.
    Array,
    /// A regular expression on an unusual text.
    Pattern,
    /// A value that has no plain JSON text.
    Json,
}

/// Why evaluation does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The engine shall do it. Also, while a chain is left because something before `?.` is not there, that the rest of it
    /// is not evaluated.
    BailOut(Reason),
}

impl Reason {
    /// The reason in words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Document => "the document is too long",
            Self::Steps => "too many steps",
            Self::Memory => "too much memory",
            Self::Depth => "calls nested too deeply",
            Self::Rows => "too many rows, or too long ones",
            Self::Throw => "throw",
            Self::Exception => "an exception",
            Self::Inherited => "an inherited member",
            Self::Loop => "a loop over an unusual value",
            Self::Operand => "an unusual operand",
            Self::Assignment => "an unusual assignment",
            Self::Call => "a call with unusual values",
            Self::Conversion => "a conversion of an object",
            Self::Number => "an unusual number",
            Self::Date => "an unusual date",
            Self::Text => "a text with unusual characters, or an unusual argument",
            Self::Array => "an unusual array",
            Self::Pattern => "a regular expression on an unusual text",
            Self::Json => "a value without a plain JSON text",
        }
    }
}

/// The limits that are left to a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps {
    pub(crate) steps: usize,
    pub(crate) bytes: usize,
}

impl Steps {
    #[inline]
    pub(crate) fn pay(&mut self, steps: usize) -> Result<(), Stop> {
        self.steps = self.steps.checked_sub(steps).ok_or(Stop::BailOut(Reason::Steps))?;
        Ok(())
    }

    #[inline]
    pub(crate) fn take_bytes(&mut self, bytes: usize) -> Result<(), Stop> {
        self.bytes = self.bytes.checked_sub(bytes).ok_or(Stop::BailOut(Reason::Memory))?;
        Ok(())
    }
}
