//! The prefix of our annotations, `--kube-annotation-prefix`, normalised as flannel does. Pure.

use std::{fmt, str::FromStr};

/// The text before `backend-type` and the like in an annotation's name. Ends in `/` or `-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnotationPrefix(String);

/// A prefix Kubernetes would not take, or that is not a domain's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no annotation prefix; write a lower-case domain with at least one dot, and after a / \
     at most letters, \
     digits, _ and -, for example flannel.alpha.coreos.com or example.com/flannel"
)]
pub struct BadPrefix(String);

impl AnnotationPrefix {
    /// The name of an annotation.
    pub fn name(&self, suffix: &str) -> String {
        format!("{}{suffix}", self.0)
    }

    /// Returns the suffix of a name, if the name has this prefix.
    pub fn suffix_of<'a>(&self, name: &'a str) -> Option<&'a str> {
        name.strip_prefix(&self.0)
    }
}

impl Default for AnnotationPrefix {
    fn default() -> Self {
        Self("flannel.alpha.coreos.com/".to_owned())
    }
}

impl fmt::Display for AnnotationPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for AnnotationPrefix {
    type Err = BadPrefix;

    fn from_str(text: &str) -> Result<Self, BadPrefix> {
        let (domain, rest) = text.split_once('/').unwrap_or((text, ""));
        let rest_fits = rest
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'));
        if !is_domain(domain) || !rest_fits {
            return Err(BadPrefix(text.to_owned()));
        }
        let dash = if rest.is_empty() || rest.ends_with('-') {
            ""
        } else {
            "-"
        };
        Ok(Self(format!("{domain}/{rest}{dash}")))
    }
}

/// Lower-case labels, at least two, none empty and none with a dash at an end.
fn is_domain(text: &str) -> bool {
    let is_label = |label: &str| {
        let fits = label
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
        fits && !label.is_empty() && !label.starts_with('-') && !label.ends_with('-')
    };
    text.contains('.') && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_normalised_as_in_flannel() {
        for (text, expected) in [
            (
                "flannel.alpha.coreos.com",
                "flannel.alpha.coreos.com/backend-type",
            ),
            (
                "flannel.alpha.coreos.com/",
                "flannel.alpha.coreos.com/backend-type",
            ),
            ("org.com/9", "org.com/9-backend-type"),
            ("org.com/flannel_a-", "org.com/flannel_a-backend-type"),
        ] {
            let prefix: AnnotationPrefix = text.parse().expect(text);
            assert_eq!(prefix.name("backend-type"), expected);
            assert_eq!(prefix.suffix_of(expected), Some("backend-type"));
            assert_eq!(prefix.suffix_of("other.com/backend-type"), None);
        }
        assert_eq!(
            AnnotationPrefix::default(),
            "flannel.alpha.coreos.com".parse().expect("the default")
        );
    }

    #[test]
    fn what_kubernetes_would_refuse_is_refused_here() {
        for text in [
            "",
            "org",
            "org/x",
            "Org.com",
            "org.com/X",
            "org.com/a/b",
            ".com",
            "org..com",
            "-a.com",
            "a b.com",
        ] {
            assert_eq!(
                text.parse::<AnnotationPrefix>(),
                Err(BadPrefix(text.to_owned())),
                "{text}"
            );
        }
    }
}
