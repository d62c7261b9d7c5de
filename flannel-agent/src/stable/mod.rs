//! The names of the stable interfaces (`docs/reference/stability.md`), compared with those of the
//! last release. Only for tests.
//!
//! `docs/reference/stable.txt` is the list of the last release: a line for each flag, metric, field
//! of a document, name of a closed set and map. Each name whose line is new, gone or changed has to
//! be in the changelog under "Unreleased"; of a new document, only its own name.
//! `FLANNEL_WRITE_RELEASE=1` writes the list, which a release does and nothing else.

mod documents;
mod flags;
mod maps;

use std::{collections::BTreeSet, env, fmt, fs, path::PathBuf};

use flannel_common::abi::reason::Reason;
use flannel_metrics::catalogue;

/// A name that users rely on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Interface {
    /// `flag`, `metric`, `field` and so on.
    kind: String,
    /// The place, such as a command or a document; one word.
    place: String,
    /// The name, as the changelog has it.
    name: String,
    /// Its values, type or number.
    form: String,
}

impl Interface {
    fn new(kind: &str, place: &str, name: &str, form: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            place: place.to_owned(),
            name: name.to_owned(),
            form: form.to_owned(),
        }
    }

    /// Reads a line of the list.
    fn read(line: &str) -> Self {
        let mut words = line.splitn(4, '\t').map(str::to_owned);
        let mut next = || words.next().unwrap_or_default();
        Self {
            kind: next(),
            place: next(),
            name: next(),
            form: next(),
        }
    }

    /// The document of a field or of a name in it.
    fn document(&self) -> Option<&str> {
        let is_in_document = matches!(self.kind.as_str(), "field" | "value");
        self.place.split('.').next().filter(|_| is_in_document)
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}\t{}\t{}\t{}",
            self.kind, self.place, self.name, self.form
        )
    }
}

fn present() -> BTreeSet<Interface> {
    let metric = |metric: &flannel_metrics::Metric| {
        Interface::new(
            "metric",
            "-",
            metric.name,
            &format!("{} {}", metric.kind, metric.labels.join(",")),
        )
    };
    let reason =
        |reason: Reason| Interface::new("reason", "-", reason.name(), &(reason as u16).to_string());
    let mut all: BTreeSet<_> = catalogue::ALL.iter().map(metric).collect();
    all.extend(Reason::ALL.map(reason));
    all.extend(flags::all());
    all.extend(documents::all());
    all.extend(maps::all());
    all
}

fn docs(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(name)
}

/// The lines that only one of the two has.
fn difference<'a>(
    released: &'a BTreeSet<Interface>,
    present: &'a BTreeSet<Interface>,
) -> impl Iterator<Item = &'a Interface> {
    released.symmetric_difference(present)
}

/// The part of the changelog that speaks of the next release.
fn unreleased(changelog: &str) -> &str {
    let (_, rest) = changelog
        .split_once("\n## Unreleased\n")
        .expect("a part for the next release");
    rest.split("\n## ").next().unwrap_or_default()
}

/// Returns true if a text has a name that no longer name contains.
fn has_name(text: &str, name: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '-';
    text.match_indices(name).any(|(start, _)| {
        let before = text[..start].chars().next_back();
        let after = text[start + name.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

/// Names whose lines differ and that the text does not have.
fn unexplained(
    released: &BTreeSet<Interface>,
    present: &BTreeSet<Interface>,
    text: &str,
) -> Vec<String> {
    let documents: BTreeSet<_> = released.iter().filter_map(Interface::document).collect();
    let is_named = |line: &Interface| {
        let new_document = line
            .document()
            .filter(|document| !documents.contains(document));
        has_name(text, &line.name)
            || new_document.is_some_and(|document| has_name(text, &format!("`{document}`")))
    };
    let silent = difference(released, present).filter(|line| !is_named(line));
    silent.map(ToString::to_string).collect()
}

#[test]
fn a_changed_interface_is_in_the_changelog() {
    let (path, present) = (docs("docs/reference/stable.txt"), present());
    if env::var_os("FLANNEL_WRITE_RELEASE").is_some() {
        let lines: Vec<String> = present.iter().map(|line| format!("{line}\n")).collect();
        fs::write(&path, lines.concat()).expect("to write the list");
    }
    let released: BTreeSet<_> = fs::read_to_string(&path)
        .expect("the list")
        .lines()
        .map(Interface::read)
        .collect();
    let changelog = fs::read_to_string(docs("CHANGELOG.md")).expect("the changelog");
    let unexplained = unexplained(&released, &present, unreleased(&changelog));
    assert!(
        unexplained.is_empty(),
        "CHANGELOG.md, Unreleased, does not name {unexplained:#?}"
    );
    maps::expect_schema(&released, &present);
    documents::expect_version(&released, &present);
}

#[test]
fn what_is_new_gone_or_changed_has_to_be_named() {
    let set = |forms: &[(&str, &str)]| -> BTreeSet<Interface> {
        forms
            .iter()
            .map(|(name, form)| Interface::new("flag", "run", name, form))
            .collect()
    };
    let released = set(&[("--one", "text"), ("--two", "text"), ("--three", "text")]);
    let now = set(&[("--one", "text"), ("--two", "list"), ("--four", "text")]);
    let missing = unexplained(&released, &now, "`--two-more`, `--three` and `--four=1`");
    assert_eq!(
        missing,
        ["flag\trun\t--two\tlist", "flag\trun\t--two\ttext"]
    );
    assert!(unexplained(&released, &now, "--two: --three\n--four").is_empty());
    let fields = BTreeSet::from([Interface::new("field", "new.Row", "age", "integer")]);
    assert!(
        unexplained(
            &released,
            &fields,
            "--one --two --three, the document `new`"
        )
        .is_empty()
    );
    assert_eq!(
        unexplained(&released, &fields, "--one --two --three, new").len(),
        1
    );
    assert_eq!(
        unreleased("# C\n\n## Unreleased\n\nnew\n\n## 0.1\n\nold\n"),
        "\nnew\n"
    );
}

#[test]
fn a_line_is_read_as_it_is_written() {
    for line in &present() {
        assert_eq!(Interface::read(&line.to_string()), *line);
    }
}
