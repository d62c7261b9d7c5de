//! The manifest and every value set of the chart, by the schemas of Kubernetes: the newest that the
//! validator has, and the oldest.

use std::{env, fs, path::PathBuf, process::Command};

use anyhow::{Result, ensure};
use flannel_tests::not_run;

use super::{deploy, documents::Documents, helm, text_of};

/// Of the validator in tests/python/requirements.txt.
const OLDEST: &str = "1.25.0";

/// No property that no schema knows, in no file.
fn validate(what: &str, files: &[PathBuf]) -> Result<()> {
    let validator =
        env::var_os("KUBERNETES_VALIDATE").unwrap_or_else(|| "kubernetes-validate".into());
    for version in [&[][..], &["--kubernetes-version", OLDEST]] {
        let output = Command::new(&validator)
            .args(["--strict", "--quiet", "--no-warn"])
            .args(version)
            .args(files)
            .output();
        let Ok(output) = output else {
            not_run(
                what,
                "no kubernetes-validate (by cargo xtask setup, from PyPI: python3 with venv)",
            );
            return Ok(());
        };
        ensure!(output.status.success(), "{version:?}: {}", text_of(&output));
    }
    Ok(())
}

/// All but those whose schemas the operator of Prometheus brings. JSON is YAML.
fn kubernetes_own(documents: &Documents) -> String {
    let own = documents
        .0
        .iter()
        .filter(|(kind, _)| !["PodMonitor", "PrometheusRule"].contains(&kind.as_str()));
    own.map(|(_, document)| format!("---\n{document}\n"))
        .collect::<Vec<_>>()
        .concat()
}

#[test]
fn the_manifest_is_valid_by_the_schemas_of_kubernetes() -> Result<()> {
    validate(
        "the manifest by the schemas of Kubernetes",
        &[deploy("kube-flannel.yml"), deploy("admission-policy.yml")],
    )
}

#[test]
fn the_chart_is_valid_by_the_schemas_of_kubernetes() -> Result<()> {
    let Some(sets) = helm::sets()? else {
        return Ok(());
    };
    ensure!(
        sets.len() > 10,
        "the default and ten others at least, not {}",
        sets.len()
    );
    let directory = tempfile::tempdir()?;
    let write = |set: &helm::Rendered| {
        let file = directory.path().join(format!("{}.yaml", set.name));
        fs::write(&file, kubernetes_own(&set.documents()?))?;
        Ok(file)
    };
    let files: Vec<PathBuf> = sets.iter().map(write).collect::<Result<_>>()?;
    validate("the chart by the schemas of Kubernetes", &files)
}
