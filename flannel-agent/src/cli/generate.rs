//! Shell completions, generated from the command line's own description.

use std::any::TypeId;

use clap::{Arg, Args, CommandFactory as _};
use clap_complete::Shell;

use super::Cli;
use crate::traffic::MasqueradeFamilies;

/// For which shell.
#[derive(Debug, Args)]
pub struct CompletionOptions {
    /// The shell that is to complete
    shell: Shell,
}

/// The name of the program.
const NAME: &str = "flannel-agent";

/// The completions of the whole command line; the text to print.
pub(super) fn completions(options: &CompletionOptions) -> anyhow::Result<String> {
    let mut command = Cli::command().mut_subcommand("run", |run| run.mut_args(without_bool_value));
    let generate = |name: &str, command: &mut clap::Command| {
        let mut text = Vec::new();
        clap_complete::generate(options.shell, command, name, &mut text);
        String::from_utf8(text)
    };
    if options.shell != Shell::Bash {
        return Ok(generate(NAME, &mut command)?);
    }
    // The generator for bash writes a hyphen in the program's name in two ways, and then no
    // subcommand completes (clap-rs/clap#6421). Inside the script the name has none.
    let inside = NAME.replace('-', "_");
    Ok(generate(&inside, &mut command)?.replace(&format!(" {inside}\n"), &format!(" {NAME}\n")))
}

/// Booleans take their value in the same word (`--flag=false`), as in Go, which completion scripts
/// cannot express.
fn without_bool_value(arg: Arg) -> Arg {
    let value = arg.get_value_parser().type_id();
    let may_be_bool = value == TypeId::of::<bool>() || value == TypeId::of::<MasqueradeFamilies>();
    if may_be_bool { arg.num_args(0).default_missing_value("true").hide_possible_values(false) } else { arg }
}

#[cfg(test)]
#[path = "../../../tests/support/not_run.rs"]
pub(super) mod not_run;

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::{not_run::not_run, *};

    /// Words before the cursor, and the completions: those named, or no other where it says so.
    struct Case {
        line: &'static str,
        has: &'static [&'static str],
        lacks: &'static [&'static str],
    }

    const CASES: [Case; 11] = [
        Case { line: "", has: &["run", "status", "docker-opts"], lacks: &["show"] },
        Case { line: "run --ip-", has: &["--ip-masq", "--ip-blackhole-route"], lacks: &["--iface", "true"] },
        Case { line: "run --datapath ", has: &["auto", "kernel", "encap", "fast"], lacks: &["--datapath"] },
        Case { line: "run --ip-masq ", has: &["--iface"], lacks: &["ipv4", "true"] },
        Case { line: "run --ip-masq --guard-inner ", has: &["off", "audit", "enforce"], lacks: &["--iface"] },
        Case { line: "maps dump ", has: &["peers", "stats", "flows", "all"], lacks: &["dump", "run"] },
        Case { line: "maps dump -o ", has: &["table", "json"], lacks: &["peers"] },
        Case { line: "datapath set ", has: &["kernel", "fast", "auto"], lacks: &["show"] },
        Case { line: "guard set --only ", has: &["outer", "inner"], lacks: &["audit"] },
        Case { line: "monitor --reason repl", has: &["replayed"], lacks: &["encapsulated"] },
        Case { line: "docker-opts --", has: &["--help"], lacks: &["--datapath"] },
    ];

    /// Calls the function that the script registers, as bash does for a TAB after the words.
    const BASH: &str = r#"
        source "$1"; shift
        [[ $(complete -p flannel-agent) =~ -F\ ([^ ]+) ]] || exit 3
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        "${BASH_REMATCH[1]}" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    /// Lines of word, tab and description.
    const FISH: &str = "source $argv[1]; complete -C $argv[2]";

    /// The words a shell offers at the end of a line.
    fn offered(shell: Shell, script: &str, line: &str) -> Vec<String> {
        let mut command = Command::new(shell.to_string());
        match shell {
            Shell::Bash => command.args(["--norc", "-c", BASH, "bash", script, NAME]).args(line.split(' ')),
            _ => command.args(["--no-config", "-c", FISH, script]).arg(format!("{NAME} {line}")),
        };
        let output = command.output().expect("the shell runs");
        assert!(output.status.success(), "{shell} {line:?}: {output:?}");
        let text = String::from_utf8(output.stdout).expect("text");
        text.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn shells_complete_subcommands_flags_and_values() {
        let scratch = tempfile::tempdir().expect("a directory");
        for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
            if Command::new(shell.to_string()).arg("--version").output().is_err() {
                not_run(&format!("completion by {shell}"), "it is not installed");
                continue;
            }
            let script = scratch.path().join(shell.to_string());
            fs::write(&script, completions(&CompletionOptions { shell }).expect("text")).expect("written");
            let script = script.to_str().expect("a path of letters");
            if shell == Shell::Zsh {
                // Zsh completes on a terminal only.
                let parsed = Command::new("zsh").args(["-f", "-n", script]).status().expect("the shell runs");
                assert!(parsed.success(), "the script for zsh");
                continue;
            }
            for Case { line, has, lacks } in CASES {
                let offered = offered(shell, script, line);
                let offers = |word: &&str| offered.iter().any(|offer| offer == word);
                assert!(has.iter().all(offers) && !lacks.iter().any(offers), "{shell} {line:?}: {offered:?}");
            }
        }
    }

    #[test]
    fn every_shell_has_the_commands_and_values() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = completions(&CompletionOptions { shell }).expect("text");
            for word in ["datapath", "iface-regex", "docker-opts", "unexpected_mac", "clsact"] {
                assert!(text.contains(word), "{shell} does not know {word}");
            }
        }
    }
}
