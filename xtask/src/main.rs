//! `cargo xtask`: the one entry point of the project, for people and for CI alike.
//!
//! Each verb does all the set-up it needs itself, so any of them can be the first command after a
//! clone. This file reads the command line and hands over; what a verb does is in the module of its
//! name.

mod build;
mod cargo;
mod cli;
mod cluster;
mod compiler;
mod deny;
mod dist;
mod files;
mod fuzz;
mod image;
mod lab;
mod launch;
mod lint;
mod object;
mod progress;
mod setup;
mod test;
mod upgrade;
mod workspace;

use std::process::ExitCode;

use clap::Parser as _;

use crate::{
    cli::{Options, TestOptions, Verb},
    setup::{Needs, Setup},
    workspace::Workspace,
};

fn main() -> ExitCode {
    let result = compiler::run().unwrap_or_else(|| run(Options::parse()));
    result.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(options: Options) -> anyhow::Result<ExitCode> {
    let workspace = Workspace::new()?;
    let setup = Setup::new(&workspace, options.skip_setup);
    match options.verb {
        Verb::Setup => {
            setup.machine(Needs::ALL)?;
            setup.checkers();
            println!("ready: {}", setup.bpf()?);
        }
        Verb::Build { no_bpf, bpf_log } => build_agent(&workspace, &setup, no_bpf, bpf_log)?,
        Verb::Dist(options) => {
            setup.machine(Needs::COMPILE)?;
            println!("dist: {}", dist::release(&setup, &options)?.display());
        }
        Verb::Image => {
            setup.machine(Needs::COMPILE)?;
            let toolchain = setup.bpf()?;
            let built = build::build(
                &workspace,
                Some(build::Bpf::release(&toolchain)),
                build::Parts::Agent,
            )?;
            println!("image: {}", image::make(&setup, &built)?.display());
        }
        Verb::Demo { args } => match launch::launch(&setup, launch::Program::Demo, &args)? {},
        Verb::Bench { args } => match launch::launch(&setup, launch::Program::Bench, &args)? {},
        Verb::Cluster(options) if options.is_check() => {
            let filter = options.args.clone();
            return Ok(test::run(
                &setup,
                &TestOptions {
                    filter,
                    ..TestOptions::subject("kubernetes")
                },
            ));
        }
        Verb::Cluster(options) => match cluster::launch(&setup, &options)? {},
        Verb::Test(options) => return Ok(test::run(&setup, &options)),
        Verb::Upgrade { from, filter } => {
            let former = Some(upgrade::build(&workspace, from.as_deref())?);
            return Ok(test::run(
                &setup,
                &TestOptions {
                    former,
                    filter,
                    ..TestOptions::subject("upgrade")
                },
            ));
        }
        Verb::Fuzz(options) => return fuzz::run(&setup, &options),
        Verb::Soak { time, filter } => {
            return Ok(test::run(&setup, &TestOptions::soak(time, filter)));
        }
        Verb::Lint { no_bpf, no_clippy } => return lint::run(&setup, no_bpf, no_clippy),
        Verb::Deny => return deny::run(&setup),
        Verb::CleanLab(options) => lab::clean::run(&options)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn build_agent(
    workspace: &Workspace,
    setup: &Setup<'_>,
    no_bpf: bool,
    bpf_log: bool,
) -> anyhow::Result<()> {
    setup.machine(Needs::COMPILE)?;
    let toolchain = if no_bpf { None } else { Some(setup.bpf()?) };
    let bpf = toolchain
        .as_ref()
        .map(|toolchain| build::Bpf::with_log(toolchain, bpf_log));
    build::build(workspace, bpf, build::Parts::Agent)?;
    Ok(())
}
