//! Runs one command.

use std::{
    io,
    os::fd::OwnedFd,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use flannel_host::excerpt::excerpt;
use flannel_store::config::CommandLine;
use nix::{
    fcntl::OFlag,
    sys::signal::{Signal, killpg},
    unistd::{Pid, pipe2},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::unix::pipe::Receiver,
    process::{Child, Command},
    time::timeout,
};

use super::{
    environment::{Networks, NodeFacts, expanded, is_inherited, variables},
    error::{ExtensionError, Key},
    limits::LIMIT,
};

/// A command and what it is run with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job<'a> {
    pub(super) key: Key,
    pub(super) command: &'a CommandLine,
    pub(super) networks: Networks,
    pub(super) node: &'a NodeFacts,
    /// Standard input; without it, it is empty.
    pub(super) input: Option<&'a str>,
    /// If it runs longer, it is ended.
    pub(super) patience: Duration,
}

/// Runs a command to its end. Returns what it printed on standard output and standard error, in
/// their order, without white space around it.
pub(super) async fn run(job: &Job<'_>) -> Result<String, ExtensionError> {
    let variables = variables(&job.networks, job.node);
    let words = expanded(job.command, &variables);
    let command = || excerpt(&words.join(" ")).to_string();
    let not_started = |error| ExtensionError::NotStarted {
        key: job.key,
        program: words[0].clone(),
        error,
    };
    let (output, theirs) = output().map_err(not_started)?;
    let mut process = Command::new(&words[0]);
    process.args(&words[1..]).env_clear();
    process.envs(std::env::vars_os().filter(|(name, _)| name.to_str().is_none_or(is_inherited)));
    process.envs(variables).current_dir("/").process_group(0);
    process
        .stdin(Stdio::piped())
        .stdout(theirs.try_clone().map_err(not_started)?)
        .stderr(theirs);
    let child = process.spawn().map_err(not_started)?;
    // It holds the other end of the pipe.
    drop(process);
    let group = child.id();
    let Ok(ended) = timeout(job.patience, attend(child, output, job.input)).await else {
        kill(group);
        return Err(ExtensionError::Late {
            key: job.key,
            command: command(),
            patience: job.patience,
        });
    };
    let (status, printed) = ended.map_err(not_started)?;
    let text = String::from_utf8_lossy(&printed).trim().to_owned();
    if !status.success() {
        let printed = excerpt(&text).to_string();
        return Err(ExtensionError::Failed {
            key: job.key,
            command: command(),
            status,
            printed,
        });
    }
    if job.key == Key::PreStartup && printed.len() > LIMIT {
        return Err(ExtensionError::TooMuch {
            key: job.key,
            command: command(),
        });
    }
    Ok(text)
}

/// A pipe for both of a command's outputs, so that their order stays.
fn output() -> io::Result<(Receiver, OwnedFd)> {
    let (ours, theirs) = pipe2(OFlag::O_CLOEXEC)?;
    Ok((Receiver::from_owned_fd(ours)?, theirs))
}

/// Writes the input and reads the output until the process ends. Processes that it leaves behind
/// may keep the pipe open, so its end is not waited for.
async fn attend(
    mut child: Child,
    mut output: Receiver,
    input: Option<&str>,
) -> io::Result<(ExitStatus, Vec<u8>)> {
    let mut stdin = child.stdin.take();
    let feed = async {
        if let (Some(stdin), Some(input)) = (&mut stdin, input) {
            // A command need not read it.
            let _ = stdin.write_all(format!("{input}\n").as_bytes()).await;
        }
        drop(stdin);
    };
    let mut printed = Vec::new();
    let status = {
        let read = async {
            while read_some(&mut output, &mut printed).await? {}
            io::Result::Ok(())
        };
        let (wait, read) = (child.wait(), read);
        tokio::pin!(wait, read, feed);
        let (mut fed, mut closed) = (false, false);
        loop {
            tokio::select! {
                status = &mut wait => break status?,
                () = &mut feed, if !fed => fed = true,
                result = &mut read, if !closed => { result?; closed = true; }
            }
        }
    };
    let mut rest = [0; 4096];
    while let Ok(count @ 1..) = output.try_read(&mut rest) {
        keep(&mut printed, &rest[..count]);
    }
    Ok((status, printed))
}

