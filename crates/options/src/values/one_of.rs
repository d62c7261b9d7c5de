//! Values that shells complete.

use std::ffi::OsStr;

use clap::{
    Arg, Command, Error,
    builder::{PossibleValue, TypedValueParser},
};

/// A parser of an argument that offers values to shells. The values are a hint: `parse` decides,
/// and words the error.
#[derive(Clone)]
pub struct OneOf<T> {
    values: Vec<&'static str>,
    parse: fn(&str) -> Result<T, String>,
}

impl<T> OneOf<T> {
    /// Offers these values.
    pub fn new(
        values: impl IntoIterator<Item = &'static str>,
        parse: fn(&str) -> Result<T, String>,
    ) -> Self {
        Self {
            values: values.into_iter().collect(),
            parse,
        }
    }
}

impl OneOf<String> {
    /// Offers these values for a flag of `run`, which is checked together with all others.
    pub(crate) fn flag(values: impl IntoIterator<Item = &'static str>) -> Self {
        Self::new(values, |text| Ok(text.to_owned()))
    }
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for OneOf<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, Error> {
        TypedValueParser::parse_ref(&self.parse, command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.values.iter().map(PossibleValue::new)))
    }
}
