//! The manual pages, section 8: one for each command, and flanneld(8).
//!
//! Names, flags and subcommands come from the command line's own description, as `--help` has them.
//! `examples.rs` has the examples, `facts.rs` the rest: files, exit status, related pages.

mod examples;
mod facts;

use std::path::PathBuf;

use clap::{Args, Command};
use clap_mangen::{
    Man,
    roff::{Roff, bold, roman},
};
use flannel_host::file;
use flannel_options::flags;

use self::facts::{Facts, SUBJECTS, facts};

const SECTION: &str = "8";
/// The daemon under its other name.
const DAEMON: &str = "flanneld";

/// The directory for the manual pages.
#[derive(Debug, Args)]
pub struct ManualOptions {
    /// The directory to write to; made if it is not there
    directory: PathBuf,
}

/// Writes the pages of a program. It prints nothing.
pub(super) fn manual(options: &ManualOptions, program: Command) -> anyhow::Result<String> {
    for (name, text) in pages(program)? {
        file::replace(&options.directory.join(name), text.as_bytes(), 0o644)?;
    }
    Ok(String::new())
}

/// Every page with its file name.
fn pages(mut program: Command) -> anyhow::Result<Vec<(String, String)>> {
    // Gives the subcommands their full names.
    program.build();
    let mut pages = Vec::new();
    add(&program, &mut pages)?;
    let run = program.find_subcommand("run").expect("the daemon").clone();
    let usage = format!("{DAEMON} [OPTIONS]");
    add(
        &run.name(DAEMON)
            .display_name(DAEMON)
            .bin_name(DAEMON)
            .override_usage(usage),
        &mut pages,
    )?;
    Ok(pages)
}

fn add(command: &Command, pages: &mut Vec<(String, String)>) -> anyhow::Result<()> {
    let man = Man::new(command.clone())
        .section(SECTION)
        .manual("System Administration");
    pages.push((man.get_filename(), page(command, &man)?));
    subcommands(command).try_for_each(|part| add(part, pages))
}

fn subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command
        .get_subcommands()
        .filter(|part| part.get_name() != "help" && !part.is_hide_set())
}

/// The name of the page of a command: `flannel-agent-maps-dump`.
fn name(command: &Command) -> &str {
    command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
}

fn page(command: &Command, man: &Man) -> anyhow::Result<String> {
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    if command
        .get_arguments()
        .any(|argument| !argument.is_hide_set())
    {
        man.render_options_section(&mut text)?;
    }
    if subcommands(command).next().is_some() {
        man.render_subcommands_section(&mut text)?;
    }
    let facts = facts(name(command));
    let mut roff = Roff::new();
    examples(&mut roff, &facts);
    terms(&mut roff, "FILES", &facts.files);
    terms(&mut roff, "ENVIRONMENT", &variables(command));
    terms(&mut roff, "EXIT STATUS", &facts.exit);
    see_also(&mut roff, command, &facts);
    roff.to_writer(&mut text)?;
    Ok(String::from_utf8(text)?)
}

fn examples(roff: &mut Roff, facts: &Facts) {
    roff.control("SH", ["EXAMPLES"]);
    for (line, meaning) in facts.examples {
        roff.control("TP", []);
        roff.text([bold(*line)]);
        roff.text([roman(*meaning)]);
    }
}

/// A section of terms, each with its meaning.
fn terms<T: AsRef<str>, M: AsRef<str>>(roff: &mut Roff, title: &str, terms: &[(T, M)]) {
    roff.control("SH", [title]);
    for (term, meaning) in terms {
        roff.control("TP", []);
        roff.text([bold(term.as_ref())]);
        roff.text([roman(meaning.as_ref())]);
    }
}

/// The variables that a command reads, from its flags.
fn variables(command: &Command) -> Vec<(String, String)> {
    let mut variables: Vec<(String, String)> = command
        .get_arguments()
        .filter_map(|argument| {
            let variable = argument.get_env()?.to_string_lossy().into_owned();
            Some((
                variable,
                format!(
                    "Value of --{}, unless the flag is given.",
                    argument.get_long()?
                ),
            ))
        })
        .collect();
    if [DAEMON, "flannel-agent-run"].contains(&name(command)) {
        let set = flags::FLAGS
            .iter()
            .filter(|flag| flag.only.is_none() && flag.name != "version");
        variables.extend(set.map(|flag| {
            (
                flag.variable(),
                format!("Value of --{}, unless the flag is given.", flag.name),
            )
        }));
    }
    if command
        .get_arguments()
        .any(|argument| argument.get_id() == "color")
    {
        let text = "If it is set and not empty, --color=auto means no colours.";
        variables.push(("NO_COLOR".to_owned(), text.to_owned()));
    }
    if command
        .get_arguments()
        .any(|argument| argument.get_id() == "kubeconfig")
    {
        let text = "Kubeconfig files, unless --kubeconfig is given.";
        variables.push(("KUBECONFIG".to_owned(), text.to_owned()));
    }
    if name(command) == "flannel-agent-top" {
        variables.push((
            "COLUMNS".to_owned(),
            "Columns of the frame that --once prints: 110 without it.".to_owned(),
        ));
    }
    if variables.is_empty() {
        variables.push((
            "None".to_owned(),
            "This command reads no variable of its own.".to_owned(),
        ));
    }
    variables
}

/// The pages above and below, those of the same subject, and those of the tools.
fn see_also(roff: &mut Roff, command: &Command, facts: &Facts) {
    let own = name(command);
    let above = own
        .rsplit_once('-')
        .map(|(above, _)| above)
        .filter(|above| *above != "flannel");
    let below = subcommands(command).map(name);
    let related = SUBJECTS
        .iter()
        .filter(|subject| subject.contains(&own))
        .flat_map(|subject| subject.iter().copied());
    let mut pages: Vec<String> = Vec::new();
    for page in above
        .into_iter()
        .chain(below)
        .chain(related)
        .filter(|page| *page != own)
    {
        let page = format!("{page}({SECTION})");
        if !pages.contains(&page) {
            pages.push(page);
        }
    }
    pages.extend(facts.tools.iter().map(|tool| (*tool).to_owned()));
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman(pages.join(", "))]);
}

#[cfg(test)]
mod tests;
