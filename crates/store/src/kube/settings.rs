//! Settings of this node from the annotations of its Node. Pure.

use flannel_common::abi::guard::GuardMode;
use flannel_host::excerpt::excerpt;

use super::{
    entry::Annotations,
    record::{NODE_DATAPATH, NODE_GUARD_INNER, NODE_GUARD_OUTER, NODE_IFACE, NODE_MTU},
};
use crate::{ModeSetting, NodeSetting, NodeSettings, SettingValue};

/// An annotation with a setting.
struct Kind {
    suffix: &'static str,
    parse: fn(&str) -> Option<SettingValue>,
    expected: &'static str,
    instead: &'static str,
}

const KINDS: [Kind; 5] = [
    Kind {
        suffix: NODE_IFACE,
        parse: interfaces,
        expected: "names or local addresses of interfaces, between commas",
        instead: "--iface and the flags next to it apply",
    },
    Kind {
        suffix: NODE_MTU,
        parse: |text| text.parse().ok().map(SettingValue::Mtu),
        expected: "a number of bytes up to 65535",
        instead: "Backend.MTU applies",
    },
    Kind {
        suffix: NODE_DATAPATH,
        parse: mode,
        expected: "kernel, encap, fast or auto",
        instead: "--datapath applies",
    },
    Kind {
        suffix: NODE_GUARD_OUTER,
        parse: |text| guard_mode(text).map(SettingValue::GuardOuter),
        expected: "enforce, audit or off",
        instead: "--guard-outer applies",
    },
    Kind {
        suffix: NODE_GUARD_INNER,
        parse: |text| guard_mode(text).map(SettingValue::GuardInner),
        expected: "enforce, audit or off",
        instead: "--guard-inner applies",
    },
];

/// Reads the settings of a Node. Empty values are none.
pub(super) fn settings(own: &Annotations<'_>) -> NodeSettings {
    let read = |kind: &Kind| {
        let text = own.get(kind.suffix)?;
        let reason = || format!("expected {}", kind.expected);
        Some(NodeSetting {
            name: own.prefix.name(kind.suffix),
            text: format!("{:?}", excerpt(text)),
            value: (kind.parse)(text.trim()).ok_or_else(reason),
            instead: kind.instead,
        })
    };
    NodeSettings(KINDS.iter().filter_map(read).collect())
}

fn interfaces(text: &str) -> Option<SettingValue> {
    let names: Vec<_> = text
        .split(',')
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .collect();
    (!names.is_empty()).then_some(SettingValue::Iface(names))
}

fn mode(text: &str) -> Option<SettingValue> {
    let mode = if text == "auto" {
        ModeSetting::FollowConfig
    } else {
        ModeSetting::Mode(text.parse().ok()?)
    };
    Some(SettingValue::Mode(mode))
}

fn guard_mode(text: &str) -> Option<GuardMode> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use flannel_common::abi::{guard::Checks, mode::Mode};

    use super::*;
    use crate::kube::{prefix::AnnotationPrefix, record::NodeRecord};

    const FLAGS: Checks<GuardMode> = Checks {
        outer: GuardMode::Enforce,
        inner: GuardMode::Audit,
    };

    fn read(annotations: &str) -> NodeSettings {
        let text = format!(r#"{{"metadata":{{"name":"a","annotations":{{{annotations}}}}}}}"#);
        let node: NodeRecord =
            serde_json::from_str(&text.replace("p/", "org.com/x-")).expect("a node");
        let prefix: AnnotationPrefix = "org.com/x".parse().expect("a prefix");
        settings(&Annotations {
            node: &node,
            prefix: &prefix,
        })
    }

    #[test]
    fn each_annotation_is_a_setting() {
        let all = read(
            r#""p/node-iface":"eth1, 192.0.2.7","p/node-mtu":"1400","p/node-datapath":"kernel",
               "p/node-guard-outer":"off","p/node-guard-inner":"enforce","q/node-mtu":"9""#,
        );
        assert_eq!(
            all.iface(),
            Some(&["eth1".to_owned(), "192.0.2.7".to_owned()][..])
        );
        assert_eq!(
            (all.mtu(), all.mode()),
            (Some(1400), Some(ModeSetting::Mode(Mode::Kernel)))
        );
        assert_eq!(
            all.guard(FLAGS),
            Checks {
                outer: GuardMode::Off,
                inner: GuardMode::Enforce
            }
        );
        assert!(all.0.iter().all(|setting| setting.refusal().is_none()));
        let none = read(r#""p/node-mtu":"","x/y":"z""#);
        assert_eq!(
            (none.0.len(), none.mtu(), none.mode(), none.guard(FLAGS)),
            (0, None, None, FLAGS)
        );
        assert_eq!(
            read(r#""p/node-datapath":"auto""#).mode(),
            Some(ModeSetting::FollowConfig)
        );
    }

    #[test]
    fn a_value_that_cannot_be_used_is_refused_alone_with_what_counts_instead() {
        let some = read(
            r#""p/node-iface":" , ","p/node-mtu":"big","p/node-datapath":"turbo","p/node-guard-outer":"on",
               "p/node-guard-inner":"off""#,
        );
        assert_eq!((some.iface(), some.mtu(), some.mode()), (None, None, None));
        assert_eq!(
            some.guard(FLAGS),
            Checks {
                outer: GuardMode::Enforce,
                inner: GuardMode::Off
            }
        );
        let refusals: Vec<_> = some.0.iter().filter_map(NodeSetting::refusal).collect();
        assert_eq!(refusals.len(), 4, "{refusals:#?}");
        assert_eq!(some.0[2].to_string(), "org.com/x-node-datapath=\"turbo\"");
        assert_eq!(
            refusals[2],
            "refused: expected kernel, encap, fast or auto; --datapath applies until it is \
             corrected or removed"
        );
        let long = read(&format!(r#""p/node-mtu":"{}""#, "9".repeat(100_000)));
        assert!(long.0[0].to_string().len() < 300);
    }
}
