//! Shell completions, generated from the command line's own description.

use std::{any::TypeId, fmt::Write as _};

use clap::{Arg, Args};
use clap_complete::Shell;
use flannel_traffic::MasqueradeFamilies;

/// For which shell.
#[derive(Debug, Args)]
pub struct CompletionOptions {
    /// The shell that is to complete
    shell: Shell,
}

/// The name of the program.
const NAME: &str = "flannel-agent";

/// The completions of the whole command line of a program; the text to print.
pub(super) fn completions(
    options: &CompletionOptions,
    program: clap::Command,
) -> anyhow::Result<String> {
    // Names of a command live for ever, and the process ends after this.
    let all: &'static clap::Command = Box::leak(Box::new(program));
    let mut command = visible(all).mut_subcommand("run", |run| run.mut_args(without_bool_value));
    let generate = |name: &str, command: &mut clap::Command| {
        let mut text = Vec::new();
        clap_complete::generate(options.shell, command, name, &mut text);
        String::from_utf8(text)
    };
    if options.shell == Shell::Fish {
        let values = fish_values(&command);
        return Ok(generate(NAME, &mut command)? + &values);
    }
    if options.shell != Shell::Bash {
        return Ok(generate(NAME, &mut command)?);
    }
    // The generator for bash writes a hyphen in the program's name in two ways, and then no
    // subcommand completes (clap-rs/clap#6421). Inside the script the name has none.
    let inside = NAME.replace('-', "_");
    Ok(generate(&inside, &mut command)?.replace(&format!(" {inside}\n"), &format!(" {NAME}\n")))
}

/// Returns completion lines for positional arguments with a fixed set of values, of subcommands in
/// groups. The generator for fish leaves them out.
fn fish_values(command: &clap::Command) -> String {
    let pairs = command
        .get_subcommands()
        .flat_map(|group| group.get_subcommands().map(move |leaf| (group, leaf)));
    let mut text = String::new();
    for (group, leaf) in pairs {
        let values = leaf.get_positionals().flat_map(|arg| {
            arg.get_value_parser()
                .possible_values()
                .into_iter()
                .flatten()
        });
        let values: Vec<String> = values.map(|value| value.get_name().to_owned()).collect();
        if !values.is_empty() {
            let function = NAME.replace('-', "_");
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "complete -c {NAME} -n \"__fish_{function}_using_subcommand {}; and \
                 __fish_seen_subcommand_from {}\" -f -a \"{}\"",
                group.get_name(),
                leaf.get_name(),
                values.join(" ")
            );
        }
    }
    text
}

/// The command without hidden subcommands, which the generators do not leave out themselves.
fn visible(command: &'static clap::Command) -> clap::Command {
    if !command.has_subcommands() {
        return command.clone();
    }
    let shown = command
        .get_subcommands()
        .filter(|subcommand| !subcommand.is_hide_set());
    let new = clap::Command::new(command.get_name()).args(command.get_arguments().cloned());
    let new = match command.get_version() {
        Some(version) => new.version(version),
        None => new,
    };
    new.about(command.get_about().cloned().unwrap_or_default())
        .subcommands(shown.map(visible))
}

/// Booleans take their value in the same word (`--flag=false`), as in Go, which completion scripts
/// cannot express.
fn without_bool_value(arg: Arg) -> Arg {
    let value = arg.get_value_parser().type_id();
    let may_be_bool = value == TypeId::of::<bool>() || value == TypeId::of::<MasqueradeFamilies>();
    if may_be_bool {
        arg.num_args(0)
            .default_missing_value("true")
            .hide_possible_values(false)
    } else {
        arg
    }
}

#[cfg(test)]
#[path = "../../../tests/support/not_run.rs"]
pub(super) mod not_run;

#[cfg(test)]
mod tests {
    use std::{
        fs,
        process::{Command, Output},
    };

    use clap::CommandFactory as _;

    use super::{not_run::not_run, *};
    use crate::Cli;

