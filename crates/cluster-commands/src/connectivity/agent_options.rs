//! The options of the agent that runs on this host.

use std::{ffi::OsString, fs, os::unix::ffi::OsStringExt as _, path::Path};

use anyhow::{Context as _, bail};
use flannel_connectivity::hosts::LocalAgent;
use flannel_observe::socket::{agent_process, ask_status};
use flannel_options::RunOptions;

/// The options of an agent with these arguments and this environment; none if they are not those of
/// an agent.
pub type ParseAgent = fn(Vec<OsString>, Vec<(OsString, OsString)>) -> Option<Box<RunOptions>>;

/// Finds the agent with this state directory.
pub(super) async fn local_agent(
    state_dir: &Path,
    parse_agent: ParseAgent,
) -> anyhow::Result<LocalAgent> {
    let none = || {
        format!(
            "no agent answers on this host (state directory {})",
            state_dir.display()
        )
    };
    let status = ask_status(state_dir).await.with_context(none)?;
    let options = options_of(
        agent_process(state_dir).await.with_context(none)?,
        parse_agent,
    )?;
    if options.kube.is_some() {
        bail!(
            "the agent of this host has its lease from Kubernetes: use `flannel-agent connectivity \
             test`"
        );
    }
    Ok(LocalAgent {
        options,
        status,
        state_dir: state_dir.to_owned(),
    })
}

/// The options of a running agent, read from its command line and environment as it read them
/// itself: the endpoints, certificates and passwords need not be given again.
fn options_of(process: i32, parse_agent: ParseAgent) -> anyhow::Result<RunOptions> {
    let [arguments, environment] = [words(process, "cmdline")?, words(process, "environ")?];
    let variables = environment.into_iter().filter_map(|word| {
        let text = word.into_string().ok()?;
        let (name, value) = text.split_once('=')?;
        Some((name.into(), value.into()))
    });
    let options = parse_agent(arguments, variables.collect()).with_context(|| {
        format!(
            "process {process} answers as the agent, and its command line is not one of an agent"
        )
    })?;
    Ok(*options)
}

fn words(process: i32, file: &str) -> anyhow::Result<Vec<OsString>> {
    let path = format!("/proc/{process}/{file}");
    let bytes = fs::read(&path).with_context(|| format!("cannot read {path}"))?;
    let words = bytes
        .split(|byte| *byte == 0)
        .map(|word| OsString::from_vec(word.to_vec()));
    let mut words: Vec<_> = words.collect();
    // Each word ends with a zero.
    words.pop();
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_process_are_read_as_it_got_them() {
        let pid = i32::try_from(std::process::id()).expect("a number");
        assert_eq!(
            words(pid, "cmdline").expect("words"),
            std::env::args_os().collect::<Vec<_>>()
        );
        assert!(
            options_of(pid, |_, _| None).is_err(),
            "a test program is not an agent"
        );
    }
}
