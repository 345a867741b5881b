//! Operators that test one value, one file per type, and their list ([`OPERATORS`]). The selector implements
//! combinations of conditions (`$and`, `$not`, `$elemMatch` …).

mod all;
mod begins_with;
mod comparison;
mod definition;
mod exact;
mod exists;
mod membership;
mod modulo;
mod regex;
mod size;
#[cfg(test)]
mod tests;
mod type_name;

pub(crate) use definition::{Negation, Operator, Test};

pub(crate) static OPERATORS: &[&Operator] = &[
    &comparison::LT,
    &comparison::LTE,
    &comparison::EQ,
    &comparison::NE,
    &comparison::GTE,
    &comparison::GT,
    &membership::IN,
    &membership::NIN,
    &exists::EXISTS,
    &type_name::TYPE,
    &modulo::MOD,
    &regex::REGEX,
    &begins_with::BEGINS_WITH,
    &all::ALL,
    &size::SIZE,
];

pub(crate) static EQ: &Operator = &comparison::EQ;

pub(crate) fn find(name: &str) -> Option<&'static Operator> {
    OPERATORS.iter().find(|operator| operator.name == name).copied()
}
