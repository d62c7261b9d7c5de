//! The settings of the extension backend: commands of the operator.

use std::{fmt, num::NonZeroU32};

use serde::{Deserialize, Serialize};

use super::{error::Result, findings::Findings, gojson::Fields};

pub(super) const EXTENSION_KEYS: &[&str] = &[
    "PreStartupCommand",
    "PostStartupCommand",
    "SubnetAddCommand",
    "SubnetRemoveCommand",
    "SubnetAddInterval",
];

/// The settings of the extension backend. A command that is `None` is not run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtensionConfig {
    /// Runs before there is a lease; what it prints is published in it.
    pub pre_startup: Option<CommandLine>,
    /// Runs once there is a lease.
    pub post_startup: Option<CommandLine>,
    /// Runs for each peer.
    pub subnet_add: Option<CommandLine>,
    /// Runs for each peer that is gone.
    pub subnet_remove: Option<CommandLine>,
    /// Seconds after which the command for a peer runs again; `None` for never.
    pub subnet_add_interval: Option<NonZeroU32>,
}

/// A program and its arguments. No shell reads them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandLine {
    /// The program: a path, or a name that is looked for in `PATH`.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// The way it is written, which says what becomes of variables in it.
    pub form: CommandForm,
}

/// The way a command is written in the network configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CommandForm {
    /// One text, split at white space. A variable that is not set is replaced by nothing, as in
    /// flannel.
    Text,
    /// An array with one argument in each element. Variables that flannel does not define stay as
    /// they are: they may be those of a shell.
    Array,
}

impl CommandLine {
    /// Splits words into a program and its arguments. Returns `None` without words.
    fn of_words(form: CommandForm, words: impl IntoIterator<Item = String>) -> Option<Self> {
        let mut words = words.into_iter();
        Some(Self {
            program: words.next()?,
            args: words.collect(),
            form,
        })
    }
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.program)?;
        self.args.iter().try_for_each(|arg| write!(f, " {arg}"))
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Words(Vec<String>),
}

pub(super) fn parse(fields: &Fields, findings: &mut Findings) -> Option<ExtensionConfig> {
    let mut command = |key| findings.keep(parse_command(fields, key));
    let pre_startup = command("PreStartupCommand");
    let post_startup = command("PostStartupCommand");
    let subnet_add = command("SubnetAddCommand");
    let subnet_remove = command("SubnetRemoveCommand");
    let expected = "a number of seconds, 0..=4294967295";
    let interval = findings.keep(fields.expect::<u32>("SubnetAddInterval", expected));
    Some(ExtensionConfig {
        pre_startup: pre_startup?,
        post_startup: post_startup?,
        subnet_add: subnet_add?,
        subnet_remove: subnet_remove?,
        subnet_add_interval: interval?.and_then(NonZeroU32::new),
    })
}

fn parse_command(fields: &Fields, key: &'static str) -> Result<Option<CommandLine>> {
    let expected = "a command as one text, or as an array of texts: the program and its arguments";
    let command = match fields.expect::<Written>(key, expected)? {
        None => None,
        Some(Written::Text(text)) => CommandLine::of_words(
            CommandForm::Text,
            text.split_whitespace().map(str::to_owned),
        ),
        Some(Written::Words(words)) => CommandLine::of_words(CommandForm::Array, words),
    };
    if command.as_ref().is_some_and(is_unusable) {
        Err(fields.bad_value(key, expected))
    } else {
        Ok(command)
    }
}

/// No program has an empty name, and no argument a zero byte.
fn is_unusable(command: &CommandLine) -> bool {
    command.program.is_empty()
        || command
            .args
            .iter()
            .chain([&command.program])
            .any(|word| word.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::super::{BackendConfig, NetworkConfig};
    use super::*;

    fn parse(more: &str) -> std::result::Result<ExtensionConfig, String> {
        let text = format!(r#"{{"Network":"10.5.0.0/16","Backend":{{"Type":"extension"{more}}}}}"#);
        let config = NetworkConfig::parse(&text).map_err(|error| error.to_string())?;
        assert_eq!(config.warnings, []);
        let BackendConfig::Extension(config) = config.backend else {
            panic!("another backend")
        };
        Ok(config)
    }

    fn command(form: CommandForm, words: &[&str]) -> Option<CommandLine> {
        CommandLine::of_words(form, words.iter().map(ToString::to_string))
    }

    #[test]
    fn commands_are_texts_split_at_white_space_or_arrays() {
        assert_eq!(parse(""), Ok(ExtensionConfig::default()));
        let none = r#","PreStartupCommand":"","PostStartupCommand":[],"SubnetAddCommand":" ","SubnetAddInterval":0"#;
        assert_eq!(parse(none), Ok(ExtensionConfig::default()));
        let all = r#","prestartupcommand":"cat /run/key","PostStartupCommand":["sh","-c","ip link; true"],
            "SubnetAddCommand":"ip  route\treplace $SUBNET via \"$PUBLIC_IP\"","SubnetRemoveCommand":["true"],
            "SubnetAddInterval":60"#;
        let expected = ExtensionConfig {
            pre_startup: command(CommandForm::Text, &["cat", "/run/key"]),
            post_startup: command(CommandForm::Array, &["sh", "-c", "ip link; true"]),
            subnet_add: command(
                CommandForm::Text,
                &["ip", "route", "replace", "$SUBNET", "via", "\"$PUBLIC_IP\""],
            ),
            subnet_remove: command(CommandForm::Array, &["true"]),
            subnet_add_interval: NonZeroU32::new(60),
        };
        assert_eq!(parse(all), Ok(expected));
    }

    #[test]
    fn mistakes_are_named() {
        for (more, expected) in [
            (
                r#","SubnetAddCommand":7"#,
                "SubnetAddCommand in the network configuration is 7, expected a command as",
            ),
            (
                r#","PreStartupCommand":["a",1]"#,
                "PreStartupCommand in the network configuration is [\"a\",1], expected",
            ),
            (
                r#","PostStartupCommand":[""]"#,
                "PostStartupCommand in the network configuration is [\"\"], expected",
            ),
            (
                r#","SubnetRemoveCommand":"a\u0000b""#,
                "SubnetRemoveCommand in the network configuration is",
            ),
            (
                r#","SubnetAddInterval":-1"#,
                "SubnetAddInterval in the network configuration is -1, expected a number",
            ),
        ] {
            let error = parse(more).expect_err(more);
            assert!(error.contains(expected), "{error}");
        }
    }
}
