//! The CNI plugin `flannel`: a meta plugin. It fills in the configuration of another plugin,
//! `bridge` unless one is named, from what the agent wrote into subnet.env, and calls it.
//!
//! It is started for every pod, so it has few dependencies, one thread and no runtime. It owns the
//! state files and their lock, and the format of errors; interfaces and addresses are the
//! delegate's. It reads the kernel's network state (`netns`) and does not change it.

mod delegate;
mod environment;
mod error;
mod fill;
#[cfg(test)]
mod fuzz;
mod host_local;
mod lock;
mod netconf;
mod netns;
mod prev_result;
mod regular_file;
mod state;
mod subnet_file;
mod verbs;
mod version;

use std::{
    env,
    io::{self, Read as _, Write as _},
    process::ExitCode,
};

use crate::{environment::Environment, error::Error};

fn main() -> ExitCode {
    if env::var_os(environment::COMMAND).is_none_or(|command| command.is_empty()) {
        return about();
    }
    let mut input = Vec::new();
    let result = match io::stdin().read_to_end(&mut input) {
        Ok(_) => Environment::read(|name| env::var_os(name))
            .and_then(|environment| verbs::run(&environment, &input)),
        Err(error) => Err(Error::io(
            "read",
            "the network configuration on standard input",
        )(error)),
    };
    match result {
        Ok(output) => print(&output, ExitCode::SUCCESS),
        Err(error) => print(&error.output(version::of_answer(&input)), ExitCode::FAILURE),
    }
}

/// Prints a result. One that cannot be written is a failure.
fn print(output: &[u8], code: ExitCode) -> ExitCode {
    let mut stdout = io::stdout();
    match stdout.write_all(output).and_then(|()| stdout.flush()) {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}

/// For people who call it by hand.
fn about() -> ExitCode {
    let (version, system, arch) = (
        env!("CARGO_PKG_VERSION"),
        env::consts::OS,
        env::consts::ARCH,
    );
    let versions = version::SUPPORTED.join(", ");
    let text = format!(
        "CNI Plugin flannel version {version} ({system}/{arch})\nCNI protocol versions supported: \
         {versions}\n"
    );
    drop(io::stderr().write_all(text.as_bytes()));
    ExitCode::SUCCESS
}
