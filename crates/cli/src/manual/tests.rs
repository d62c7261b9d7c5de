use std::{fs, process::Command as Process};

use clap::CommandFactory as _;

use super::{super::generate::not_run::not_run, *};
use crate::{Cli, parse};

/// The sections of every page, in their order; there may be others between them.
const SECTIONS: [&str; 8] = [
    "NAME",
    "SYNOPSIS",
    "DESCRIPTION",
    "EXAMPLES",
    "FILES",
    "ENVIRONMENT",
    "\"EXIT STATUS\"",
    "\"SEE ALSO\"",
];

fn pages() -> anyhow::Result<Vec<(String, String)>> {
    super::pages(Cli::command())
}

fn text(name: &str) -> String {
    let pages = pages().expect("pages");
    let page = pages
        .into_iter()
        .find(|(file, _)| file == &format!("{name}.8"));
    page.unwrap_or_else(|| panic!("no page {name}")).1
}

/// The lines of a section, without its heading.
fn section<'a>(page: &'a str, title: &str) -> &'a str {
    let (_, rest) = page
        .split_once(&format!(".SH {title}\n"))
        .unwrap_or_else(|| panic!("no {title} in {page}"));
    rest.split("\n.SH ").next().unwrap_or_default()
}

#[test]
fn every_page_has_every_section_and_something_in_it() {
    for (name, page) in pages().expect("pages") {
        let places = SECTIONS.map(|title| {
            page.find(&format!(".SH {title}\n"))
                .unwrap_or_else(|| panic!("{name}: {title}: {page}"))
        });
        assert!(places.is_sorted(), "{name}");
        for title in SECTIONS {
            assert!(
                !section(&page, title).trim().is_empty(),
                "{name}: {title} is empty"
            );
        }
    }
}

#[test]
fn every_example_is_a_command() {
    for (name, _) in pages().expect("pages") {
        for (line, _) in facts(name.trim_end_matches(".8")).examples {
            let parsed = parse(line.split(' ').map(Into::into), []);
            assert!(parsed.is_ok(), "{name}: {line}: {parsed:?}");
        }
    }
}

#[test]
fn the_daemon_has_a_page_of_its_own_with_flags_and_variables() {
    let page = text("flanneld");
    assert!(
        page.contains(".TH flanneld 8") && section(&page, "NAME").starts_with("flanneld \\- "),
        "{page}"
    );
    assert!(section(&page, "SYNOPSIS").contains("flanneld"), "{page}");
    assert!(
        page.contains("etcd\\-endpoints")
            && section(&page, "ENVIRONMENT").contains("FLANNELD_IP_MASQ"),
        "{page}"
    );
}

#[test]
fn a_page_names_its_variables_and_its_neighbours() {
    let status = text("flannel-agent-status");
    let variables = section(&status, "ENVIRONMENT");
    for variable in ["FLANNELD_STATE_DIR", "FLANNELD_BPF_PIN_ROOT", "NO_COLOR"] {
        assert!(variables.contains(variable), "{variable} in {variables}");
    }
    let cluster = text("flannel-agent-cluster-status");
    assert!(
        section(&cluster, "ENVIRONMENT").contains("KUBECONFIG"),
        "{cluster}"
    );
    assert!(
        !pages()
            .expect("pages")
            .iter()
            .any(|(name, _)| name.contains("connectivity-serve"))
    );
    assert!(
        !pages()
            .expect("pages")
            .iter()
            .any(|(name, _)| name.contains("connectivity-namespace"))
    );
    let dump = text("flannel-agent-maps-dump");
    assert!(
        section(&dump, "\"SEE ALSO\"").contains("flannel\\-agent\\-maps(8), "),
        "{dump}"
    );
    assert!(dump.contains("output"), "{dump}");
}

/// Every page that is referred to exists.
#[test]
fn related_pages_are_pages() {
    let pages: Vec<_> = pages()
        .expect("pages")
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    for page in SUBJECTS.iter().flat_map(|subject| subject.iter()) {
        assert!(pages.contains(&format!("{page}.8")), "{page}: {pages:?}");
    }
}

#[test]
fn groff_formats_the_pages_without_a_warning() {
    let scratch = tempfile::tempdir().expect("a directory");
    let options = ManualOptions {
        directory: scratch.path().to_owned(),
    };
    manual(&options, Cli::command()).expect("written");
    if Process::new("groff").arg("--version").output().is_err() {
        not_run("the form of the manual pages", "groff is not installed");
        return;
    }
    for (name, _) in pages().expect("pages") {
        let page = scratch.path().join(&name);
        let output = Process::new("groff")
            .args(["-man", "-ww", "-z"])
            .arg(&page)
            .output()
            .expect("groff runs");
        let text = fs::read_to_string(&page).expect("the page");
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{name}: {output:?}\n{text}"
        );
    }
}
