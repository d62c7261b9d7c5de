//! The tables of flags and exit statuses in `docs/reference/configuration.md`, made from what clap
//! and `exit_status` know of them.
//!
//! Owns the text between the page's markers; everything around them is written by hand. After a
//! change of a flag, a default or a help text the test fails until the page is regenerated: run the
//! tests of this module with `FLANNEL_WRITE_DOCS=1`.

use clap::{Arg, CommandFactory as _};
use flannel_json_schema::page;
use flannel_options::flags;

use super::{Cli, exit_status};

/// A place of the page, between two markers, with tables of flags.
struct Table {
    /// The name in the markers of the page.
    name: &'static str,
    /// Returns true for the headings of its flags.
    shows: fn(&str) -> bool,
}

const KUBERNETES: &str = "Kubernetes";
/// The heading of flags that have none.
const OTHERS: &str = "Other";

const TABLES: [Table; 2] = [
    Table {
        name: "flags",
        shows: |heading| heading != KUBERNETES,
    },
    Table {
        name: "flags for Kubernetes",
        shows: |heading| heading == KUBERNETES,
    },
];

impl Table {
    /// A table for each heading, in the order of `--help`; flags without one come last.
    fn render(&self) -> String {
        let mut run = Cli::command();
        let run = run.find_subcommand_mut("run").expect("the daemon");
        let mut tables: Vec<(&str, String)> = Vec::new();
        for arg in run.get_arguments().filter(|arg| !arg.is_hide_set()) {
            let heading = arg.get_help_heading().unwrap_or(OTHERS);
            match tables.iter_mut().find(|(known, _)| *known == heading) {
                Some((_, rows)) => *rows += &row(arg),
                None => tables.push((heading, row(arg))),
            }
        }
        tables.retain(|(heading, _)| (self.shows)(heading));
        tables.sort_by_key(|(heading, _)| *heading == OTHERS);
        let titled = tables.len() > 1;
        let render = |(heading, rows)| {
            let title = if titled {
                format!("**{heading}**\n\n")
            } else {
                String::new()
            };
            format!("{title}| flag | variable | default | meaning |\n|---|---|---|---|\n{rows}")
        };
        tables
            .into_iter()
            .map(render)
            .collect::<Vec<_>>()
            .join("\n")
    }
}

fn row(arg: &Arg) -> String {
    let name = arg.get_long().expect("every flag is a word");
    // The version is printed before any variable is read.
    let flag = flags::Flag::named(name).filter(|flag| flag.name != "version");
    let variable = flag
        .map(|flag| format!("`{}` ", flag.variable()))
        .unwrap_or_default();
    let help = arg.get_help().expect("a text").to_string();
    let (meaning, default) = split_default(&help);
    let values: Vec<_> = arg
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy())
        .collect();
    let default = match default {
        Some(text) => format!("{text} "),
        None if name == "version" || values.iter().all(|value| value.is_empty()) => String::new(),
        None => format!("`{}` ", values.join(",")),
    };
    format!(
        "| `--{name}` | {variable}| {default}| {} |\n",
        markdown(meaning)
    )
}

/// Splits `[default: ...]` off the end of a help text. It describes a default that is not a value.
fn split_default(help: &str) -> (&str, Option<&str>) {
    let parts = help
        .split_once(" [default: ")
        .and_then(|(text, rest)| Some((text, rest.strip_suffix(']')?)));
    parts.map_or((help, None), |(text, default)| (text, Some(default)))
}

/// Flags as code, and no end of a cell where none is meant.
pub(super) fn markdown(text: &str) -> String {
    let words = text.split(' ').map(|word| {
        let end = word.trim_end_matches([',', ';', ':', '.', ')']).len();
        let (word, rest) = word.split_at(end);
        if word.starts_with("--") {
            format!("`{word}`{rest}")
        } else {
            format!("{word}{rest}")
        }
    });
    words
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|")
        .replace('*', "\\*")
}

#[test]
fn the_page_has_the_flags_and_exit_statuses_as_they_are() {
    let flags = TABLES.iter().map(|table| (table.name, table.render()));
    let tables: Vec<_> = flags
        .chain([("exit status", exit_status::tests::table())])
        .collect();
    page::check("configuration.md", &tables);
}

#[test]
fn a_table_has_every_flag_that_is_shown() {
    let rows = TABLES.iter().map(Table::render).collect::<String>();
    for flag in flags::FLAGS.iter().filter(|flag| flag.only.is_none()) {
        let hidden = ["subnet-lease-ttl", "nexthops-from"].contains(&flag.name);
        let found = rows.matches(&format!("| `--{}` | ", flag.name)).count();
        assert_eq!(found, usize::from(!hidden), "--{}", flag.name);
    }
}

#[test]
fn flags_that_are_refused_are_named() {
    let page = page::read("configuration.md");
    let (_, after) = page
        .split_once("with an error that names the flag: ")
        .expect("the sentence");
    let (named, _) = after.split_once(".\n").expect("its end");
    let refused = flags::FLAGS
        .iter()
        .filter(|flag| flag.only.is_some())
        .map(|flag| format!("`--{}`", flag.name));
    let named = named.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(named, refused.collect::<Vec<_>>().join(", "));
}

#[test]
fn a_row_is_a_row() {
    assert_eq!(
        split_default("A thing [default: the other]"),
        ("A thing", Some("the other"))
    );
    assert_eq!(split_default("A thing [sic]"), ("A thing [sic]", None));
    assert_eq!(
        markdown("As --iface, or (--v): a|b, Subnet*"),
        "As `--iface`, or (--v): a\\|b, Subnet\\*"
    );
}
