//! The credential plugin of a kubeconfig: a program that prints a token or a client certificate.
//!
//! The client library runs it on the calling thread, without a deadline. A plugin may hang: it asks
//! an identity provider over the network. So it is run here, in a process group that is killed at
//! the deadline. The protocol is client-go's, of the group `client.authentication.k8s.io`:
//! <https://kubernetes.io/docs/reference/config-api/client-authentication.v1/>.

use std::{process::Stdio, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flannel_host::excerpt::message_excerpt;
use kube::config::{AuthInfo, ExecAuthCluster, ExecConfig, ExecInteractiveMode};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::{process::Command, time::timeout};

/// The credentials that a plugin printed.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::kube) struct PluginCredentials {
    /// The time from which on the plugin has to be run again, as [RFC
    /// 3339](https://www.rfc-editor.org/rfc/rfc3339) has it.
    expiration_timestamp: Option<String>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

/// The object that goes from the client to the plugin, and back with a status.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Exchange<'a> {
    api_version: Option<String>,
    kind: Option<String>,
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    spec: Option<Request<'a>>,
    #[serde(skip_serializing)]
    status: Option<PluginCredentials>,
}

#[derive(Serialize)]
struct Request<'a> {
    interactive: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<&'a ExecAuthCluster>,
}

impl PluginCredentials {
    /// Runs the plugin. Kills it and all it started if it takes longer than `limit`.
    pub(in crate::kube) async fn ask(plugin: &ExecConfig, limit: Duration) -> Result<Self, String> {
        let name = plugin
            .command
            .as_deref()
            .ok_or("the credential plugin of the kubeconfig has no command")?;
        if plugin.interactive_mode == Some(ExecInteractiveMode::Always) {
            return Err(format!(
                "the credential plugin {name} asks for a person (interactiveMode: Always)"
            ));
        }
        let mut command = command(name, plugin)?;
        let child = command
            .spawn()
            .map_err(|error| format!("cannot run the credential plugin {name}: {error}"))?;
        let group = Group(
            child
                .id()
                .and_then(|pid| i32::try_from(pid).ok())
                .map(Pid::from_raw),
        );
        let output = match timeout(limit, child.wait_with_output()).await {
            Ok(output) => {
                output.map_err(|error| format!("the credential plugin {name}: {error}"))?
            }
            Err(_elapsed) => {
                return Err(format!(
                    "the credential plugin {name} did not end within {limit:?} and was killed"
                ));
            }
        };
        group.leave();
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            return Err(format!(
                "the credential plugin {name} failed ({}): {}",
                output.status,
                message_excerpt(&message.trim())
            ));
        }
        read(&output.stdout).map_err(|problem| format!("the credential plugin {name} {problem}"))
    }

    /// Puts the credentials in the place of the plugin.
    pub(in crate::kube) fn apply(&self, auth: &mut AuthInfo) -> Result<(), String> {
        let encode = |text: &Option<String>| text.as_ref().map(|pem| STANDARD.encode(pem));
        let fields = json!({
            "token": self.token,
            "client-certificate-data": encode(&self.client_certificate_data),
            "client-key-data": encode(&self.client_key_data),
        });
        let found: AuthInfo = serde_json::from_value(fields).map_err(|error| error.to_string())?;
        auth.exec = None;
        auth.token = found.token;
        if found.client_certificate_data.is_some() {
            auth.client_certificate_data = found.client_certificate_data;
            auth.client_key_data = found.client_key_data;
        }
        Ok(())
    }

    /// Returns the time at which the credentials end; `None` if they last.
    pub(in crate::kube) fn expires(&self) -> Option<k8s_openapi::jiff::Timestamp> {
        self.expiration_timestamp
            .as_ref()
            .and_then(|time| time.parse().ok())
    }
}

