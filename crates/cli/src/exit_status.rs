//! The exit status of each command: the one list for `--help`, the manual pages and the table in
//! docs/reference/configuration.md.
//!
//! 0 means that all is well, 1 that the command found a problem, 2 that it has no result, and 64 is
//! for wrong usage. A command whose result is not a verdict never ends with 1.

use clap::Command;

use super::stop::USAGE;

/// The meaning of the statuses of one command. Each is a part of a sentence, without a capital and
/// without a full stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandExit {
    /// Its words without the program's name, such as `maps dump`.
    pub command: &'static str,
    /// Status 0.
    pub well: &'static str,
    /// Status 1; `None` if the command never ends with it.
    pub found: Option<&'static str>,
    /// Status 2; `None` if the command never ends with it.
    pub no_result: Option<&'static str>,
}

/// The meaning of 64, with every command.
pub const WRONG_USAGE: &str = "wrong usage, such as an unknown flag or a bad value";

/// A command that does not judge: it is done, or it has no result.
const fn work(command: &'static str, well: &'static str, no_result: &'static str) -> CommandExit {
    CommandExit {
        command,
        well,
        found: None,
        no_result: Some(no_result),
    }
}

/// A command that judges.
const fn verdict(
    command: &'static str,
    well: &'static str,
    found: &'static str,
    no_result: &'static str,
) -> CommandExit {
    CommandExit {
        command,
        well,
        found: Some(found),
        no_result: Some(no_result),
    }
}

const NO_PINS: &str = "the pins are absent, or cannot be read";
const NO_CLUSTER: &str = "the cluster does not answer";
const NO_TEST: &str = "the test could not run, or was interrupted";
const EVERY_CHECK: &str = "every check passed";
const A_CHECK: &str = "a check failed, or something was left behind";
const NO_LEASE: &str =
    "no lease or several are meant, it changed at this moment, or etcd does not answer";
const NO_PROCESS: &str = "the process cannot start";

/// Every command, in the order of `--help`; those of groups below each other.
pub const EXIT_STATUSES: [CommandExit; 34] = [
    CommandExit {
        command: "run",
        well: "SIGTERM or SIGINT, also while it waits for the store or an interface",
        found: Some("the agent cannot start, or the kernel's netlink events can no longer be read"),
        no_result: None,
    },
    verdict(
        "status",
        "the node is ready",
        "the node is not ready",
        "no agent runs, or it does not answer",
    ),
    verdict(
        "maps dump",
        "the output is complete; with --diff all entries agree",
        "with --diff an entry differs",
        "the pins are absent, or cannot be read; with --diff also no running agent has a lease",
    ),
    work("datapath show", "the mode is printed", NO_PINS),
    work("datapath set", "the mode is set", "the mode cannot be set"),
    work("guard show", "the modes are printed", NO_PINS),
    work("guard set", "the mode is set", "the mode cannot be set"),
    work("flows list", "the output is complete", NO_PINS),
    work("flows flush", "the flows are discarded", NO_PINS),
    work(
        "bugtool",
        "the archive is written; it names what is missing",
        "no archive is written",
    ),
    verdict(
        "check",
        "no line is FAIL",
        "a line is FAIL: pods would not reach each other",
        "the kernel does not answer, or a right is missing",
    ),
    verdict(
        "explain",
        "the packet passes this node's part of its way",
        "the packet would be lost: a step is FAIL",
        "it is not known: a step is ? and none is FAIL, the kernel does not answer, or packets \
         cannot be traced",
    ),
    work(
        "monitor",
        "the output is complete",
        "the pins are absent, or another monitor runs",
    ),
    work(
        "top",
        "the output is complete",
        "the pins are absent, or standard output is not a terminal and neither --once nor -o json \
         is given",
    ),
    verdict(
        "cluster status",
        "every node is ready, and the nodes agree",
        "a node is not ready, or nodes differ at the cost of packets",
        "the cluster does not answer, or some nodes cannot be asked and the others are well",
    ),
    work(
        "cluster bugtool",
        "the archive is written; it names nodes that are missing",
        "no archive is written",
    ),
    verdict(
        "cluster explain",
        "both nodes say that the packet passes",
        "the packet would be lost on one of the two nodes",
        "one of the nodes cannot be asked or does not know, or a pod or the cluster is not found",
    ),
    work("cluster top", "the output is complete", NO_CLUSTER),
    work(
        "cluster flows",
        "every node answered; with --follow, it was ended",
        "the cluster does not answer, or some nodes do not: the flows of the others are printed",
    ),
    verdict("connectivity test", EVERY_CHECK, A_CHECK, NO_TEST),
    verdict("connectivity hosts", EVERY_CHECK, A_CHECK, NO_TEST),
    work("connectivity serve", "never", NO_PROCESS),
    work("connectivity probe", "the outcomes are printed", NO_PROCESS),
    work(
        "connectivity namespace",
        "the other end is gone",
        NO_PROCESS,
    ),
    verdict(
        "lease list",
        "no lease contradicts another, and each can be read",
        "two leases contradict each other, or one cannot be read",
        "etcd does not answer",
    ),
    work("lease show", "the lease is printed", NO_LEASE),
    work("lease release", "the lease is deleted", NO_LEASE),
    work(
        "cleanup",
        "everything is removed, or the plan is printed",
        "an agent runs, or something cannot be removed",
    ),
    work(
        "prepare",
        "the host is prepared, also with a warning where the kernel path has to serve",
        "the record of the values before cannot be read or written",
    ),
    work(
        "docker-opts",
        "the options are written",
        "subnet.env cannot be read, or the output cannot be written",
    ),
    work("install", "the file is copied", "the file cannot be copied"),
    CommandExit {
        command: "completions",
        well: "the text is printed",
        found: None,
        no_result: None,
    },
    work(
        "manual",
        "the pages are written",
        "a page cannot be written",
    ),
    work("udp-tunnel", "the agent ended it", NO_PROCESS),
];

