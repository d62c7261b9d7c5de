//! The chart, as Helm renders and judges it.

use std::{ffi::OsString, fs, path::PathBuf, process::Output, sync::OnceLock};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{kubernetes::helm, not_run};

use super::{documents::Documents, text_of};

/// A value set of the chart, rendered.
pub(crate) struct Rendered {
    /// `default`, the name of a file of `ci/` without `-values.yaml`, or `preset-` and the name of
    /// a preset.
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
    sets.as_ref()
        .map(|sets| report_missing(sets.as_deref()))
        .map_err(|text| anyhow::anyhow!("{text}"))
}

/// One of them.
pub(crate) fn set(name: &str) -> Result<Option<Documents>> {
    let Some(sets) = sets()? else { return Ok(None) };
    let found = sets
        .iter()
        .find(|set| set.name == name)
        .with_context(|| format!("no value set {name}"))?;
    found.documents().map(Some)
}

fn render_all() -> Result<Option<Vec<Rendered>>> {
    let (tested, presets) = (files("ci", "-values.yaml")?, files("presets", ".yaml")?);
    let presets = presets
        .into_iter()
        .map(|(name, file)| (format!("preset-{name}"), file));
    let sets = tested
        .into_iter()
        .chain(presets)
        .map(|(name, file)| render(&name, Some(file.into())));
    std::iter::once(render("default", None))
        .chain(sets)
        .collect()
}

/// The names and paths of the files in a folder of the chart.
fn files(folder: &str, suffix: &str) -> Result<Vec<(String, PathBuf)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(helm::chart().join(folder))? {
        let entry = entry?;
        let name = entry
            .file_name()
            .to_string_lossy()
            .strip_suffix(suffix)
            .map(str::to_owned);
        files.extend(name.map(|name| (name, entry.path())));
    }
    files.sort();
    Ok(files)
}

fn render(name: &str, values: Option<OsString>) -> Result<Option<Rendered>> {
    let Some(output) = helm::template(helm::chart(), values)? else {
        return Ok(None);
    };
    ensure!(output.status.success(), "{name}: {}", text_of(&output));
    Ok(Some(Rendered {
        name: name.to_owned(),
        text: String::from_utf8(output.stdout)?,
    }))
}
