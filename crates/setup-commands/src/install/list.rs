//! The changes that an installation makes to CNI configuration lists. Pure.

use serde_json::{Value, json};

/// The plugin that limits the rate of pods by the annotations `kubernetes.io/ingress-bandwidth` and
/// `egress-bandwidth`.
const BANDWIDTH: &str = "bandwidth";

/// A list to install, and remarks for the user.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Adapted {
    pub(super) text: String,
    pub(super) remarks: Vec<String>,
}

/// Appends the plugin `bandwidth` if it `is_there` and not in the list. A text that is not a list
/// stays as it is. A remark names each plugin of the list that is not installed: no pod starts
/// without it.
pub(super) fn adapt(text: &str, is_there: impl Fn(&str) -> bool) -> Adapted {
    let as_it_is = |remark: &str| Adapted {
        text: text.to_owned(),
        remarks: vec![remark.to_owned()],
    };
    let Ok(mut list) = serde_json::from_str::<Value>(text) else {
        return as_it_is("no JSON, installed as it is");
    };
    let Some(plugins) = list.get_mut("plugins").and_then(Value::as_array_mut) else {
        return as_it_is("no list of CNI plugins, installed as it is");
    };
    let types: Vec<_> = plugins
        .iter()
        .filter_map(|plugin| plugin["type"].as_str().map(str::to_owned))
        .collect();
    let missing = types.iter().filter(|plugin| !is_there(plugin));
    let mut remarks: Vec<_> = missing
        .map(|plugin| {
            format!("warning: the plugin {plugin} is not installed: no pod starts without it")
        })
        .collect();
    if types.iter().any(|plugin| plugin == BANDWIDTH) {
        return Adapted {
            text: text.to_owned(),
            remarks,
        };
    }
    if !is_there(BANDWIDTH) {
        remarks.push(format!(
            "the plugin {BANDWIDTH} is not installed: limits of the rate of pods have no effect"
        ));
        return Adapted {
            text: text.to_owned(),
            remarks,
        };
    }
    plugins.push(json!({ "type": BANDWIDTH, "capabilities": { "bandwidth": true } }));
    remarks.push(format!(
        "the plugin {BANDWIDTH} is installed: added to the list"
    ));
    Adapted {
        text: format!("{list:#}\n"),
        remarks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str =
        r#"{"name":"cbr0","cniVersion":"0.3.1","plugins":[{"type":"flannel"},{"type":"portmap"}]}"#;

    fn adapted(text: &str, there: &[&str]) -> Adapted {
        adapt(text, |plugin| there.contains(&plugin))
    }

    #[test]
    fn bandwidth_is_added_where_it_is_installed_alone() {
        let Adapted { text, remarks } = adapted(LIST, &["flannel", "portmap", "bandwidth"]);
        let list: Value = serde_json::from_str(&text).expect("JSON");
        let expected = LIST.replace(
            "]}",
            r#",{"type":"bandwidth","capabilities":{"bandwidth":true}}]}"#,
        );
        assert_eq!(list.to_string(), expected, "and the keys keep their order");
        assert_eq!(
            remarks,
            ["the plugin bandwidth is installed: added to the list"]
        );
        assert_eq!(
            adapted(&text, &["flannel", "portmap", "bandwidth"]).text,
            text,
            "once"
        );
        assert_eq!(adapted(LIST, &["flannel", "portmap"]).text, LIST);
    }

    #[test]
    fn what_is_missing_is_named_and_other_texts_stay_as_they_are() {
        let remarks = adapted(&LIST.replace("portmap", "bandwidth"), &["flannel"]).remarks;
        assert_eq!(
            remarks,
            ["warning: the plugin bandwidth is not installed: no pod starts without it"]
        );
        for text in ["{}", "nonsense", r#"{"plugins":7}"#, "[]"] {
            let Adapted {
                text: kept,
                remarks,
            } = adapted(text, &["bandwidth"]);
            assert!(
                kept == text && remarks[0].ends_with("installed as it is"),
                "{text}: {remarks:?}"
            );
        }
    }
}
