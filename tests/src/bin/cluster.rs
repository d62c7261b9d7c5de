//! The cluster: see `flannel_tests::kubernetes::program`.

use std::process::ExitCode;

use clap::Parser as _;
use flannel_tests::kubernetes::program;

fn main() -> ExitCode {
    program::run(&program::Options::parse())
}