impl CommandExit {
    /// The row of a command; `None` for a group of commands.
    pub fn of(command: &str) -> Option<&'static Self> {
        EXIT_STATUSES.iter().find(|row| row.command == command)
    }

    /// The statuses that the command may end with, and the meaning of each.
    pub fn terms(&self) -> impl Iterator<Item = (u8, &'static str)> {
        let (found, no_result) = (
            self.found.map(|text| (1, text)),
            self.no_result.map(|text| (2, text)),
        );
        [
            Some((0, self.well)),
            found,
            no_result,
            Some((USAGE, WRONG_USAGE)),
        ]
        .into_iter()
        .flatten()
    }

    fn help(&self) -> String {
        let lines: Vec<_> = self
            .terms()
            .map(|(code, meaning)| format!("  {code:<3} {meaning}"))
            .collect();
        format!("Exit status:\n{}", lines.join("\n"))
    }
}

/// Adds the exit status to the help of each command below `words`.
pub(super) fn explained(command: Command, words: &str) -> Command {
    if command.has_subcommands() {
        return command.mut_subcommands(|below| {
            let words = format!("{words} {}", below.get_name());
            explained(below, words.trim_start())
        });
    }
    match CommandExit::of(words) {
        Some(row) => command.after_help(row.help()),
        None => command,
    }
}

/// The same for `kubectl flannel`, whose commands are those of `cluster`, and `connectivity`.
pub(super) fn of_plugin(command: Command) -> Command {
    command.mut_subcommands(|below| {
        let name = below.get_name().to_owned();
        if below.has_subcommands() {
            explained(below, &name)
        } else {
            explained(below, &format!("cluster {name}"))
        }
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::*;
    use crate::{Cli, reference::markdown};

    /// The commands below one, by their words; with those that are hidden if `hidden`.
    fn commands(command: &Command, words: &str, hidden: bool) -> BTreeSet<String> {
        let below = command
            .get_subcommands()
            .filter(|below| hidden || !below.is_hide_set());
        if !command.has_subcommands() {
            return BTreeSet::from([words.to_owned()]);
        }
        below
            .flat_map(|below| {
                commands(
                    below,
                    format!("{words} {}", below.get_name()).trim(),
                    hidden,
                )
            })
            .collect()
    }

    #[test]
    fn every_command_has_a_row_and_every_row_a_command() {
        let rows: BTreeSet<_> = EXIT_STATUSES
            .iter()
            .map(|row| row.command.to_owned())
            .collect();
        assert_eq!(rows, commands(&Cli::command(), "", true));
        assert_eq!(rows.len(), EXIT_STATUSES.len(), "a command has one row");
    }

    #[test]
    fn the_help_of_every_command_names_its_statuses() {
        let root = explained(Cli::command(), "");
        for row in &EXIT_STATUSES {
            let mut command = &root;
            for word in row.command.split(' ') {
                command = command.find_subcommand(word).expect("a command");
            }
            let help = command.clone().render_help().to_string();
            let (_, statuses) = help
                .split_once("Exit status:")
                .unwrap_or_else(|| panic!("{}: {help}", row.command));
            let words: Vec<_> = statuses.split_whitespace().collect();
            for (code, meaning) in row.terms() {
                let line = format!("{code} {meaning}");
                assert!(
                    words.join(" ").contains(&line),
                    "{}: {line} in {statuses}",
                    row.command
                );
            }
        }
    }

    /// The table of the page, without commands that are hidden.
    pub(crate) fn table() -> String {
        let visible = commands(&Cli::command(), "", false);
        let cell = |text: Option<&str>| markdown(text.unwrap_or("never"));
        let rows = EXIT_STATUSES
            .iter()
            .filter(|row| visible.contains(row.command))
            .map(|row| {
                let name = if row.command == "run" {
                    "`run`, `flanneld`".to_owned()
                } else {
                    format!("`{}`", row.command)
                };
                format!(
                    "| {name} | {} | {} | {} |\n",
                    cell(Some(row.well)),
                    cell(row.found),
                    cell(row.no_result)
                )
            });
        format!(
            "| command | 0 | 1 | 2 |\n|---|---|---|---|\n{}",
            rows.collect::<String>()
        )
    }
}
