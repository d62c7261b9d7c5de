//! The operator documentation names everything there is.

use std::{collections::BTreeSet, fs};

use anyhow::{Context as _, Result};
use flannel_common::reason::Reason;
use flannel_tests::{AgentOptions, Lab};

fn page(name: &str) -> Result<String> {
    let path = format!("{}/../docs/{name}", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(&path).context(path)
}

#[test]
fn every_reason_is_explained() -> Result<()> {
    let text = page("datapath.md")?;
    for reason in Reason::ALL {
        let row = format!("\n| `{}` | ", reason.name());
        assert_eq!(text.matches(&row).count(), 1, "{}", reason.name());
    }
    Ok(())
}

#[test]
fn every_flag_of_run_is_explained_with_its_variable() -> Result<()> {
    let lab = Lab::new("docs")?;
    let binary = AgentOptions::etcd("http://127.0.0.1:1")?.binary.display().to_string();
    let help = lab.node("n")?.run([&binary, "run", "--help"])?.stdout;
    let flags: BTreeSet<&str> =
        help.lines().filter_map(|line| line.trim().strip_prefix("--")?.split([' ', '=']).next()).collect();
    assert!(flags.len() > 10, "{help}");
    let text = page("configuration.md")?;
    for flag in flags {
        let variable = format!("FLANNELD_{}", flag.to_uppercase().replace('-', "_"));
        let row = text.lines().find(|line| line.starts_with(&format!("| `--{flag}` | ")));
        let row = row.with_context(|| format!("--{flag} has no row"))?;
        assert!(flag == "version" || row.contains(&format!("`{variable}`")), "{row}");
    }
    Ok(())
}
