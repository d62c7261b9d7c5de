//! docs/reference/kernels.md: the last result of each kernel, as a table. The results of a run are
//! kept below `target/kernels`, so that kernels may run one by one; what is not among them stays as
//! the page has it.

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::{
    architecture::Architecture,
    report::Outcome,
    set::{FEATURES, Feature, SERIES, Series, Work},
};
use crate::{files, workspace::Workspace};

const PAGE: &str = "docs/reference/kernels.md";

const HEAD: &str = "\
# Kernels

The last results of `cargo xtask test --kernel all`. It boots kernels of Debian in an emulated
machine (qemu, without KVM) and runs a part of the tests on each. Two nodes and their pods are
network namespaces there, as in all tests. Speed is not measured.

`NOT RUN`: the kernel lacks what the row needs. On Linux 5.10 that is helpers of the BPF programs,
which need 5.13; the row without BPF helpers says what is expected there. Traces of packets need
5.12. `-`: the row is about older kernels. An empty cell: no result yet.

On arm64 the same tests run, compiled for it, with etcd, nft and the other programs of Debian for
arm64. Rows whose tests call strongSwan or ipvsadm are `-`.

";

/// The results of one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Column {
    version: String,
    cells: BTreeMap<String, String>,
}

fn file(workspace: &Workspace, series: &Series) -> PathBuf {
    workspace
        .target()
        .join("kernels/results")
        .join(format!("{}.json", series.name))
}

/// Keeps the results of a run, and those of other rows on the same kernel.
pub(super) fn keep(
    workspace: &Workspace,
    series: &Series,
    version: &str,
    results: &[(&Feature, Outcome)],
) -> anyhow::Result<()> {
    let before = read(workspace, series).filter(|column| column.version == version);
    let mut cells = before.map(|column| column.cells).unwrap_or_default();
    cells.extend(
        results
            .iter()
            .map(|(feature, outcome)| (feature.name.to_owned(), outcome.cell().to_owned())),
    );
    let document = json!({ "version": version, "cells": cells });
    files::write(&file(workspace, series), &format!("{document:#}\n"))
}

/// Writes all results that were kept into the page.
pub(super) fn write(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    let page = workspace.root().join(PAGE);
    let before =
        fs::read_to_string(&page).with_context(|| format!("cannot read {}", page.display()))?;
    let columns =
        std::array::from_fn(|at| merged(recorded(&before, at), read(workspace, &SERIES[at])));
    fs::write(&page, text(&columns)).with_context(|| format!("cannot write {}", page.display()))?;
    Ok(page)
}

/// The results of a kernel, by its place in the table, that the page has.
fn recorded(page: &str, at: usize) -> Option<Column> {
    let mut rows = page.lines().filter_map(|line| {
        let cells: Vec<&str> = line
            .strip_prefix("| ")?
            .strip_suffix('|')?
            .split('|')
            .map(str::trim)
            .collect();
        (cells.len() == 1 + SERIES.len()).then(|| (cells[0].to_owned(), cells[1 + at].to_owned()))
    });
    let (_, heading) = rows.next()?;
    let version = heading.split(' ').next()?.to_owned();
    Some(Column {
        version,
        cells: rows.filter(|(_, cell)| !cell.is_empty()).collect(),
    })
}

/// Returns the results of the page, replaced by those that were kept of the same kernel. A newer
/// kernel has only its own results.
fn merged(recorded: Option<Column>, kept: Option<Column>) -> Option<Column> {
    match (recorded, kept) {
        (Some(mut column), Some(kept)) if column.version == kept.version => {
            column.cells.extend(kept.cells);
            Some(column)
        }
        (recorded, kept) => kept.or(recorded),
    }
}

fn read(workspace: &Workspace, series: &Series) -> Option<Column> {
    let document: Value =
        serde_json::from_str(&fs::read_to_string(file(workspace, series)).ok()?).ok()?;
    let cells = document["cells"].as_object()?;
    let cells = cells
        .iter()
        .filter_map(|(name, cell)| Some((name.clone(), cell.as_str()?.to_owned())));
    Some(Column {
        version: document["version"].as_str()?.to_owned(),
        cells: cells.collect(),
    })
}

fn text(columns: &[Option<Column>; SERIES.len()]) -> String {
    let mut text = HEAD.to_owned();
    let versions: Vec<_> = SERIES
        .iter()
        .zip(columns)
        .map(|(series, column)| heading(series, column.as_ref()))
        .collect();
    text += &row("feature", versions.iter().map(String::as_str));
    text += &row("---", SERIES.iter().map(|_| "---"));
    for feature in &FEATURES {
        let cells = SERIES
            .iter()
            .zip(columns)
            .map(|(series, column)| cell(feature, series, column.as_ref()));
        text += &row(feature.name, cells);
    }
    text += "\nThe tests of each row:\n\n";
    text += &row("feature", ["tests"]);
    text += &row("---", ["---"]);
    for feature in &FEATURES {
        text += &row(feature.name, [tests(&feature.work).as_str()]);
    }
    text
}

