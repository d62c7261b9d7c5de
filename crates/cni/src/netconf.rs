//! The network configuration on standard input.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::{environment::is_identifier, error::Error, version::Version};

/// A JSON object.
pub(crate) type Object = Map<String, Value>;

/// The network configuration. The keys of this plugin are validated, and the delegate's are not. A
/// key that is missing or empty has its default.
#[derive(Clone, Debug)]
pub(crate) struct NetConf {
    /// Of the specification; as given, perhaps empty.
    pub(crate) cni_version: String,
    /// The same, understood.
    pub(crate) version: Version,
    /// Of the network.
    pub(crate) name: String,
    /// The file in which the agent publishes our subnet.
    pub(crate) subnet_file: PathBuf,
    /// The time ADD waits for that file.
    pub(crate) subnet_file_wait: Duration,
    /// The directory of our state files.
    pub(crate) data_dir: PathBuf,
    /// The start of the delegate's configuration.
    pub(crate) delegate: Object,
    /// The start of the delegate's `ipam`.
    pub(crate) ipam: Object,
    /// For the delegate, if given.
    pub(crate) runtime_config: Option<Object>,
    /// The result of the plugin before us, or of the whole list's ADD.
    pub(crate) prev_result: Option<Value>,
    /// The attachments in use, for GC; `None` if the key is missing.
    pub(crate) valid_attachments: Option<Vec<Attachment>>,
}

/// An interface of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attachment {
    /// CNI_CONTAINERID.
    #[serde(rename = "containerID")]
    pub(crate) container_id: String,
    /// CNI_IFNAME.
    pub(crate) ifname: String,
}

const SUBNET_FILE: &str = "/run/flannel/subnet.env";
const DATA_DIR: &str = "/var/lib/cni/flannel";
/// In seconds. An agent that starts with its node needs a few.
const WAIT: u16 = 10;
/// The key of the attachments in use, for GC.
pub(crate) const VALID_ATTACHMENTS: &str = "cni.dev/valid-attachments";

/// The keys of [`Raw`].
const KEYS: [&str; 10] = [
    "cniVersion",
    "name",
    "subnetFile",
    "subnetFileWaitSeconds",
    "dataDir",
    "delegate",
    "ipam",
    "runtimeConfig",
    "prevResult",
    VALID_ATTACHMENTS,
];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    cni_version: Option<String>,
    name: Option<String>,
    subnet_file: Option<PathBuf>,
    subnet_file_wait_seconds: Option<u16>,
    data_dir: Option<PathBuf>,
    delegate: Option<Object>,
    ipam: Option<Object>,
    runtime_config: Option<Object>,
    prev_result: Option<Value>,
    #[serde(
        rename = "cni.dev/valid-attachments",
        default,
        deserialize_with = "present"
    )]
    valid_attachments: Option<Vec<Attachment>>,
}

/// Reads `null` as an empty list: the caller has no attachments. A missing key is `None`, which
/// means something else.
fn present<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Vec<Attachment>>, D::Error> {
    Ok(Some(Option::deserialize(input)?.unwrap_or_default()))
}

/// Gives keys in another case the usual one, as the plugin in Go reads them. A key in the usual
/// case is preferred.
fn in_usual_case(object: Object) -> Object {
    let usual = |key: String| {
        let known = KEYS
            .into_iter()
            .find(|known| known.eq_ignore_ascii_case(&key));
        known.map_or(key, str::to_owned)
    };
    let (as_usual, others): (Vec<_>, Vec<_>) = object
        .into_iter()
        .partition(|(key, _)| KEYS.contains(&key.as_str()));
    others
        .into_iter()
        .map(|(key, value)| (usual(key), value))
        .chain(as_usual)
        .collect()
}

impl NetConf {
    /// Reads the input.
    pub(crate) fn parse(input: &[u8]) -> Result<Self, Error> {
        Self::read(input, Version::of)
    }

    /// Reads the input for DEL: a pod must be able to go whatever version the configuration has
    /// now.
    pub(crate) fn parse_any_version(input: &[u8]) -> Result<Self, Error> {
        Self::read(input, |version| {
            Ok(Version::of(version).unwrap_or(Version::NEWEST))
        })
    }

    /// Returns true if its version has a `prevResult` on DEL.
    pub(crate) fn passes_prev_result(&self) -> bool {
        self.version >= Version::WITH_CHECK
    }

