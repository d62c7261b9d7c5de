//! A mode an operator chooses at run time, or `auto`, which gives up an earlier choice.

use std::str::FromStr;

/// A mode, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice<M>(pub(super) Option<M>);

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
