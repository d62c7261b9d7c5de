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

fn help(verb: &str) -> Result<String> {
    let lab = Lab::new("docs")?;
    let binary = AgentOptions::etcd("http://127.0.0.1:1")?.binary.display().to_string();
    Ok(lab.node("n")?.run([&binary, verb, "--help"])?.stdout)
}

/// The flags of a help page, without dashes.
fn flags(help: &str) -> BTreeSet<&str> {
    help.lines().filter_map(flag).filter(|flag| *flag != "help").collect()
}

/// The flag a line begins with. Some have a letter too.
fn flag(line: &str) -> Option<&str> {
    let line = line.trim();
    let at = line.find("--").filter(|_| line.starts_with('-'))?;
    line[at + 2..].split([' ', '=']).next()
}

#[test]
fn every_flag_of_monitor_is_explained() -> Result<()> {
    let help = help("monitor")?;
    let text = page("datapath.md")?;
    let (_, section) = text.split_once("\n## Watching packets\n").context("no section")?;
    let rows: Vec<&str> = section.lines().take_while(|line| !line.starts_with("## ")).collect();
    let flags = flags(&help);
    assert!(flags.len() > 10, "{help}");
    for flag in flags {
        let named = |row: &&&str| {
            let cell = row.split(" | ").next().unwrap_or_default();
            row.starts_with("| `") && cell.split(['`', ' ', ',']).any(|word| word == format!("--{flag}"))
        };
        assert_eq!(rows.iter().filter(named).count(), 1, "--{flag}");
    }
    Ok(())
}
