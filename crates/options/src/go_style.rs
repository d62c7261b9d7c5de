//! Turns a Go-style command line and `FLANNELD_*` variables into what clap takes.
//!
//! Pure: arguments and environment in, `--name=value` arguments out, each flag at most once (the
//! last one on the command line counts, repeatable ones keep all) and in one spelling. The command
//! line wins over the environment; an empty variable is an unset one; a repeatable flag takes
//! exactly one element from its variable. `FLANNELD_VERSION` has no effect, as in flanneld.
//!
//! Three mistakes flanneld swallows are reported here: a malformed variable (it starts with the
//! default), a bare word (it silently drops every flag after it), and an unknown flag (it exits
//! with 0).

use std::{collections::HashMap, ffi::OsString, fmt};

use super::flags::{self, FLAGS, Flag, Kind};

/// The origin of a value, named in messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueOrigin {
    /// The command line, as this flag.
    Argument(&'static str),
    /// The environment, as this variable.
    Variable(String),
}

impl fmt::Display for ValueOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument(name) => write!(f, "--{name}"),
            Self::Variable(name) => f.write_str(name),
        }
    }
}

/// Something on the command line or in the environment that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mistake {
    /// A word that is not a flag.
    #[error(
        "unexpected argument {0:?}; a boolean is set as --flag or --flag=true, and `run` takes \
         flags only"
    )]
    BareWord(String),
    /// A word that looks like a flag.
    #[error("bad flag syntax {0:?}; write --flag=value")]
    Syntax(String),
    /// A flag that does not exist.
    #[error("unknown flag --{name}{}", question(.similar.as_deref()))]
    Unknown {
        /// The name of the flag.
        name: String,
        /// The flag whose name is like it.
        similar: Option<String>,
    },
    /// A flag without its value.
    #[error("--{0} needs a value; write --{0}=value")]
    NoValue(&'static str),
    /// A value that the flag does not take.
    #[error("{origin} is {value:?}, expected {expected}")]
    BadValue {
        /// The place of the value.
        origin: ValueOrigin,
        /// The value.
        value: String,
        /// The values that the flag takes.
        expected: &'static str,
    },
    /// A flag of stock flannel that is not built.
    #[error("{origin}={value} is not built yet; leave it out{}", default_hint(.default))]
    NotBuilt {
        /// The place of the value.
        origin: ValueOrigin,
        /// The value.
        value: String,
        /// The only value that may be set, if there is one.
        default: &'static str,
    },
    /// A word that is not text.
    #[error("{0} is not valid UTF-8")]
    NotUnicode(String),
}

fn question(similar: Option<&str>) -> String {
    similar
        .map(|flag| format!("; did you mean {flag}?"))
        .unwrap_or_default()
}

fn default_hint(default: &str) -> String {
    if default.is_empty() {
        String::new()
    } else {
        format!(" or set it to {default}")
    }
}

/// The result: the flags that clap can read, and the mistakes. There may be both, so that the
/// values of the good flags are still checked and all mistakes are reported at once.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Normalised {
    /// The flags that clap can read.
    pub flags: Vec<String>,
    /// The mistakes.
    pub mistakes: Vec<Mistake>,
}

/// The whole translation.
pub fn normalise(
    args: impl IntoIterator<Item = OsString>,
    env: impl IntoIterator<Item = (OsString, OsString)>,
) -> Normalised {
    let mut builder = Builder::default();
    builder.read_arguments(args);
    if builder.wants_help {
        return Normalised {
            flags: vec!["--help".to_owned()],
            mistakes: Vec::new(),
        };
    }
    // The version is printed before the environment is read, as in flanneld.
    if !builder
        .values
        .iter()
        .any(|(flag, value)| flag.name == "version" && value == "true")
    {
        builder.read_environment(&env.into_iter().collect());
    }
    builder.finish()
}

