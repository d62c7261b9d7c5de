//! Errors, and their form for the runtime: CNI's [error
//! object](https://www.cni.dev/docs/spec/#error) with its codes.

use std::{io, path::PathBuf};

use flannel_subnet_env::ParseError;
use serde_json::{Value, json};

/// The specification's code of a version that a plugin does not support.
const INCOMPATIBLE_VERSION: u64 = 1;
/// The code of a plugin that is not in CNI_PATH; not the specification's.
const MISSING_PLUGIN: u64 = 100;

/// A call that failed. The text is the object's `msg`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A version of the specification that this plugin does not support.
    #[error("incompatible CNI versions")]
    UnknownVersion {
        /// The version the configuration names.
        wanted: String,
        /// The versions the plugin supports.
        supported: &'static [&'static str],
    },
    /// A verb that the configuration's version does not have.
    #[error("config version {wanted:?} does not allow {verb}")]
    VerbNotInVersion {
        /// The version the configuration names.
        wanted: String,
        /// The verb.
        verb: &'static str,
    },
    /// A key that is ours to set.
    #[error("unsupported field in the network configuration: delegate.{key} = {value}; {advice}")]
    Unsupported {
        /// The key within `delegate`.
        key: &'static str,
        /// Its value.
        value: Value,
        /// The remedy.
        advice: &'static str,
    },
    /// CHECK of something that was never added, or was deleted.
    #[error("no state of container {container_id:?}, interface {ifname:?}, in {}", dir.display())]
    UnknownContainer {
        /// CNI_CONTAINERID.
        container_id: String,
        /// CNI_IFNAME.
        ifname: String,
        /// The directory of the state files.
        dir: PathBuf,
    },
    /// `CNI_*` variables.
    #[error("{0}")]
    Environment(String),
    /// The system refused.
    #[error("cannot {action} {what}: {source}")]
    Io {
        /// The action that failed, as it stands in the message.
        action: &'static str,
        /// On what.
        what: String,
        /// The error the operating system returned.
        source: io::Error,
    },
    /// A directory for state files in which all users may create files.
    #[error("all users may create files in {} (mode {mode:04o}); name another dataDir, or chmod \
        go-w,-t it", path.display())]
    SharedDirectory {
        /// The directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The network configuration is not JSON, or has values of the wrong type.
    #[error("cannot decode the network configuration: {0}")]
    Decode(serde_json::Error),
    /// The file is not a valid subnet.env.
    #[error("{} {reason}", path.display())]
    SubnetFile {
        /// The file.
        path: PathBuf,
        /// The reason why it is not valid.
        reason: ParseError,
    },
    /// A network configuration that means nothing.
    #[error("{0}")]
    Config(String),
    /// The agent has not written its subnet.env yet.
    #[error("{} is not there yet: is flanneld running?", path.display())]
    NoSubnetFile {
        /// The file.
        path: PathBuf,
    },
    /// Another call for the same interface of the same container goes on.
    #[error("another call for container {container_id:?}, interface {ifname:?}, has not ended")]
    Busy {
        /// CNI_CONTAINERID.
        container_id: String,
        /// CNI_IFNAME.
        ifname: String,
    },
    /// STATUS: no ADD would succeed.
    #[error("no pod can be added to this network: {cause}")]
    Unavailable {
        /// The error an ADD would have.
        cause: Box<Error>,
        /// True if there are pods already.
        has_pods: bool,
    },
    /// The delegate is in none of the directories.
    #[error("cannot find the delegate plugin {plugin:?} in CNI_PATH")]
    NoDelegate {
        /// Its name.
        plugin: String,
        /// The directories searched, as given in `CNI_PATH`.
        path: String,
    },
    /// The delegate exists and cannot be started, so it had no effect.
    #[error("cannot start the delegate plugin {}: {source}", program.display())]
    NotStarted {
        /// The file.
        program: PathBuf,
        /// The error the operating system returned.
        source: io::Error,
    },
    /// The delegate failed in another way than the specification has it.
    #[error("the delegate plugin {plugin:?} failed on {verb}: {how}")]
    Delegate {
        /// Its name.
        plugin: String,
        /// The verb.
        verb: &'static str,
        /// The kind of failure: exit status, signal or too much output.
        how: String,
        /// Its standard output; the first 1024 bytes if there was too much.
        output: String,
    },
    /// The delegate's own error object.
    #[error("the delegate plugin refused")]
    Refused(Vec<u8>),
    /// ADD: the interface was added before, and the pod uses it.
    #[error("container {container_id:?} has the interface {ifname:?} already: DEL it first")]
    Exists {
        /// CNI_CONTAINERID.
        container_id: String,
        /// CNI_IFNAME.
        ifname: String,
    },
    /// CHECK: the pod has addresses of a subnet that is no longer this node's.
    #[error("the pod was added from other subnets than this node has now")]
    SubnetChanged {
        /// The pod's `ranges`.
        pod: String,
        /// The `ranges` a new pod would get.
        node: String,
    },
    /// A state file that is not valid. DEL reports it and goes on.
    #[error("{} is no state file: {reason}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// The reason why it is not valid.
        reason: String,
    },
}