fn command(name: &str, plugin: &ExecConfig) -> Result<Command, String> {
    let mut command = Command::new(name);
    command.args(plugin.args.iter().flatten());
    for variable in plugin.env.iter().flatten() {
        if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
            command.env(name, value);
        }
    }
    let cluster = plugin
        .cluster
        .as_ref()
        .filter(|_| plugin.provide_cluster_info);
    let info = Exchange {
        api_version: plugin.api_version.clone(),
        kind: Some("ExecCredential".to_owned()),
        spec: Some(Request {
            interactive: false,
            cluster,
        }),
        status: None,
    };
    command.env(
        "KUBERNETES_EXEC_INFO",
        serde_json::to_string(&info).map_err(|error| error.to_string())?,
    );
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.process_group(0).kill_on_drop(true);
    Ok(command)
}

/// Plugins print JSON, and some YAML, which client-go reads too.
fn read(text: &[u8]) -> Result<PluginCredentials, String> {
    let answer: Exchange<'_> = serde_saphyr::from_slice(text)
        .map_err(|error| format!("printed no ExecCredential: {}", message_excerpt(&error)))?;
    answer
        .status
        .ok_or_else(|| "printed an ExecCredential without a status".to_owned())
}

/// The process group of a plugin, which ends with this value.
struct Group(Option<Pid>);

impl Group {
    /// Leaves the processes of a plugin that has ended to themselves: it may have started a cache.
    fn leave(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // A group that is gone needs no signal.
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn shell(script: &str) -> ExecConfig {
        let text = json!({
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "/bin/sh",
            "args": ["-c", script],
            "env": [{ "name": "GIVEN", "value": "of the kubeconfig" }],
        });
        serde_json::from_value(text).expect("a plugin")
    }

    async fn ask(script: &str) -> Result<PluginCredentials, String> {
        PluginCredentials::ask(&shell(script), Duration::from_mins(1)).await
    }

    #[tokio::test]
    async fn a_token_is_read_with_its_end() {
        let script = r#"echo '{"apiVersion":"x","kind":"ExecCredential","status":{"token":"'"$GIVEN"'","expirationTimestamp":"2026-01-02T03:04:05Z"}}'"#;
        let found = ask(script).await.expect("credentials");
        let mut auth = AuthInfo {
            exec: Some(shell("")),
            ..AuthInfo::default()
        };
        found.apply(&mut auth).expect("applied");
        assert!(auth.exec.is_none() && auth.token.is_some());
        assert_eq!(found.token.as_deref(), Some("of the kubeconfig"));
        assert_eq!(
            found.expires().map(|time| time.to_string()).as_deref(),
            Some("2026-01-02T03:04:05Z")
        );
        let asked = ask(
            r#"case "$KUBERNETES_EXEC_INFO" in *'"interactive":false'*) echo "status: {token: yaml}";; esac"#,
        );
        assert_eq!(
            asked.await.expect("credentials").token.as_deref(),
            Some("yaml")
        );
    }

    #[tokio::test]
    async fn a_plugin_that_fails_is_named_with_what_it_said() {
        let failed = ask("echo 'no such profile' >&2; exit 3")
            .await
            .err()
            .expect("a failure");
        assert!(
            failed.contains("/bin/sh") && failed.contains("no such profile"),
            "{failed}"
        );
        let mute = ask("echo hello").await.err().expect("a failure");
        assert!(mute.contains("printed no ExecCredential"), "{mute}");
    }

    #[tokio::test]
    async fn a_plugin_that_hangs_is_killed_with_its_children() {
        let scratch = tempfile::tempdir().expect("a directory");
        let file = scratch.path().join("child");
        let script = format!("sleep 600 & echo $! >{}; wait", file.display());
        let begun = Instant::now();
        let hung = PluginCredentials::ask(&shell(&script), Duration::from_secs(2))
            .await
            .err()
            .expect("a failure");
        assert!(
            hung.contains("/bin/sh did not end within 2s and was killed"),
            "{hung}"
        );
        assert!(begun.elapsed() < Duration::from_mins(1));
        let child: i32 = std::fs::read_to_string(file)
            .expect("its child")
            .trim()
            .parse()
            .expect("a number");
        let is_gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        };
        let deadline = Instant::now() + Duration::from_mins(1);
        while !is_gone() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(is_gone());
    }
}
