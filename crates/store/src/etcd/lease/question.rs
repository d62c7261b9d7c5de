//! The question to the holder of a lease, and the form that it has in the lease's value.

use std::fmt::Write as _;

use flannel_host::{clock::BootTime, excerpt::excerpt};

use crate::{LeaseAttrs, config::gojson::Fields};

/// The field of a lease's value with the machine that asks.
const CLAIMED_BY: &str = "ClaimedBy";

/// A question that was asked.
#[derive(Clone, Debug)]
pub(in crate::etcd) struct Claim {
    /// The name of the lease.
    pub(in crate::etcd) name: String,
    /// The revision of the question.
    pub(in crate::etcd) modified: i64,
    pub(in crate::etcd) etcd_lease: i64,
    pub(in crate::etcd) since: BootTime,
}

/// The value of a lease with a question in it.
pub(in crate::etcd) fn with_claim(attrs: &LeaseAttrs, name: &str) -> String {
    let mut value = attrs.to_json();
    let name = serde_json::to_string(name).expect("a text always serialises");
    if value.pop() == Some('}') {
        let _infallible = write!(value, ",\"{CLAIMED_BY}\":{name}}}");
    }
    value
}

/// The machine that asks, in a lease's value.
pub(in crate::etcd) fn claimed_by(value: &[u8]) -> Option<Box<str>> {
    let text = str::from_utf8(value)
        .ok()
        .filter(|text| text.contains(CLAIMED_BY))?;
    let name: String = Fields::parse(text).ok()?.value(CLAIMED_BY).ok()??;
    Some(excerpt(&name).to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_changes_no_attribute_and_is_read_back() {
        let text = r#"{"PublicIP":"192.0.2.1","PublicIPv6":null,"BackendType":"host-gw"}"#;
        let attrs = LeaseAttrs::parse(text.as_bytes()).expect("attributes");
        let asked = with_claim(&attrs, "host \"b\"");
        assert_eq!(
            LeaseAttrs::parse(asked.as_bytes()).expect("attributes"),
            attrs
        );
        assert_eq!(claimed_by(asked.as_bytes()).as_deref(), Some("host \"b\""));
        for other in [text, "ClaimedBy", r#"{"ClaimedBy":7}"#] {
            assert_eq!(claimed_by(other.as_bytes()), None, "{other}");
        }
    }
}
