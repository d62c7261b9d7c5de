//! A mode an operator chooses at run time, or `auto`, which gives up an earlier choice.

use std::{fmt::Display, str::FromStr};

/// A mode, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice<M>(pub Option<M>);

/// Parses a value of the command line. The error names `auto` in addition to the modes.
pub fn parse<M: FromStr<Err: Display>>(text: &str) -> Result<Choice<M>, String> {
    text.parse()
        .map_err(|error: M::Err| format!("{error}, and auto"))
}

impl<M: FromStr> FromStr for Choice<M> {
    type Err = M::Err;

    fn from_str(text: &str) -> Result<Self, M::Err> {
        match text.parse() {
            Ok(mode) => Ok(Self(Some(mode))),
            Err(_) if text == "auto" => Ok(Self(None)),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use flannel_common::abi::{guard::GuardMode, mode::Mode};

    use super::*;

    #[test]
    fn a_mistake_names_all_choices() {
        let mode = parse::<Mode>("fats").expect_err("no mode");
        assert_eq!(
            mode,
            "not a datapath mode; the modes are kernel, encap and fast, and auto"
        );
        assert!(
            parse::<GuardMode>("x")
                .expect_err("no mode")
                .ends_with(", and auto")
        );
        assert_eq!(parse::<Mode>("auto"), Ok(Choice(None)));
    }
}
