//! The demo: see `flannel_tests::demo`.

use std::process::ExitCode;

use clap::Parser as _;
use flannel_tests::demo;

fn main() -> ExitCode {
    demo::run(&demo::Options::parse())
}