    /// Words before the cursor, and the completions: those named, or no other where it says so.
    struct Case {
        line: &'static str,
        has: &'static [&'static str],
        lacks: &'static [&'static str],
    }

    const CASES: [Case; 12] = [
        Case {
            line: "",
            has: &["run", "status", "docker-opts"],
            lacks: &["show", "udp-tunnel"],
        },
        Case {
            line: "connectivity ",
            has: &["test", "hosts"],
            lacks: &["serve", "namespace"],
        },
        Case {
            line: "run --ip-",
            has: &["--ip-masq", "--ip-blackhole-route"],
            lacks: &["--iface", "true"],
        },
        Case {
            line: "run --datapath ",
            has: &["auto", "kernel", "encap", "fast"],
            lacks: &["--datapath"],
        },
        Case {
            line: "run --ip-masq --",
            has: &["--iface"],
            lacks: &["ipv4", "true"],
        },
        Case {
            line: "run --ip-masq --guard-inner ",
            has: &["off", "audit", "enforce"],
            lacks: &["--iface"],
        },
        Case {
            line: "maps dump ",
            has: &["peers", "stats", "flows", "all"],
            lacks: &["dump", "run"],
        },
        Case {
            line: "maps dump -o ",
            has: &["table", "json"],
            lacks: &["peers"],
        },
        Case {
            line: "datapath set ",
            has: &["kernel", "fast", "auto"],
            lacks: &["show"],
        },
        Case {
            line: "guard set --only ",
            has: &["outer", "inner"],
            lacks: &["audit"],
        },
        Case {
            line: "monitor --reason repl",
            has: &["replayed"],
            lacks: &["encapsulated"],
        },
        Case {
            line: "docker-opts --",
            has: &["--help"],
            lacks: &["--datapath"],
        },
    ];

    /// Calls the function that the script registers, as bash does for a TAB after the words.
    const BASH: &str = r#"
        source "$1"; shift
        [[ $(complete -p flannel-agent) =~ -F\ ([^ ]+) ]] || exit 3
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        "${BASH_REMATCH[1]}" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    /// Zsh completes on a terminal only, so one is made for it. What is offered goes to a file.
    const ZSH: &str = r#"
        zmodload zsh/zpty
        zpty -b terminal zsh -f -i
        zpty -w terminal "PROMPT=; autoload -U compinit; compinit -D; source $1; bindkey '^I' complete-word"
        zpty -w terminal "compadd() { local -a found; builtin compadd -A found "\$@"; print -rl -- \$found >> $2;             builtin compadd "\$@" }"
        zpty -w terminal "ended() { print . >> $2; exit }; zle -N ended; bindkey '^X' ended"
        zpty -n -w terminal "$3"$'	'
        repeat 600; do
            grep -qsx '\.' $2 && break
            zpty -r -t terminal shown
            sleep 0.05
        done
        cat $2
    "#;
    /// Lines of word, tab and description.
    const FISH: &str = "source $argv[1]; complete -C $argv[2]";

    /// The words a shell offers at the end of a line.
    fn offered(shell: Shell, script: &str, line: &str) -> Vec<String> {
        let mut command = Command::new(shell.to_string());
        match shell {
            Shell::Bash => command
                .args(["--norc", "-c", BASH, "bash", script, NAME])
                .args(line.split(' ')),
            Shell::Zsh => {
                let seen = tempfile::NamedTempFile::new()
                    .expect("a file")
                    .into_temp_path();
                command
                    .args(["-f", "-c", ZSH, "zsh", script])
                    .arg(&*seen)
                    .arg(format!("{NAME} {line}"));
                return words(&command.output().expect("the shell runs"));
            }
            _ => command
                .args(["--no-config", "-c", FISH, script])
                .arg(format!("{NAME} {line}")),
        };
        words(&command.output().expect("the shell runs"))
    }

    fn words(output: &Output) -> Vec<String> {
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines()
            .map(|line| line.split('\t').next().unwrap_or_default().to_owned())
            .collect()
    }

    #[test]
    fn shells_complete_subcommands_flags_and_values() {
        let scratch = tempfile::tempdir().expect("a directory");
        for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
            if Command::new(shell.to_string())
                .arg("--version")
                .output()
                .is_err()
            {
                not_run(&format!("completion by {shell}"), "it is not installed");
                continue;
            }
            let script = scratch.path().join(shell.to_string());
            fs::write(
                &script,
                completions(&CompletionOptions { shell }, Cli::command()).expect("text"),
            )
            .expect("written");
            let script = script.to_str().expect("a path of letters");
            for Case { line, has, lacks } in CASES {
                let offered = offered(shell, script, line);
                let offers = |word: &&str| offered.iter().any(|offer| offer == word);
                assert!(
                    has.iter().all(offers) && !lacks.iter().any(offers),
                    "{shell} {line:?}: {offered:?}"
                );
            }
        }
    }

    #[test]
    fn every_shell_has_the_commands_and_values() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = completions(&CompletionOptions { shell }, Cli::command()).expect("text");
            for word in [
                "datapath",
                "iface-regex",
                "docker-opts",
                "unexpected_mac",
                "clsact",
            ] {
                assert!(text.contains(word), "{shell} does not know {word}");
            }
        }
    }
}
