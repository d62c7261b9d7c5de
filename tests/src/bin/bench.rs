//! The bench: see `flannel_tests::bench`.

use clap::Parser as _;
use flannel_tests::bench;

fn main() -> anyhow::Result<()> {
    bench::run(&bench::Options::parse())
}