/// Reads what there is. Returns false at the end.
async fn read_some(output: &mut Receiver, printed: &mut Vec<u8>) -> io::Result<bool> {
    let mut some = [0; 4096];
    let count = output.read(&mut some).await?;
    keep(printed, &some[..count]);
    Ok(count > 0)
}

/// One byte more than the limit shows that there was more.
fn keep(printed: &mut Vec<u8>, some: &[u8]) {
    let room = (LIMIT + 1).saturating_sub(printed.len());
    printed.extend_from_slice(&some[..some.len().min(room)]);
}

/// Ends the command and whatever it started.
fn kill(group: Option<u32>) {
    if let Some(pid) = group.and_then(|pid| i32::try_from(pid).ok())
        && let Err(error) = killpg(Pid::from_raw(pid), Signal::SIGKILL)
    {
        tracing::debug!(%error, pid, "the command has ended meanwhile");
    }
}

#[cfg(test)]
mod tests {
    use flannel_store::config::CommandForm;

    use super::*;
    use crate::limits::PATIENCE;

    async fn run_words(key: Key, words: &[&str], input: Option<&str>) -> Result<String, String> {
        run_within(PATIENCE, key, words, input).await
    }

    async fn run_within(
        patience: Duration,
        key: Key,
        words: &[&str],
        input: Option<&str>,
    ) -> Result<String, String> {
        let mut words = words.iter().map(ToString::to_string);
        let program = words.next().expect("a program");
        let command = CommandLine {
            program,
            args: words.collect(),
            form: CommandForm::Array,
        };
        let mut node = NodeFacts::default();
        node.set_subnet("10.5.9.0/24".parse().expect("a subnet"));
        let job = Job {
            key,
            command: &command,
            networks: Networks::default(),
            node: &node,
            input,
            patience,
        };
        run(&job).await.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn both_outputs_are_read_and_the_input_and_variables_are_there() {
        let script = r#"cat; echo "$SUBNET,$PUBLIC_IPV6," >&2; echo last"#;
        let printed = run_words(Key::SubnetAdd, &["sh", "-c", script], Some("data")).await;
        assert_eq!(printed.as_deref(), Ok("data\n10.5.9.0/24,,\nlast"));
        assert_eq!(
            run_words(Key::SubnetAdd, &["cat"], None).await.as_deref(),
            Ok("")
        );
    }

    #[tokio::test]
    async fn a_process_left_behind_is_not_waited_for() {
        let printed = run_words(Key::PostStartup, &["sh", "-c", "sleep 20 & echo $!"], None).await;
        let pid: i32 = printed.expect("it ended").parse().expect("a number");
        killpg(
            nix::unistd::getpgid(Some(Pid::from_raw(pid))).expect("it runs"),
            Signal::SIGKILL,
        )
        .expect("ended");
    }

    #[tokio::test]
    async fn failures_say_what_was_run_and_what_it_printed() {
        let failed = run_words(Key::SubnetAdd, &["sh", "-c", "echo no route; exit 3"], None).await;
        let expected =
            "SubnetAddCommand failed (exit status: 3): sh -c echo no route; exit 3: no route";
        assert_eq!(failed, Err(expected.to_owned()));
        let absent = run_words(Key::SubnetRemove, &["/no/such/program"], None)
            .await
            .expect_err("absent");
        assert!(
            absent.starts_with("SubnetRemoveCommand cannot be run: /no/such/program: No such file"),
            "{absent}"
        );
    }

    #[tokio::test]
    async fn output_is_bounded_and_a_lease_takes_no_part_of_it() {
        let much = ["head", "-c", "300000", "/dev/zero"];
        assert_eq!(
            run_words(Key::SubnetAdd, &much, None)
                .await
                .map(|text| text.len()),
            Ok(LIMIT + 1)
        );
        let refused = run_words(Key::PreStartup, &much, None)
            .await
            .expect_err("too much");
        assert!(
            refused.contains("printed more than 16384 bytes"),
            "{refused}"
        );
    }

    #[tokio::test]
    async fn a_command_that_does_not_end_is_ended() {
        let late = run_within(
            Duration::from_secs(1),
            Key::SubnetAdd,
            &["sleep", "600"],
            None,
        )
        .await;
        assert_eq!(
            late,
            Err("SubnetAddCommand was ended because it ran longer than 1 s: sleep 600".to_owned())
        );
    }
}
