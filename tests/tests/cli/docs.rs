//! The operator documentation names everything that exists, and only that.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use flannel_common::abi::reason::Reason;
use flannel_tests::AgentOptions;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn page(name: &str) -> Result<String> {
    let path = root().join("docs").join(name);
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// Every page there is, by its path from the project's root.
fn pages() -> Result<Vec<(String, String)>> {
    let mut names = [
        "README.md",
        "CHANGELOG.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
    ]
    .map(str::to_owned)
    .to_vec();
    let mut folders = vec!["docs".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder))? {
            let entry = entry?;
            let name = format!("{folder}/{}", entry.file_name().display());
            if entry.file_type()?.is_dir() {
                folders.push(name);
            } else if Path::new(&name)
                .extension()
                .is_some_and(|extension| extension == "md")
            {
                names.push(name);
            }
        }
    }
    ensure!(names.len() > 30, "{names:?}");
    names
        .into_iter()
        .map(|name| Ok((name.clone(), fs::read_to_string(root().join(name))?)))
        .collect()
}

#[test]
fn every_reason_is_explained() -> Result<()> {
    let text = page("reference/reasons.md")?;
    for reason in Reason::ALL {
        let row = format!("\n| `{}` | ", reason.name());
        assert_eq!(text.matches(&row).count(), 1, "{}", reason.name());
    }
    Ok(())
}

fn help(words: &[&str]) -> Result<String> {
    let binary = AgentOptions::etcd("http://127.0.0.1:1")?.binary;
    let output = Command::new(&binary).args(words).arg("--help").output()?;
    ensure!(
        output.status.success(),
        "{words:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// The subcommands of a help page.
fn subcommands(help: &str) -> BTreeSet<&str> {
    let (_, section) = help.split_once("\nCommands:\n").unwrap_or_default();
    section
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .collect()
}

/// The flags of a help page, without dashes.
fn flags(help: &str) -> BTreeSet<&str> {
    help.lines()
        .filter_map(flag)
        .filter(|flag| *flag != "help")
        .collect()
}

/// The flag a line begins with. Some have a letter too.
fn flag(line: &str) -> Option<&str> {
    let line = line.trim();
    let at = line.find("--").filter(|_| line.starts_with('-'))?;
    line[at + 2..].split([' ', '=', '[']).next()
}

#[test]
fn every_flag_of_monitor_is_explained() -> Result<()> {
    let help = help(&["monitor"])?;
    let text = page("reference/monitor.md")?;
    let (_, section) = text.split_once("\n## Flags\n").context("no section")?;
    let rows: Vec<&str> = section
        .lines()
        .take_while(|line| !line.starts_with("## "))
        .collect();
    let flags = flags(&help);
    assert!(flags.len() > 10, "{help}");
    for flag in flags {
        let named = |row: &&&str| {
            let cell = row.split(" | ").next().unwrap_or_default();
            row.starts_with("| `")
                && cell
                    .split(['`', ' ', ','])
                    .any(|word| word == format!("--{flag}"))
        };
        assert_eq!(rows.iter().filter(named).count(), 1, "--{flag}");
    }
    Ok(())
}

/// Returns the words after each `flannel-agent `, up to the end of the command.
fn commands(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let behind = text
        .lines()
        .flat_map(|line| line.split("flannel-agent ").skip(1));
    behind.map(|rest| {
        let command = rest
            .split(['`', '#', ';', '&', ')', ',', '('])
            .next()
            .unwrap_or_default();
        command.split_whitespace().collect()
    })
}

/// Returns true if a word can be a subcommand: not a comment, a placeholder or a path.
fn is_plain(word: &str) -> bool {
    !word.is_empty()
        && word
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'-')
        && !word.starts_with('-')
}

#[test]
fn every_command_in_the_pages_is_one() -> Result<()> {
    let mut seen = 0;
    for (name, text) in pages()? {
        for words in
            commands(&text).filter(|words| words.first().is_some_and(|word| is_plain(word)))
        {
            let mut path: Vec<&str> = Vec::new();
            let mut page = help(&path)?;
            for word in &words {
                let known = subcommands(&page);
                if known.is_empty() || !is_plain(word) {
                    break;
                }
                ensure!(
                    known.contains(word),
                    "{name}: flannel-agent {words:?}: there is no {word} among {known:?}"
                );
                path.push(word);
                page = help(&path)?;
            }
            for flag in words
                .iter()
                .filter_map(|word| word.trim_start_matches('[').strip_prefix("--"))
            {
                let flag = flag.split(['=', ']']).next().unwrap_or_default();
                let known = flag.is_empty() || flags(&page).contains(flag);
                ensure!(
                    known,
                    "{name}: flannel-agent {words:?}: there is no --{flag}"
                );
            }
            seen += 1;
        }
    }
    ensure!(seen > 50, "{seen} commands");
    Ok(())
}

#[test]
fn every_file_of_the_ten_changes_is_one() -> Result<()> {
    let text = page("design/changes.md")?;
    let files: BTreeSet<_> = text
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|name| name.contains('/') && !name.contains(' '))
        .collect();
    ensure!(files.len() > 30, "{files:?}");
    let missing: Vec<_> = files
        .into_iter()
        .filter(|name| !root().join(name).exists())
        .collect();
    ensure!(missing.is_empty(), "there is no {missing:?}");
    Ok(())
}

/// The anchor of a heading, as it is shown on the web.
fn slug(heading: &str) -> String {
    let kept = heading.trim().to_lowercase().replace(' ', "-");
    kept.chars()
        .filter(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_'))
        .collect()
}

/// The anchors of a page: of its headings, and those it sets.
pub(super) fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .map(|line| slug(line.trim_start_matches('#')));
    let set = text
        .split("<a id=\"")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()));
    headings.chain(set).collect()
}

#[test]
fn every_link_between_the_pages_leads_somewhere() -> Result<()> {
    let mut seen = 0;
    for (name, text) in pages()? {
        let links = text
            .split("](")
            .skip(1)
            .filter_map(|rest| Some(rest.split_once(')')?.0));
        let pictures = text.split("src").skip(1).filter_map(|rest| {
            let rest = rest
                .strip_prefix("set")
                .unwrap_or(rest)
                .strip_prefix("=\"")?;
            Some(rest.split_once('"')?.0)
        });
        for target in links.chain(pictures) {
            if target.starts_with("http") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let path = root().join(&name);
            let path = if file.is_empty() {
                path
            } else {
                path.with_file_name(file)
            };
            ensure!(path.exists(), "{name}: {target}: no such file");
            if !anchor.is_empty() {
                let text = fs::read_to_string(&path)?;
                ensure!(
                    anchors(&text).contains(anchor),
                    "{name}: {target}: no such heading"
                );
            }
            seen += 1;
        }
    }
    ensure!(seen > 50, "{seen} links");
    Ok(())
}

#[test]
fn a_list_of_contents_has_every_section() -> Result<()> {
    let mut seen = 0;
    for (name, text) in pages()? {
        let Some((_, rest)) = text.split_once("\nContents:\n") else {
            continue;
        };
        let (list, sections) = rest.split_once("\n## ").context("a section")?;
        for heading in format!("\n## {sections}").split("\n## ").skip(1) {
            let heading = heading.lines().next().unwrap_or_default();
            let link = format!("(#{})", slug(heading));
            ensure!(list.contains(&link), "{name}: the contents lack {heading}");
            seen += 1;
        }
    }
    ensure!(seen > 50, "{seen} sections");
    Ok(())
}