    fn read(
        input: &[u8],
        version: impl FnOnce(&str) -> Result<Version, Error>,
    ) -> Result<Self, Error> {
        // By way of an object: serde would take a list of the values too, and refuse what is there
        // twice.
        let object: Object = serde_json::from_slice(input).map_err(Error::Decode)?;
        let raw = Raw::deserialize(Value::Object(in_usual_case(object))).map_err(Error::Decode)?;
        let name = raw.name.unwrap_or_default();
        if !is_identifier(&name) {
            return Err(Error::Config(match name.as_str() {
                "" => "missing network name".to_owned(),
                _ => format!("invalid network name {name:?}"),
            }));
        }
        let cni_version = raw.cni_version.unwrap_or_default();
        let or = |path: Option<PathBuf>, default: &str| {
            path.filter(|path| !path.as_os_str().is_empty())
                .unwrap_or_else(|| Path::new(default).to_owned())
        };
        Ok(Self {
            version: version(&cni_version)?,
            cni_version,
            name,
            subnet_file: or(raw.subnet_file, SUBNET_FILE),
            subnet_file_wait: Duration::from_secs(
                raw.subnet_file_wait_seconds.unwrap_or(WAIT).into(),
            ),
            data_dir: or(raw.data_dir, DATA_DIR),
            delegate: raw.delegate.unwrap_or_default(),
            ipam: raw.ipam.unwrap_or_default(),
            runtime_config: raw.runtime_config,
            prev_result: raw.prev_result,
            valid_attachments: raw.valid_attachments,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_not_given_has_its_default() {
        for text in [
            r#"{"name":"cbr0","type":"flannel"}"#,
            r#"{"name":"cbr0","cniVersion":"","subnetFile":"","dataDir":"","delegate":null,"ipam":null,"foreign":[1],"name":"cbr0"}"#,
        ] {
            let conf = NetConf::parse(text.as_bytes()).expect(text);
            assert_eq!(conf.subnet_file, Path::new("/run/flannel/subnet.env"));
            assert_eq!(conf.data_dir, Path::new("/var/lib/cni/flannel"));
            assert_eq!(conf.subnet_file_wait, Duration::from_secs(10));
            assert!(
                conf.delegate.is_empty() && conf.ipam.is_empty() && conf.runtime_config.is_none()
            );
        }
    }

    #[test]
    fn keys_may_have_any_case() {
        let text = r#"{"NAME":"cbr0","subnetfile":"/a","SubnetFile":"/b","DataDir":"/d","dataDir":"/e","DELEGATE":{"Type":"x"}}"#;
        let conf = NetConf::parse(text.as_bytes()).expect(text);
        assert_eq!(
            (conf.name.as_str(), conf.data_dir.as_path()),
            ("cbr0", Path::new("/e"))
        );
        assert!(
            conf.subnet_file != Path::new(SUBNET_FILE),
            "{}",
            conf.subnet_file.display()
        );
        assert_eq!(
            conf.delegate.keys().collect::<Vec<_>>(),
            ["Type"],
            "the delegate's keys are its own"
        );
        let object: Object = KEYS
            .into_iter()
            .map(|key| (key.to_uppercase(), Value::Null))
            .collect();
        assert!(
            in_usual_case(object)
                .keys()
                .all(|key| KEYS.contains(&key.as_str()))
        );
    }

    #[test]
    fn what_is_wrong_is_reported_with_its_code() {
        for (text, code, words) in [
            ("", 6, "EOF"),
            ("[]", 6, "a map"),
            (r#"["1.0.0","x"]"#, 6, "a map"),
            ("{\"name\":\"x\"", 6, "EOF"),
            (r#"{"name":1}"#, 6, "string"),
            (r#"{"name":"x","delegate":"bridge"}"#, 6, "map"),
            (r#"{"name":"x","subnetFileWaitSeconds":-1}"#, 6, "u16"),
            (
                r#"{"name":"x","cni.dev/valid-attachments":[{"ifname":"eth0"}]}"#,
                6,
                "containerID",
            ),
            ("{}", 7, "missing network name"),
            (r#"{"name":"../x"}"#, 7, "invalid network name \"../x\""),
            (
                r#"{"name":"x","cniVersion":"2.0.0"}"#,
                1,
                "incompatible CNI versions",
            ),
        ] {
            let error = NetConf::parse(text.as_bytes()).expect_err(text);
            assert_eq!(error.code(), code, "{text}: {error}");
            assert!(error.to_string().contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn a_del_may_have_any_version() {
        let text = r#"{"name":"x","cniVersion":"9.0.0"}"#;
        assert_eq!(NetConf::parse(text.as_bytes()).expect_err(text).code(), 1);
        let conf = NetConf::parse_any_version(text.as_bytes()).expect(text);
        assert_eq!(
            (conf.version, conf.cni_version.as_str()),
            (Version::NEWEST, "9.0.0")
        );
    }

    #[test]
    fn no_attachments_is_not_the_same_as_not_saying() {
        let attachments = |text: &str| {
            NetConf::parse(text.as_bytes())
                .expect(text)
                .valid_attachments
        };
        assert_eq!(attachments(r#"{"name":"x"}"#), None);
        for text in ["null", "[]"] {
            assert_eq!(
                attachments(&format!(
                    r#"{{"name":"x","cni.dev/valid-attachments":{text}}}"#
                )),
                Some(Vec::new())
            );
        }
        let one = Attachment {
            container_id: "a".to_owned(),
            ifname: "eth0".to_owned(),
        };
        let text =
            r#"{"name":"x","cni.dev/valid-attachments":[{"containerID":"a","ifname":"eth0"}]}"#;
        assert_eq!(attachments(text), Some(vec![one]));
    }

    proptest! {
        #[test]
        fn no_input_makes_it_panic(input in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = NetConf::parse(&input);
        }
    }
}
