//! Pods whose annotation has an unknown value. Pure.
//!
//! Each value is logged once, also if the pod stayed out of mode `fast` before, and again after the
//! pod had a different value.

use std::collections::{BTreeMap, BTreeSet};

use flannel_host::excerpt::excerpt;

use crate::kube::record::FastPathChoice;

/// The last such value of each pod, quoted and cut.
#[derive(Debug, Default)]
pub(super) struct UnclearValues(BTreeMap<String, String>);

impl UnclearValues {
    /// Takes note of the choice of a pod. Returns its value if it is unclear and to be logged.
    pub(super) fn note(&mut self, pod: &str, choice: FastPathChoice<'_>) -> Option<String> {
        let FastPathChoice::Unclear(value) = choice else {
            self.0.remove(pod);
            return None;
        };
        let value = format!("{:?}", excerpt(value));
        if self.0.get(pod) == Some(&value) {
            return None;
        }
        self.0.insert(pod.to_owned(), value.clone());
        Some(value)
    }

    /// Forgets a pod.
    pub(super) fn forget(&mut self, pod: &str) {
        self.0.remove(pod);
    }

    /// Forgets all pods but these.
    pub(super) fn retain_only<'a>(&mut self, pods: impl Iterator<Item = &'a str>) {
        let pods: BTreeSet<_> = pods.collect();
        self.0.retain(|known, _| pods.contains(known.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_logged_once_whatever_came_before() {
        let mut values = UnclearValues::default();
        let mut logged = |choice| values.note("default/db", choice);
        assert_eq!(logged(FastPathChoice::Out), None);
        assert_eq!(
            logged(FastPathChoice::Unclear("of")).as_deref(),
            Some("\"of\""),
            "it was out before"
        );
        assert_eq!(logged(FastPathChoice::Unclear("of")), None);
        assert_eq!(
            logged(FastPathChoice::Unclear("off")).as_deref(),
            Some("\"off\"")
        );
        assert_eq!(logged(FastPathChoice::In), None);
        assert_eq!(
            logged(FastPathChoice::Unclear("off")).as_deref(),
            Some("\"off\"")
        );
    }

    #[test]
    fn pods_that_are_gone_are_forgotten() {
        let mut values = UnclearValues::default();
        for pod in ["default/a", "default/b", "default/c"] {
            values.note(pod, FastPathChoice::Unclear("of"));
        }
        values.retain_only(["default/a", "default/b"].into_iter());
        values.forget("default/b");
        assert_eq!(values.0.keys().collect::<Vec<_>>(), ["default/a"]);
    }
}
