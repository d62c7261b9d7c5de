//! Objects as `kubectl get --output=json` prints them.
//!
//! The API server lists an object until it is gone. A pod that is being deleted keeps its phase
//! `Running` and its address, while its network namespace may not exist any more. So a list has
//! only objects that stay, unless a test asks for all.

use anyhow::{Result, ensure};
use serde_json::Value;

/// The objects of a list, without those that are being deleted.
pub fn items(list: &Value) -> impl Iterator<Item = &Value> {
    all_items(list)
        .iter()
        .filter(|object| !is_being_deleted(object))
}

/// The objects of a list, with those that are being deleted.
pub fn all_items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

fn is_being_deleted(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Requires that no object of a list is being deleted.
pub fn require_settled(list: &Value) -> Result<()> {
    let names = all_items(list)
        .iter()
        .filter(|object| is_being_deleted(object));
    let names: Vec<&Value> = names.map(|object| &object["metadata"]["name"]).collect();
    ensure!(names.is_empty(), "still being deleted: {names:?}");
    Ok(())
}

/// Requires a condition of a node or of a pod.
pub fn condition_is_true(object: &Value, name: &str) -> Result<()> {
    let conditions = object["status"]["conditions"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let holds = conditions
        .iter()
        .any(|condition| condition["type"] == name && condition["status"] == "True");
    ensure!(
        holds,
        "{} is not {name}: {}",
        object["metadata"]["name"],
        object["status"]
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A DaemonSet's pods just after one of them was deleted.
    const PODS: &str = include_str!("pods.json");

    fn names<'a>(pods: impl Iterator<Item = &'a Value>) -> Vec<&'a str> {
        pods.filter_map(|pod| pod["metadata"]["name"].as_str())
            .collect()
    }

    #[test]
    fn a_pod_that_is_being_deleted_is_not_in_the_list() {
        let pods: Value = serde_json::from_str(PODS).expect("the fixture");
        assert_eq!(
            names(all_items(&pods).iter()),
            ["web-4k8fz", "web-9xw2c", "web-tq6vj"]
        );
        for pod in all_items(&pods) {
            assert_eq!(pod["status"]["phase"], "Running");
        }
        assert_eq!(names(items(&pods)), ["web-4k8fz", "web-9xw2c"]);
    }

    #[test]
    fn a_list_is_settled_once_such_a_pod_is_gone() {
        let mut pods: Value = serde_json::from_str(PODS).expect("the fixture");
        let error = require_settled(&pods)
            .expect_err("a pod is being deleted")
            .to_string();
        assert!(
            error.contains("web-tq6vj") && !error.contains("web-9xw2c"),
            "{error}"
        );
        pods["items"].as_array_mut().expect("a list").pop();
        require_settled(&pods).expect("a settled list");
    }
}
