//! Commands in pods, as `kubectl exec` runs them.

use std::{pin::pin, time::Duration};

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Status};
use kube::api::{Api, AttachParams};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
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

impl ClusterClient {
    /// Runs a command without input, until it ends or the time is over.
    pub async fn exec(&self, to: &Container, command: &[&str], limit: Duration) -> Result<Executed, ExecError> {
        match timeout(limit, Box::pin(self.attached(to, command))).await {
            Ok(result) => result,
            Err(_elapsed) => Err(ExecError::Deadline { pod: to.pod.clone(), limit }),
        }
    }

    async fn attached(&self, to: &Container, command: &[&str]) -> Result<Executed, ExecError> {
        let pod = || to.pod.clone();
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &to.namespace);
        let mut options = AttachParams::default().container(&to.name).stdout(true).stderr(true);
        options.max_stdout_buf_size = Some(BUFFER);
        let words = command.iter().copied();
        let attached = pods.exec(&to.pod, words, &options).await;
        let mut attached = attached.map_err(|error| ExecError::Refused { pod: pod(), error: Box::new(error) })?;
        let broken = || ExecError::Broken { pod: pod() };
        let status = attached.take_status().ok_or_else(broken)?;
        let (stdout, stderr) = (attached.stdout().ok_or_else(broken)?, attached.stderr().ok_or_else(broken)?);
        // Both at once: the connection stands still while one of them is full.
        let mut output = pin!(async { tokio::try_join!(read(stdout, &to.pod), read(stderr, &to.pod)) });
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
        let code = code.map_err(|message| ExecError::NotStarted { pod: pod(), message })?;
        Ok(Executed { stdout, stderr: String::from_utf8_lossy(&stderr).into_owned(), code })
    }
}

/// Reads to the end, or to the limit, which is an error.
async fn read(from: impl AsyncRead + Unpin, pod: &str) -> Result<Vec<u8>, ExecError> {
    let mut bytes = Vec::new();
    let read = from.take(LIMIT + 1).read_to_end(&mut bytes).await;
    match read {
        Ok(length) if length as u64 > LIMIT => Err(ExecError::TooLong { pod: pod.to_owned(), limit: LIMIT }),
        Ok(_) => Ok(bytes),
        Err(_broken) => Err(ExecError::Broken { pod: pod.to_owned() }),
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
    let mut causes = status.details.and_then(|details| details.causes).into_iter().flatten();
    let code = causes.find(|cause| cause.reason.as_deref() == Some("ExitCode")).and_then(|cause| cause.message);
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
