//! An argument of the message that the suite sends: `NAME=VALUE`, as typed.

use std::net::IpAddr;
use std::str::FromStr;

use thiserror::Error;

use spop::Data;

/// An argument, whose type follows from its value.
///
/// `true` and `false` are BOOL, whole numbers are INT64, addresses are IPV4 or IPV6, and the rest is STR. A value after
/// `str:` is STR in any case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    name: String,
    value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Bool(bool),
    Integer(i64),
    Ip(IpAddr),
    Text(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected an argument, like ip=192.0.2.1 or path=str:42")]
pub struct ArgumentError;

impl Argument {
    pub(super) fn pair(&self) -> (&[u8], Data<'_>) {
        let value = match &self.value {
            Value::Bool(value) => Data::Bool(*value),
            Value::Integer(value) => Data::Int64(*value),
            Value::Ip(IpAddr::V4(address)) => Data::Ipv4(*address),
            Value::Ip(IpAddr::V6(address)) => Data::Ipv6(*address),
            Value::Text(text) => Data::Str(text.as_bytes()),
        };
        (self.name.as_bytes(), value)
    }
}

impl FromStr for Argument {
    type Err = ArgumentError;

    fn from_str(text: &str) -> Result<Argument, ArgumentError> {
        let (name, value) = text.split_once('=').ok_or(ArgumentError)?;
        let value = match value.strip_prefix("str:") {
            Some(text) => Value::Text(text.to_owned()),
            None => typed(value),
        };
        Ok(Argument { name: name.to_owned(), value })
    }
}

fn typed(text: &str) -> Value {
    let flag = text.parse().map(Value::Bool).ok();
    let number = || text.parse().map(Value::Integer).ok();
    let address = || text.parse().map(Value::Ip).ok();
    flag.or_else(number).or_else(address).unwrap_or_else(|| Value::Text(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_follows_from_the_value() {
        for (text, value) in [
            ("a=true", Data::Bool(true)),
            ("a=-5", Data::Int64(-5)),
            ("a=192.0.2.1", Data::Ipv4([192, 0, 2, 1].into())),
            ("a=::1", Data::Ipv6(std::net::Ipv6Addr::LOCALHOST)),
            ("a=shop.example", Data::Str(b"shop.example")),
            ("a=x=y", Data::Str(b"x=y")),
            ("a=str:5", Data::Str(b"5")),
            ("a=", Data::Str(b"")),
        ] {
            assert_eq!(text.parse::<Argument>().unwrap().pair(), (&b"a"[..], value), "{text}");
        }
        assert_eq!("a".parse::<Argument>(), Err(ArgumentError));
    }
}
