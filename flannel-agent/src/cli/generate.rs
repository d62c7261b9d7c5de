//! Shell completions and manual pages, generated from the command line's own description.

use std::path::PathBuf;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;
use flannel_host::file;

use super::Cli;

/// For which shell.
#[derive(Debug, Args)]
pub struct CompletionOptions {
    /// The shell that is to complete
    shell: Shell,
}

/// The directory for the manual pages.
#[derive(Debug, Args)]
pub struct ManualOptions {
    /// The directory to write to; made if it is not there
    directory: PathBuf,
}

/// The completions of the whole command line; the text to print.
pub(super) fn completions(options: &CompletionOptions) -> anyhow::Result<String> {
    let mut text = Vec::new();
    clap_complete::generate(options.shell, &mut Cli::command(), "flannel-agent", &mut text);
    Ok(String::from_utf8(text)?)
}

/// Writes a page for each command, of section 8. It prints nothing.
pub(super) fn manual(options: &ManualOptions) -> anyhow::Result<String> {
    let mut program = Cli::command();
    // Gives the subcommands their full names.
    program.build();
    write_pages(program, options)?;
    Ok(String::new())
}

fn write_pages(command: clap::Command, options: &ManualOptions) -> anyhow::Result<()> {
    let parts: Vec<_> = command.get_subcommands().filter(|part| part.get_name() != "help").cloned().collect();
    let page = clap_mangen::Man::new(command).section("8");
    let mut text = Vec::new();
    page.render(&mut text)?;
    file::replace(&options.directory.join(page.get_filename()), &text, 0o644)?;
    parts.into_iter().try_for_each(|part| write_pages(part, options))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_shell_completes_the_commands() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = completions(&CompletionOptions { shell }).expect("text");
            for word in ["datapath", "iface-regex", "docker-opts"] {
                assert!(text.contains(word), "{shell} does not know {word}");
            }
        }
    }

    #[test]
    fn every_command_has_a_page_with_its_flags() {
        let scratch = tempfile::tempdir().expect("a directory");
        manual(&ManualOptions { directory: scratch.path().to_owned() }).expect("written");
        let page = |name: &str| fs::read_to_string(scratch.path().join(name)).expect("a page");
        assert!(page("flannel-agent.8").contains(".TH flannel-agent 8"));
        assert!(page("flannel-agent-run.8").contains("etcd\\-endpoints"));
        assert!(page("flannel-agent-maps-dump.8").contains("output"));
    }
}