impl Error {
    /// An action on something that the system refused.
    pub(crate) fn io(
        action: &'static str,
        what: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let what = what.into().display().to_string();
        move |source| Self::Io {
            action,
            what,
            source,
        }
    }

    /// 1 to 99 are the specification's, from 100 on ours; docs/install/cni.md lists both.
    pub(crate) const fn code(&self) -> u32 {
        match self {
            Self::UnknownVersion { .. } | Self::VerbNotInVersion { .. } => 1,
            Self::Unsupported { .. } => 2,
            Self::UnknownContainer { .. } => 3,
            Self::Environment(_) => 4,
            Self::Io { .. } | Self::NotStarted { .. } | Self::SharedDirectory { .. } => 5,
            Self::Decode(_) | Self::SubnetFile { .. } => 6,
            Self::Config(_) => 7,
            Self::NoSubnetFile { .. } | Self::Busy { .. } => 11,
            Self::Unavailable {
                has_pods: false, ..
            } => 50,
            Self::Unavailable { has_pods: true, .. } => 51,
            Self::NoDelegate { .. } => 100,
            Self::Delegate { .. } | Self::Refused(_) => 101,
            Self::SubnetChanged { .. } => 102,
            Self::State { .. } => 103,
            Self::Exists { .. } => 104,
        }
    }

    /// The code in a delegate's own error object.
    fn delegate_code(&self) -> Option<u64> {
        let Self::Refused(output) = self else {
            return None;
        };
        serde_json::from_slice::<Value>(output).ok()?["code"].as_u64()
    }

    /// Returns true if the delegate refused the version of its configuration, before it did
    /// anything.
    pub(crate) fn refuses_version(&self) -> bool {
        self.delegate_code() == Some(INCOMPATIBLE_VERSION)
    }

    /// Returns true if the delegate reports that it could not begin: plugins that run others use
    /// this plugin's code for one that is missing.
    pub(crate) fn is_missing_plugin(&self) -> bool {
        self.delegate_code() == Some(MISSING_PLUGIN)
    }

    /// Returns true if the delegate, or one it needs, did not run.
    pub(crate) fn did_not_run(&self) -> bool {
        matches!(self, Self::NoDelegate { .. } | Self::NotStarted { .. })
            || self.refuses_version()
            || self.is_missing_plugin()
    }

    fn details(&self) -> Option<String> {
        match self {
            Self::UnknownVersion { wanted, supported } => Some(format!(
                "config is {wanted:?}, plugin supports {supported:?}"
            )),
            Self::NoDelegate { path, .. } => Some(format!("CNI_PATH is {path:?}")),
            Self::Delegate { output, .. } if !output.is_empty() => Some(output.clone()),
            Self::SubnetChanged { pod, node } => {
                Some(format!("the pod's ranges are {pod}, the node's {node}"))
            }
            Self::Unavailable { cause, .. } => cause.details(),
            _ => None,
        }
    }

    /// Returns the text for standard output: a delegate's own error object as it is, ours
    /// otherwise.
    pub(crate) fn output(&self, cni_version: &str) -> Vec<u8> {
        if let Self::Refused(output) = self {
            return output.clone();
        }
        let mut object =
            json!({ "cniVersion": cni_version, "code": self.code(), "msg": self.to_string() });
        if let Some(details) = self.details() {
            object["details"] = details.into();
        }
        format!("{object:#}\n").into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(error: &Error) -> Value {
        serde_json::from_slice(&error.output("1.0.0")).expect("JSON")
    }

    #[test]
    fn the_object_has_the_specifications_keys() {
        let error = Error::UnknownVersion {
            wanted: "7.0".to_owned(),
            supported: &["1.0.0", "1.1.0"],
        };
        let details = r#"config is "7.0", plugin supports ["1.0.0", "1.1.0"]"#;
        let expected = json!({ "cniVersion": "1.0.0", "code": 1, "msg": "incompatible CNI \
            versions", "details": details });
        assert_eq!(object(&error), expected);
        let error = Error::Config("no name".to_owned());
        assert_eq!(
            object(&error),
            json!({ "cniVersion": "1.0.0", "code": 7, "msg": "no name" })
        );
    }

    #[test]
    fn a_delegates_object_is_left_as_it_is() {
        let text = b"{\"code\":  999, \"msg\":\"x\"}".to_vec();
        assert_eq!(Error::Refused(text.clone()).output("1.0.0"), text);
    }

    #[test]
    fn a_status_shows_whether_pods_suffer() {
        for (has_pods, code) in [(false, 50), (true, 51)] {
            let cause = Box::new(Error::NoDelegate {
                plugin: "bridge".to_owned(),
                path: "/x".to_owned(),
            });
            let object = object(&Error::Unavailable { cause, has_pods });
            assert_eq!(
                (&object["code"], &object["details"]),
                (&json!(code), &json!("CNI_PATH is \"/x\""))
            );
        }
    }
}
