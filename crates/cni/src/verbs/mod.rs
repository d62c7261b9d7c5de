//! The verbs of the runtime; one file per verb.

mod add;
mod check;
mod del;
mod delete;
mod gc;
mod status;

use std::io::{self, Write as _};

use crate::{
    environment::{Environment, Verb},
    error::Error,
    netconf::NetConf,
    state::{Key, StateDir},
    version::{self, Version},
};

/// Does what is asked for; what to print.
pub(crate) fn run(environment: &Environment, input: &[u8]) -> Result<Vec<u8>, Error> {
    let conf = || NetConf::parse(input);
    let conf_since = |version| {
        let conf = conf()?;
        conf.version
            .require(version, environment.verb.name())
            .map(|()| conf)
    };
    match environment.verb {
        Verb::Add => add::add(environment, conf()?),
        Verb::Del => del::del(environment, &NetConf::parse_any_version(input)?),
        Verb::Check => check::check(environment, conf_since(Version::WITH_CHECK)?),
        Verb::Gc => gc::gc(environment, &conf_since(Version::WITH_GC)?),
        Verb::Status => status::status(environment, &conf_since(Version::WITH_GC)?),
        Verb::Version => Ok(version::answer(version::of_answer(input))),
    }
}

/// The key under which there is a file for this call, ours or stock flannel's.
fn present(state: &StateDir, environment: &Environment) -> Option<Key> {
    let key = Key::new(environment);
    let stock = key.stock();
    [key, stock].into_iter().find(|key| state.has(key))
}

/// Writes a line to standard error, for the runtime's log. A failure to write is ignored.
fn note(text: &str) {
    drop(writeln!(io::stderr(), "flannel: {text}"));
}
