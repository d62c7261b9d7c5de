//! The chart, as Helm renders and judges it.

use std::{ffi::OsString, fs, process::Output, sync::OnceLock};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{helm, not_run};

use super::{documents::Documents, text_of};

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

/// Each test that goes without says so itself.
fn report_missing<T>(found: Option<T>) -> Option<T> {
    if found.is_none() {
        not_run("the chart", helm::MISSING);
    }
    found
}

/// `helm template`, with the values of a file.
pub(crate) fn template(values: OsString) -> Result<Option<Output>> {
    helm::template(helm::chart(), Some(values)).map(report_missing)
}

pub(crate) fn lint() -> Result<Option<Output>> {
    helm::run(&["lint".into(), "--strict".into(), helm::chart().into()]).map(report_missing)
}

/// Returns the default and every value set of `ci/`, rendered once; `None` if Helm is not
/// installed.
pub(crate) fn sets() -> Result<Option<&'static [Rendered]>> {
    static SETS: OnceLock<Result<Option<Vec<Rendered>>, String>> = OnceLock::new();
    let sets = SETS.get_or_init(|| render_all().map_err(|error| format!("{error:#}")));
    sets.as_ref().map(|sets| report_missing(sets.as_deref())).map_err(|text| anyhow::anyhow!("{text}"))
}

/// One of them.
pub(crate) fn set(name: &str) -> Result<Option<Documents>> {
    let Some(sets) = sets()? else { return Ok(None) };
    let found = sets.iter().find(|set| set.name == name).with_context(|| format!("no value set {name}"))?;
    found.documents().map(Some)
}

fn render_all() -> Result<Option<Vec<Rendered>>> {
    let mut files: Vec<_> =
        fs::read_dir(helm::chart().join("ci"))?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    let named = files.iter().filter_map(|file| Some((file.file_name()?.to_str()?.strip_suffix("-values.yaml")?, file)));
    let sets = named.map(|(name, file)| render(name, Some(file.into())));
    std::iter::once(render("default", None)).chain(sets).collect()
}

fn render(name: &str, values: Option<OsString>) -> Result<Option<Rendered>> {
    let Some(output) = helm::template(helm::chart(), values)? else { return Ok(None) };
    ensure!(output.status.success(), "{name}: {}", text_of(&output));
    Ok(Some(Rendered { name: name.to_owned(), text: String::from_utf8(output.stdout)? }))
}
