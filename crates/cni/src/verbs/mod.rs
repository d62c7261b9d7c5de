//! The verbs of the runtime; one file per verb.

mod add;
mod check;
mod del;
mod delete;
mod gc;
mod note;
mod present;
mod status;

use crate::{
    environment::{Environment, Verb},
    error::Error,
    netconf::NetConf,
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
