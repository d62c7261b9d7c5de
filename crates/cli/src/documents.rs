//! The page `docs/reference/json.md`, compared with the commands: each that prints JSON has a row
//! with the schema of its document.

use std::{collections::BTreeSet, fs, path::Path};

use clap::{Command, CommandFactory as _};

use super::Cli;

/// The commands below this one that print JSON with `-o json`, by their words.
fn json_commands(command: &Command, words: &str) -> Vec<String> {
    let below = command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .flat_map(|command| {
            let words = format!("{words} {}", command.get_name());
            json_commands(command, &words)
        });
    let prints = command.get_arguments().any(|arg| {
        arg.get_long() == Some("output")
            && arg
                .get_possible_values()
                .iter()
                .any(|value| value.get_name() == "json")
    });
    below.chain(prints.then(|| words.to_owned())).collect()
}

/// The rows of the page's table: the words of the command, and the file of the schema.
fn rows(page: &str) -> Vec<(&str, &str)> {
    let row = |line| {
        let (_, rest) = str::split_once(line, "`")?;
        let (command, rest) = rest.split_once('`')?;
        let (_, schema) = rest.rsplit_once("](schemas/")?;
        Some((command, schema.split_once(')')?.0))
    };
    page.lines()
        .filter(|line| line.starts_with("| "))
        .filter_map(row)
        .collect()
}

#[test]
fn each_command_with_json_has_a_schema_on_the_page() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    let page = fs::read_to_string(folder.join("json.md")).expect("the page");
    let rows = rows(&page);
    let commands = json_commands(&Cli::command(), "flannel-agent");
    assert!(commands.len() > 10, "{commands:?}");
    for command in &commands {
        let is_it = |(shown, _): &&(&str, &str)| {
            shown
                .strip_prefix(command.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        assert!(
            rows.iter().any(|row| is_it(&row)),
            "docs/reference/json.md has no row for `{command}`"
        );
    }
    let linked: BTreeSet<String> = rows
        .iter()
        .map(|(_, schema)| (*schema).to_owned())
        .collect();
    let files = fs::read_dir(folder.join("schemas")).expect("the folder");
    let files = files
        .map(|file| {
            file.expect("a file")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    assert_eq!(
        linked, files,
        "the schemas on the page are the files in docs/reference/schemas"
    );
}