/// The version, and the architecture if it is another one. A kernel without results has its name.
fn heading(series: &Series, column: Option<&Column>) -> String {
    let version = column.map_or(series.name, |column| &column.version);
    if series.architecture == Architecture::Amd64 || version == series.name {
        return version.to_owned();
    }
    format!("{version} {}", series.architecture.name())
}

fn cell<'a>(feature: &Feature, series: &Series, column: Option<&'a Column>) -> &'a str {
    if feature.is_too_new(series) {
        return "NOT RUN";
    }
    if !feature.is_expected(series) {
        return "-";
    }
    column
        .and_then(|column| column.cells.get(feature.name))
        .map_or("", String::as_str)
}

fn tests(work: &Work) -> String {
    match work {
        Work::Check => "`flannel-agent check -o json`".to_owned(),
        Work::Tests(program, tests) => tests
            .iter()
            .map(|test| format!("`{program}`: `{test}`"))
            .collect::<Vec<_>>()
            .join("<br>"),
    }
}

fn row<'a>(first: &str, cells: impl IntoIterator<Item = &'a str>) -> String {
    cells.into_iter().fold(format!("| {first} |"), |row, cell| {
        format!("{row} {cell} |")
    }) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page is that of this set: a row, a test or a kernel that changes needs another run.
    #[test]
    fn the_page_has_every_row_and_its_tests() {
        let workspace = Workspace::new().expect("the project");
        let page = fs::read_to_string(workspace.root().join(PAGE)).expect("the page");
        let (head, tests_of_rows) = page
            .split_once("\nThe tests of each row:\n")
            .expect("two tables");
        let (_, expected) = text(&[const { None }; SERIES.len()])
            .split_once("\nThe tests of each row:\n")
            .map(|(head, tests)| (head.to_owned(), tests.to_owned()))
            .expect("two tables");
        assert_eq!(
            tests_of_rows, expected,
            "write it with FLANNEL_WRITE_DOCS=1 cargo xtask test --kernel all"
        );
        let rows = head
            .lines()
            .filter(|line| line.starts_with("| ") && !line.starts_with("| feature"));
        assert_eq!(
            rows.filter(|row| !row.starts_with("| ---")).count(),
            FEATURES.len(),
            "{head}"
        );
    }

    #[test]
    fn a_page_that_is_written_without_new_results_is_the_same() {
        let workspace = Workspace::new().expect("the project");
        let page = fs::read_to_string(workspace.root().join(PAGE)).expect("the page");
        assert_eq!(text(&std::array::from_fn(|at| recorded(&page, at))), page);
    }

    #[test]
    fn results_that_were_not_had_again_stay_on_the_page() {
        let column = |version: &str, cells: &[(&str, &str)]| {
            let cells = cells
                .iter()
                .map(|(name, cell)| ((*name).to_owned(), (*cell).to_owned()))
                .collect();
            Some(Column {
                version: version.to_owned(),
                cells,
            })
        };
        let [first, second] = [FEATURES[0].name, FEATURES[1].name];
        let before = column("5.10.262", &[(first, "kernel"), (second, "FAIL")]);
        let page = text(&[before, None, None, None, None]);
        let kept = column("5.10.262", &[(second, "PASS")]);
        let both = merged(recorded(&page, 0), kept).expect("a column");
        assert_eq!(
            [first, second].map(|name| both.cells[name].as_str()),
            ["kernel", "PASS"]
        );
        let other = column("5.10.300", &[(second, "PASS")]);
        assert_eq!(merged(recorded(&page, 0), other.clone()), other);
        assert_eq!(merged(recorded(&page, 0), None), recorded(&page, 0));
    }

    #[test]
    fn results_fill_the_cells_of_their_kernel() {
        let cells = BTreeMap::from([(FEATURES[0].name.to_owned(), "kernel".to_owned())]);
        let column = |version: &str, cells| {
            Some(Column {
                version: version.to_owned(),
                cells,
            })
        };
        let text = text(&[
            column("5.10.262", cells.clone()),
            None,
            None,
            None,
            column("6.12.118", cells),
        ]);
        assert!(
            text.contains("| feature | 5.10.262 | 6.1 | 6.12 | newest | 6.12.118 arm64 |\n"),
            "{text}"
        );
        assert!(
            text.contains(&format!(
                "| {} | kernel |  |  |  | kernel |\n",
                FEATURES[0].name
            )),
            "{text}"
        );
        assert_eq!(recorded(&text, 4).expect("a column").version, "6.12.118");
        let late = FEATURES
            .iter()
            .find(|feature| feature.since == "6.1")
            .expect("a row");
        assert!(
            text.contains(&format!("| {} | NOT RUN |  |  |  |  |\n", late.name)),
            "{text}"
        );
        let old = FEATURES
            .iter()
            .find(|feature| feature.until == Some("5.10"))
            .expect("a row");
        assert!(
            text.contains(&format!("| {} |  | - | - | - | - |\n", old.name)),
            "{text}"
        );
    }
}
