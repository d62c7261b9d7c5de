//! Commands in pods, as `kubectl exec` runs them.

use std::{pin::pin, time::Duration};

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Status};
use kube::api::{Api, AttachParams, AttachedProcess};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader},
    sync::mpsc::Sender,
    time::timeout,
};

use super::{client::ClusterClient, error::ExecError};

/// The most that a command may write: the archive of a large node.
const LIMIT: u64 = 64 << 20;
/// Bytes on the way from the connection to the reader.
const BUFFER: usize = 64 << 10;

/// A container in which commands are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// The namespace of the pod.
    pub namespace: String,
    /// The name of the pod.
    pub pod: String,
    /// The name of the container.
    pub name: String,
}

/// The result of a command that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executed {
    /// Its output.
    pub stdout: Vec<u8>,
    /// Its messages.
    pub stderr: String,
    /// Its exit status.
    pub code: i32,
}

/// The limits of a command whose output is read line by line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineLimits {
    /// The longest line, in bytes.
    pub bytes: u64,
    /// The longest time without a line, and until the command starts.
    pub silence: Duration,
}

impl ClusterClient {
    /// Runs a command without input, until it ends or the time is over.
    pub async fn exec(
        &self,
        to: &Container,
        command: &[&str],
        limit: Duration,
    ) -> Result<Executed, ExecError> {
        let whole = async {
            let attached = self.attach(to, command, false).await?;
            result(attached, &to.pod, |stdout| read(stdout, &to.pod)).await
        };
        let late = |_elapsed| ExecError::Deadline {
            pod: to.pod.clone(),
            limit,
        };
        timeout(limit, Box::pin(whole)).await.map_err(late)?
    }

    /// Runs a command and sends each line of its output, without the line's end, until the command
    /// ends. Returns no output. Waits while the receiver is busy; ends with [`ExecError::Broken`]
    /// once it is gone. The command's standard input is empty, and ends with the connection.
    pub async fn exec_lines(
        &self,
        to: &Container,
        command: &[&str],
        limits: LineLimits,
        lines: Sender<Vec<u8>>,
    ) -> Result<Executed, ExecError> {
        let late = |_elapsed| ExecError::Silent {
            pod: to.pod.clone(),
            limit: limits.silence,
        };
        let attached = timeout(limits.silence, Box::pin(self.attach(to, command, true)))
            .await
            .map_err(late)??;
        result(attached, &to.pod, |stdout| {
            send_lines(stdout, &to.pod, limits, lines)
        })
        .await
    }

    async fn attach(
        &self,
        to: &Container,
        command: &[&str],
        has_input: bool,
    ) -> Result<AttachedProcess, ExecError> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &to.namespace);
        let mut options = AttachParams::default()
            .container(&to.name)
            .stdin(has_input)
            .stdout(true)
            .stderr(true);
        options.max_stdout_buf_size = Some(BUFFER);
        let words = command.iter().copied();
        let attached = pods.exec(&to.pod, words, &options).await;
        let refused = |error| ExecError::Refused {
            pod: to.pod.clone(),
            error: Box::new(error),
        };
        attached.map_err(refused)
    }
}

/// Reads the output of a command by `read_stdout`, and its messages, until it ends.
async fn result<F: Future<Output = Result<Vec<u8>, ExecError>>>(
    mut attached: AttachedProcess,
    name: &str,
    read_stdout: impl FnOnce(Stdout) -> F,
) -> Result<Executed, ExecError> {
    let pod = || name.to_owned();
    let broken = || ExecError::Broken { pod: pod() };
    let status = attached.take_status().ok_or_else(broken)?;
    let (stdout, stderr) = (
        attached.stdout().ok_or_else(broken)?,
        attached.stderr().ok_or_else(broken)?,
    );
    // Both at once: the connection stands still while one of them is full.
    let mut output =
        pin!(async { tokio::try_join!(read_stdout(Box::new(stdout)), read(stderr, name)) });
    let mut status = pin!(status);
    // Of a connection that breaks only the status comes to its end, without a value.
    let ((stdout, stderr), status) = tokio::select! {
        output = &mut output => (output?, status.await),
        status = &mut status => match status {
            Some(status) => (output.await?, Some(status)),
            None => return Err(broken()),
        },
    };
    let code = exit_code(status.ok_or_else(broken)?);
    let code = code.map_err(|message| ExecError::NotStarted {
        pod: pod(),
        message,
    })?;
    Ok(Executed {
        stdout,
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
        code,
    })
}

