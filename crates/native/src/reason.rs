//! [`Reason`] of a bail-out, and [`Steps`], the limit of a run.

/// Operations that the evaluator leaves to the engine, reported to operators that diagnose a slow view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// The document exceeds the size limit, or is not an object.
    Document,
    Steps,
    Memory,
    Depth,
    Rows,
    Throw,
    /// An exception whose text is specific to the engine.
    Exception,
    /// A name that objects inherit.
    Inherited,
    /// A loop over objects other than plain arrays and members.
    Loop,
    Operand,
    /// An assignment to a target other than a plain variable or member.
    Assignment,
    Call,
    /// A conversion that may call functions.
    Conversion,
    /// A number with a special text or special parts.
    Number,
    Date,
    /// Characters beyond the basic plane, or an unusual argument of a method of strings.
    Text,
    /// An array with holes, or one that is modified during an iteration.
    Array,
    Pattern,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The engine must run the function.
    BailOut(Reason),
}

impl Reason {
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

#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps {
    pub(crate) steps: usize,
    pub(crate) bytes: usize,
}

impl Steps {
    #[inline]
    pub(crate) fn charge(&mut self, steps: usize) -> Result<(), Stop> {
        self.steps = self.steps.checked_sub(steps).ok_or(Stop::BailOut(Reason::Steps))?;
        Ok(())
    }

    #[inline]
    pub(crate) fn charge_bytes(&mut self, bytes: usize) -> Result<(), Stop> {
        self.bytes = self.bytes.checked_sub(bytes).ok_or(Stop::BailOut(Reason::Memory))?;
        Ok(())
    }
}
