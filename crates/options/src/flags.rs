//! The flags that `run` knows: flanneld's, and ours.
//!
//! A flag is declared once, as a field of a struct of [`RunFlags`]: its name, its kind, its default
//! and its help are taken from there. A flag of flanneld that is not built yet is accepted with
//! flanneld's own default and refused by name otherwise.

use std::{any::TypeId, sync::LazyLock};

use Kind::{Bool, Families, Int, List, Text};
use clap::{
    Arg, ArgAction, Args as _, Command,
    error::{ContextKind, ContextValue},
};
use flannel_traffic::MasqueradeFamilies;

use super::RunFlags;
use crate::values::{
    families,
    go_values::{parse_bool, parse_int},
};

/// The form of a flag's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `--flag` or `--flag=true`.
    Bool,
    /// `--flag`, `--flag=true`, or the name of an address family.
    Families,
    /// An integer in Go's spelling.
    Int,
    /// Any text.
    Text,
    /// Any text, may be given several times.
    List,
}

/// A flag of `run`.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// The name without dashes.
    pub name: &'static str,
    /// The form of its value.
    pub(crate) kind: Kind,
    /// For a flag that is not built: the only value accepted, flanneld's default.
    pub only: Option<&'static str>,
}

/// Flags that are not built: each name, and the only value accepted.
const REFUSED: [(&str, &str); 2] = [("vmodule", ""), ("log_backtrace_at", "")];

static RUN: LazyLock<Command> = LazyLock::new(|| RunFlags::augment_args(Command::new("run")));

/// Every flag.
pub static FLAGS: LazyLock<Vec<Flag>> = LazyLock::new(|| {
    let refused = REFUSED.into_iter().map(|(name, only)| Flag {
        name,
        kind: Text,
        only: Some(only),
    });
    RUN.get_arguments()
        .filter_map(Flag::built)
        .chain(refused)
        .collect()
});

impl Flag {
    fn built(arg: &'static Arg) -> Option<Self> {
        let value = arg.get_value_parser().type_id();
        let kind = match arg.get_action() {
            ArgAction::Append => List,
            _ if value == TypeId::of::<bool>() => Bool,
            _ if value == TypeId::of::<MasqueradeFamilies>() => Families,
            _ if value == TypeId::of::<i64>() => Int,
            _ => Text,
        };
        arg.get_long().map(|name| Self {
            name,
            kind,
            only: None,
        })
    }

    /// The flag of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        FLAGS.iter().find(|flag| flag.name == name)
    }

    /// The environment variable that stands in for the flag.
    pub fn variable(&self) -> String {
        format!(
            "FLANNELD_{}",
            self.name.to_uppercase().replace(['-', '.'], "_")
        )
    }

    /// The value in the one spelling clap takes; `None` when it is malformed.
    pub(crate) fn canonical(&self, value: &str) -> Option<String> {
        match self.kind {
            Bool => parse_bool(value).map(|value| value.to_string()),
            Families => families::canonical(value),
            Int => parse_int(value).map(|value| value.to_string()),
            Text | List => Some(value.to_owned()),
        }
    }

    /// Returns the form that a value must have, for messages.
    pub(crate) fn expected(&self) -> &'static str {
        match self.kind {
            Bool => "true or false",
            Families => families::EXPECTED,
            Int => "a whole number",
            Text | List => "a text",
        }
    }
}

/// Returns the flag, with its dashes, that clap takes a misspelt name for.
pub(crate) fn similar(name: &str) -> Option<String> {
    let command = RUN.clone().no_binary_name(true);
    let error = command.try_get_matches_from([format!("--{name}")]).err()?;
    match error.get(ContextKind::SuggestedArg)? {
        ContextValue::String(flag) => Some(flag.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_flag_is_recognised() {
        assert_eq!(similar("ifce").as_deref(), Some("--iface"));
        assert_eq!(
            similar("etcd-endpoint").as_deref(),
            Some("--etcd-endpoints")
        );
        assert_eq!(similar("nonsense"), None);
    }

    #[test]
    fn a_flag_has_the_kind_of_its_field() {
        let kind = |name| Flag::named(name).map(|flag| (flag.kind, flag.only));
        assert_eq!(kind("ip-masq"), Some((Families, None)));
        assert_eq!(kind("version"), Some((Bool, None)));
        assert_eq!(kind("v"), Some((Int, None)));
        assert_eq!(kind("ip-blackhole-route"), Some((Bool, None)));
        assert_eq!(kind("iface"), Some((List, None)));
        assert_eq!(kind("etcd-password"), Some((Text, None)));
        assert_eq!(kind("vmodule"), Some((Text, Some(""))));
        assert_eq!(kind("help"), None);
    }
}