/// The output of a command that runs.
type Stdout = Box<dyn AsyncRead + Send + Unpin>;

/// Sends each line of the output. Returns no bytes.
async fn send_lines(
    from: Stdout,
    pod: &str,
    limits: LineLimits,
    lines: Sender<Vec<u8>>,
) -> Result<Vec<u8>, ExecError> {
    let mut from = BufReader::new(from);
    loop {
        let mut line = Vec::new();
        let mut bounded = (&mut from).take(limits.bytes + 1);
        let read = timeout(limits.silence, bounded.read_until(b'\n', &mut line)).await;
        let read = read.map_err(|_elapsed| ExecError::Silent {
            pod: pod.to_owned(),
            limit: limits.silence,
        })?;
        let length = read.map_err(|_broken| ExecError::Broken {
            pod: pod.to_owned(),
        })?;
        if length == 0 {
            return Ok(Vec::new());
        }
        if length as u64 > limits.bytes {
            return Err(ExecError::TooLong {
                pod: pod.to_owned(),
                limit: limits.bytes,
            });
        }
        line.pop_if(|last| *last == b'\n');
        lines.send(line).await.map_err(|_gone| ExecError::Broken {
            pod: pod.to_owned(),
        })?;
    }
}

/// Reads to the end, or to the limit, which is an error.
async fn read(from: impl AsyncRead + Unpin, pod: &str) -> Result<Vec<u8>, ExecError> {
    let mut bytes = Vec::new();
    let read = from.take(LIMIT + 1).read_to_end(&mut bytes).await;
    match read {
        Ok(length) if length as u64 > LIMIT => Err(ExecError::TooLong {
            pod: pod.to_owned(),
            limit: LIMIT,
        }),
        Ok(_) => Ok(bytes),
        Err(_broken) => Err(ExecError::Broken {
            pod: pod.to_owned(),
        }),
    }
}

/// The exit code, or the message of a runtime that did not start the command.
fn exit_code(status: Status) -> Result<i32, String> {
    if status.status.as_deref() == Some("Success") {
        return Ok(0);
    }
    let message = status.message.unwrap_or_default();
    if status.reason.as_deref() != Some("NonZeroExitCode") {
        return Err(message);
    }
    let mut causes = status
        .details
        .and_then(|details| details.causes)
        .into_iter()
        .flatten();
    let code = causes
        .find(|cause| cause.reason.as_deref() == Some("ExitCode"))
        .and_then(|cause| cause.message);
    code.and_then(|code| code.parse().ok()).ok_or(message)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn code(status: Value) -> Result<i32, String> {
        exit_code(serde_json::from_value(status).expect("a Status"))
    }

    #[test]
    fn the_end_of_a_command_and_of_a_start_differ() {
        assert_eq!(code(json!({ "metadata": {}, "status": "Success" })), Ok(0));
        let failed = json!({
            "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": "command terminated with non-zero exit code: exit status 3",
            "details": { "causes": [{ "reason": "ExitCode", "message": "3" }] },
        });
        assert_eq!(code(failed), Ok(3));
        let refused = json!({
            "metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500,
            "message": "error executing command in container: executable file not found in $PATH",
        });
        let message = code(refused).expect_err("no program");
        assert!(message.contains("not found"), "{message}");
    }
}
