//! A second matcher for the output of the random tests. It passes negations down instead of moving them.

use std::cmp::Ordering;

use settee_model::json::{Kind, Value};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tree {
    Null,
    Bool(bool),
    Number(f64, bool),
    Text(String),
    List(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

impl Tree {
    pub(super) fn of(value: Value<'_>) -> Self {
        match value.kind() {
            Kind::Null => Self::Null,
            Kind::Bool => Self::Bool(value.as_bool().unwrap()),
            Kind::Number => Self::Number(value.as_f64().unwrap(), value.is_integer()),
            Kind::String => Self::Text(value.as_str().unwrap().into_owned()),
            Kind::Array => Self::List(value.elements().map(Self::of).collect()),
            Kind::Object => {
                let member =
                    |(name, value): (Value<'_>, Value<'_>)| (name.as_str().unwrap().into_owned(), Self::of(value));
                Self::Object(value.members().map(member).collect())
            }
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Bool(false) => 1,
            Self::Bool(true) => 2,
            Self::Number(..) => 3,
            Self::Text(_) => 4,
            Self::List(_) => 5,
            Self::Object(_) => 6,
        }
    }

    pub(super) fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(a, _), Self::Number(b, _)) => a.partial_cmp(b).unwrap(),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::List(a), Self::List(b)) => {
                let pairs = a.iter().zip(b).map(|(a, b)| a.compare(b));
                pairs.fold(Ordering::Equal, Ordering::then).then(a.len().cmp(&b.len()))
            }
            (Self::Object(a), Self::Object(b)) => {
                let pairs = a.iter().zip(b).map(|((m, a), (n, b))| m.cmp(n).then_with(|| a.compare(b)));
                pairs.fold(Ordering::Equal, Ordering::then).then(a.len().cmp(&b.len()))
            }
            _ => self.rank().cmp(&other.rank()),
        }
    }

    pub(super) fn get(&self, path: &str) -> Result<&Self, bool> {
        let mut value = self;
        for part in path.split('.') {
            value = match value {
                Self::Object(members) => {
                    members.iter().find(|(name, _)| name == part).map(|(_, value)| value).ok_or(true)?
                }
                Self::List(elements) => part.parse().ok().and_then(|at: usize| elements.get(at)).ok_or(false)?,
                _ => return Err(false),
            };
        }
        Ok(value)
    }
}

pub(super) fn holds(condition: &Tree, path: &str, document: &Tree, negated: bool) -> bool {
    let Tree::Object(members) = condition else {
        return test("$eq", condition, path, document, negated);
    };
    if members.len() != 1 {
        let single = |member: &(String, Tree)| Tree::Object(vec![member.clone()]);
        let parts: Vec<Tree> = members.iter().map(single).collect();
        return all(&parts, path, document, negated);
    }
    let (name, argument) = &members[0];
    match (name.as_str(), argument) {
        ("$and", Tree::List(parts)) => all(parts, path, document, negated),
        ("$or", Tree::List(parts)) => any(parts, path, document, negated),
        ("$nor", Tree::List(parts)) => any(parts, path, document, !negated),
        ("$not", part) => holds(part, path, document, !negated),
        (name, argument) if name.starts_with('$') => test(name, argument, path, document, negated),
        (name, argument) if path.is_empty() => holds(argument, name, document, negated),
        (name, argument) => holds(argument, &format!("{path}.{name}"), document, negated),
    }
}

fn all(parts: &[Tree], path: &str, document: &Tree, negated: bool) -> bool {
    if negated {
        parts.is_empty() || parts.iter().any(|part| holds(part, path, document, true))
    } else {
        parts.iter().all(|part| holds(part, path, document, false))
    }
}

fn any(parts: &[Tree], path: &str, document: &Tree, negated: bool) -> bool {
    if negated {
        parts.iter().all(|part| holds(part, path, document, true))
    } else {
        parts.is_empty() || parts.iter().any(|part| holds(part, path, document, false))
    }
}

fn test(operator: &str, argument: &Tree, path: &str, document: &Tree, negated: bool) -> bool {
    let value = match document.get(path) {
        Ok(value) => value,
        Err(is_missing) => return operator == "$exists" && is_missing && (*argument == Tree::Bool(true)) == negated,
    };
    let order = value.compare(argument);
    let list = |tree: &Tree| match tree {
        Tree::List(elements) => elements.clone(),
        _ => panic!("no list"),
    };
    let same = |a: &Tree, b: &Tree| a.compare(b) == Ordering::Equal;
    let answer = match operator {
        "$eq" => order.is_eq(),
        "$ne" => order.is_ne(),
        "$lt" => order.is_lt(),
        "$lte" => order.is_le(),
        "$gt" => order.is_gt(),
        "$gte" => order.is_ge(),
        "$exists" => *argument == Tree::Bool(true),
        "$in" | "$nin" => {
            let values = if let Tree::List(elements) = value { elements.clone() } else { vec![value.clone()] };
            let is_in = list(argument).iter().any(|wanted| values.iter().any(|value| same(value, wanted)));
            is_in == (operator == "$in")
        }
        "$size" => matches!((value, argument), (Tree::List(list), Tree::Number(size, _)) if list.len() as f64 == *size),
        "$type" => {
            let names = ["null", "boolean", "boolean", "number", "string", "array", "object"];
            *argument == Tree::Text(names[usize::from(value.rank())].to_owned())
        }
        "$beginsWith" => matches!((value, argument), (Tree::Text(text), Tree::Text(start)) if text.starts_with(start)),
        "$all" => match value {
            Tree::List(elements) => {
                let wanted = list(argument);
                let has_each = wanted.iter().all(|wanted| elements.contains(wanted));
                !wanted.is_empty() && (has_each || wanted == [value.clone()])
            }
            _ => false,
        },
        "$mod" => match (value, &list(argument)[..]) {
            (Tree::Number(number, true), [Tree::Number(divisor, _), Tree::Number(rest, _)]) => {
                number % divisor == *rest
            }
            _ => false,
        },
        "$regex" => match (value, argument) {
            (Tree::Text(text), Tree::Text(expression)) => match expression.strip_prefix('^') {
                Some(start) => text.starts_with(start),
                None => text.contains(expression.as_str()),
            },
            _ => false,
        },
        "$elemMatch" => {
            matches!(value, Tree::List(elements) if elements.iter().any(|element| within(argument, element)))
        }
        "$allMatch" => {
            matches!(value, Tree::List(elements)
                if !elements.is_empty() && elements.iter().all(|element| within(argument, element)))
        }
        "$keyMapMatch" => {
            matches!(value, Tree::Object(members)
                if members.iter().any(|(name, _)| within(argument, &Tree::Text(name.clone()))))
        }
        other => panic!("{other}"),
    };
    answer != negated
}

fn within(condition: &Tree, element: &Tree) -> bool {
    holds(condition, "v", &Tree::Object(vec![("v".to_owned(), element.clone())]), false)
}
