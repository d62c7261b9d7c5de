//! The files in `deploy/` fit the programs they start, the kernel they prepare, and the
//! requirements of Kubernetes and Helm.

mod chart;
mod chart_sets;
mod docker_opts;
mod documents;
mod helm;
mod image;
mod migration;
mod policy;
mod prepare;
mod privileges;
mod refusals;
mod schemas;
mod seccomp;
mod unit;

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use anyhow::{Result, ensure};
use flannel_tests::agent_binary;

use self::documents::Documents;

fn deploy(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../deploy")
        .join(name)
}

fn manifest() -> Result<Documents> {
    Documents::parse(&fs::read_to_string(deploy("kube-flannel.yml"))?)
}

fn text_of(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat()
}

/// With `--version` the agent ends at once, but not before it has judged every other flag.
fn agent_takes(flags: &[String]) -> Result<()> {
    let output = Command::new(agent_binary()?)
        .arg("run")
        .args(flags)
        .arg("--version")
        .output()?;
    ensure!(output.status.success(), "{flags:?}: {}", text_of(&output));
    Ok(())
}

#[test]
fn the_agent_knows_every_flag_of_the_manifest() -> Result<()> {
    let flags = manifest()?.flags_of_a_pod()?;
    ensure!(flags.len() >= 3, "the flags of the manifest: {flags:?}");
    agent_takes(&flags)
}
