//! Calling the delegate: the same environment, its configuration on standard input, its standard
//! error ours.
//!
//! Its standard output is kept until it has ended, because our own output depends on its exit
//! status.

use std::{
    env,
    ffi::OsString,
    io::{self, Read as _, Write as _},
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::{ChildStdout, Command, ExitStatus, Stdio},
    thread,
};

use serde_json::Value;

use crate::{
    environment::{self, Verb},
    error::Error,
    fill,
    netconf::Object,
};

/// The most a delegate may print, in bytes. A result of host-local and bridge has a few hundred.
const LARGEST_OUTPUT: usize = 1 << 20;
/// The part of a longer output that an error quotes, in bytes.
const QUOTED: usize = 1 << 10;

/// A plugin that was found, and the configuration it gets.
#[derive(Clone, Debug)]
pub(crate) struct Delegate {
    plugin: String,
    program: PathBuf,
    netconf: Object,
    /// Variables in which the call differs from ours.
    variables: Vec<(&'static str, OsString)>,
}

impl Delegate {
    /// Looks for the plugin that `netconf` names in the directories of CNI_PATH.
    pub(crate) fn find(path: &[PathBuf], netconf: Object) -> Result<Self, Error> {
        let plugin = fill::plugin(&netconf)?.unwrap_or_default().to_owned();
        let program = path
            .iter()
            .map(|dir| dir.join(&plugin))
            .find(|program| program.is_file());
        let program = program.ok_or_else(|| {
            let path = env::join_paths(path).unwrap_or_default();
            Error::NoDelegate {
                plugin: plugin.clone(),
                path: path.to_string_lossy().into_owned(),
            }
        })?;
        Ok(Self {
            plugin,
            program,
            netconf,
            variables: Vec::new(),
        })
    }

    /// Gives it one more key.
    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.netconf.insert(key.to_owned(), value.into());
        self
    }

    /// Gives it what the plugins before us left, if anything.
    pub(crate) fn with_prev_result(self, prev_result: Option<Value>) -> Self {
        match prev_result {
            Some(result) => self.with("prevResult", result),
            None => self,
        }
    }

    /// Gives it the configuration in another version of the specification. A result of an earlier
    /// call is not in that version.
    pub(crate) fn in_version(mut self, version: &str) -> Self {
        self.netconf.remove("prevResult");
        self.with("cniVersion", version)
    }

    /// Returns the `cniVersion` of its configuration.
    pub(crate) fn version(&self) -> Option<&str> {
        self.netconf.get("cniVersion").and_then(Value::as_str)
    }

    /// Directs the call at another interface than we were called for, which may not exist any more:
    /// it has no network namespace.
    pub(crate) fn for_absent(mut self, container_id: &str, ifname: &str) -> Self {
        self.variables = vec![
            (environment::CONTAINER_ID, container_id.into()),
            (environment::IFNAME, ifname.into()),
            (environment::NETNS, OsString::new()),
        ];
        self
    }

    /// Calls it. Returns its standard output.
    pub(crate) fn call(&self, verb: Verb) -> Result<Vec<u8>, Error> {
        let (status, mut output) = self.run(verb)?;
        let too_long = output.len() > LARGEST_OUTPUT;
        if status.success() && !too_long {
            return Ok(output);
        }
        Err(if !too_long && is_error_object(&output) {
            Error::Refused(output)
        } else {
            let how = match (status.code(), status.signal()) {
                _ if too_long => {
                    output.truncate(QUOTED);
                    format!("more than {LARGEST_OUTPUT} bytes on standard output")
                }
                (Some(code), _) => format!("exit status {code} without an error object"),
                (None, Some(signal)) => format!("ended by signal {signal}"),
                (None, None) => status.to_string(),
            };
            let output = String::from_utf8_lossy(&output).into_owned();
            Error::Delegate {
                plugin: self.plugin.clone(),
                verb: verb.name(),
                how,
                output,
            }
        })
    }

    fn run(&self, verb: Verb) -> Result<(ExitStatus, Vec<u8>), Error> {
        let netconf = Value::from(self.netconf.clone()).to_string();
        let mut command = Command::new(&self.program);
        command
            .env(environment::COMMAND, verb.name())
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|source| Error::NotStarted {
            program: self.program.clone(),
            source,
        })?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let output = thread::scope(|scope| {
            // A plugin that ends without reading all of it is judged by how it ended.
            scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(netconf.as_bytes())));
            let output = stdout.map_or(Ok(Vec::new()), read_bounded);
            child.wait().and_then(|status| Ok((status, output?)))
        });
        output.map_err(Error::io("follow", &self.program))
    }
}

/// Reads one byte more than allowed at most, which shows that there was more. The pipe is closed
/// then, which ends a plugin that prints without end.
fn read_bounded(stdout: ChildStdout) -> io::Result<Vec<u8>> {
    let mut output = Vec::new();
    stdout
        .take(LARGEST_OUTPUT as u64 + 1)
        .read_to_end(&mut output)?;
    Ok(output)
}

fn is_error_object(output: &[u8]) -> bool {
    let object: Option<Object> = serde_json::from_slice(output).ok();
    object.is_some_and(|object| {
        object.get("code").is_some_and(Value::is_u64) && object.contains_key("msg")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_specifications_object_is_passed_on() {
        for (text, expected) in [
            (r#"{"code":11,"msg":"later"}"#, true),
            (
                r#"{"cniVersion":"1.0.0","code":999,"msg":"","details":""}"#,
                true,
            ),
            (r#"{"code":"11","msg":"later"}"#, false),
            (r#"{"code":11}"#, false),
            ("panic", false),
            ("", false),
        ] {
            assert_eq!(is_error_object(text.as_bytes()), expected, "{text}");
        }
    }
}