#[derive(Default)]
struct Builder {
    values: Vec<(&'static Flag, String)>,
    mistakes: Vec<Mistake>,
    wants_help: bool,
}

impl Builder {
    fn read_arguments(&mut self, args: impl IntoIterator<Item = OsString>) {
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            match arg.into_string() {
                Ok(arg) if arg == "--" => {
                    return self.mistakes.extend(args.map(|arg| bare_word(&arg)));
                }
                Ok(arg) => self.read_argument(&arg, &mut args),
                Err(arg) => self
                    .mistakes
                    .push(Mistake::NotUnicode(arg.display().to_string())),
            }
        }
    }

    fn read_argument(&mut self, arg: &str, rest: &mut impl Iterator<Item = OsString>) {
        let Some(body) = arg
            .strip_prefix("--")
            .or_else(|| arg.strip_prefix('-'))
            .filter(|_| arg != "-")
        else {
            return self.mistakes.push(Mistake::BareWord(arg.to_owned()));
        };
        if body.is_empty() || body.starts_with(['-', '=']) {
            return self.mistakes.push(Mistake::Syntax(arg.to_owned()));
        }
        let (name, value) = body
            .split_once('=')
            .map_or((body, None), |(name, value)| (name, Some(value)));
        let Some(flag) = Flag::named(name) else {
            return self.read_unknown(name);
        };
        let value = match (value, flag.kind) {
            (Some(value), _) => value.to_owned(),
            (None, Kind::Bool | Kind::Families) => "true".to_owned(),
            (None, _) => match rest.next().map(OsString::into_string) {
                Some(Ok(value)) => value,
                Some(Err(value)) => {
                    return self
                        .mistakes
                        .push(Mistake::NotUnicode(value.display().to_string()));
                }
                None => return self.mistakes.push(Mistake::NoValue(flag.name)),
            },
        };
        self.add(flag, ValueOrigin::Argument(flag.name), &value);
    }

    fn read_unknown(&mut self, name: &str) {
        if ["h", "help"].contains(&name) {
            self.wants_help = true;
        } else {
            self.mistakes.push(Mistake::Unknown {
                name: name.to_owned(),
                similar: flags::similar(name),
            });
        }
    }

    /// Fills in, from their variables, the flags the command line left out.
    fn read_environment(&mut self, env: &HashMap<OsString, OsString>) {
        for flag in FLAGS.iter().filter(|flag| flag.name != "version") {
            let variable = flag.variable();
            let on_command_line = self.values.iter().any(|(given, _)| given.name == flag.name);
            let value = env
                .get(&OsString::from(&variable))
                .filter(|value| !value.is_empty() && !on_command_line);
            match value.map(|value| value.to_str()) {
                None => {}
                Some(Some(value)) => self.add(flag, ValueOrigin::Variable(variable), value),
                Some(None) => self.mistakes.push(Mistake::NotUnicode(variable)),
            }
        }
    }

    fn add(&mut self, flag: &'static Flag, origin: ValueOrigin, value: &str) {
        let Some(canonical) = flag.canonical(value) else {
            let (value, expected) = (value.to_owned(), flag.expected());
            return self.mistakes.push(Mistake::BadValue {
                origin,
                value,
                expected,
            });
        };
        match flag.only {
            None => self.values.push((flag, canonical)),
            // Kept out of clap, but it still hides its variable.
            Some(default) if canonical == default => self.values.push((flag, canonical)),
            Some(default) => self.mistakes.push(Mistake::NotBuilt {
                origin,
                value: canonical,
                default,
            }),
        }
    }

    fn finish(self) -> Normalised {
        let is_last = |(at, (flag, _)): &(usize, &(&Flag, String))| {
            flag.kind == Kind::List
                || !self.values[at + 1..]
                    .iter()
                    .any(|(later, _)| later.name == flag.name)
        };
        let kept = self
            .values
            .iter()
            .enumerate()
            .filter(is_last)
            .filter(|(_, (flag, _))| flag.only.is_none());
        let flags = kept
            .map(|(_, (flag, value))| format!("--{}={value}", flag.name))
            .collect();
        Normalised {
            flags,
            mistakes: self.mistakes,
        }
    }
}

fn bare_word(arg: &OsString) -> Mistake {
    Mistake::BareWord(arg.display().to_string())
}
