//! Settings of this node from the store: those that apply, and the reasons why others do not.
//!
//! Mode and guard are followed while the agent runs. The interface and the MTU are read at the
//! start. A setting that is refused never ends the agent: the flags count instead. Pure.

use flannel_common::abi::guard::{Checks, GuardMode};
use flannel_status::NodeSettingStatus;
use flannel_store::{ModeSetting, NodeSetting, NodeSettings, SettingValue};

const NEXT_START: &str = "takes effect at the next start of the agent";
const REMOVED: &str = "removed, and in force until the next start of the agent";

/// The settings of this node.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeOverrides {
    /// As they were at the start, with refusals by what the node is.
    started: NodeSettings,
    now: NodeSettings,
}

impl NodeOverrides {
    /// As the store has them at the start.
    pub(super) fn new(settings: NodeSettings) -> Self {
        Self {
            started: settings.clone(),
            now: settings,
        }
    }

    /// Returns the settings that apply.
    pub(super) const fn settings(&self) -> &NodeSettings {
        &self.now
    }

    /// Refuses a setting of the start that this node cannot follow. To be called before any change.
    pub(super) fn refuse(&mut self, is_it: impl Fn(&SettingValue) -> bool, reason: &str) {
        for setting in &mut self.started.0 {
            if setting.value.as_ref().is_ok_and(&is_it) {
                setting.refuse(reason);
            }
        }
        self.now = self.started.clone();
    }

    /// Takes in the settings as they are now. Returns the states that are new, to be logged.
    pub(super) fn change(&mut self, now: NodeSettings) -> Vec<NodeSettingStatus> {
        let before = self.states();
        self.now = now;
        // What the node is does not change with another setting.
        for setting in &mut self.now.0 {
            if let Some(same) =
                find(&self.started, setting).filter(|same| same.text == setting.text)
            {
                setting.value = same.value.clone();
            }
        }
        self.states()
            .into_iter()
            .filter(|state| !before.contains(state))
            .collect()
    }

    /// The choice of the mode.
    pub(super) fn mode(&self) -> Option<ModeSetting> {
        self.now.mode()
    }

    /// The modes of the guard, where the flags have these.
    pub(super) fn guard(&self, flags: Checks<GuardMode>) -> Checks<GuardMode> {
        self.now.guard(flags)
    }

    /// Returns the state of each setting.
    pub(super) fn states(&self) -> Vec<NodeSettingStatus> {
        let removed = self
            .started
            .0
            .iter()
            .filter(|setting| is_for_start(setting) && find(&self.now, setting).is_none());
        let removed = removed.map(|setting| state(setting, true, false, Some(REMOVED.to_owned())));
        self.now
            .0
            .iter()
            .map(|setting| self.state(setting))
            .chain(removed)
            .collect()
    }

    fn state(&self, setting: &NodeSetting) -> NodeSettingStatus {
        if let Some(refusal) = self.refusal(setting) {
            return state(setting, false, false, Some(refusal));
        }
        let started =
            find(&self.started, setting).is_some_and(|started| started.text == setting.text);
        let waits = is_for_start(setting) && !started;
        state(setting, !waits, waits, waits.then(|| NEXT_START.to_owned()))
    }

    /// The reason why a setting is refused, and what counts instead.
    fn refusal(&self, setting: &NodeSetting) -> Option<String> {
        let kept = find(&self.started, setting).filter(|started| is_for_start(started));
        match (&setting.value, kept) {
            (Err(reason), Some(started)) => Some(format!(
                "refused: {reason}; {} stays in force until the next start of the agent",
                started.text
            )),
            _ => setting.refusal(),
        }
    }
}

fn find<'a>(settings: &'a NodeSettings, setting: &NodeSetting) -> Option<&'a NodeSetting> {
    settings.0.iter().find(|other| other.name == setting.name)
}

fn is_for_start(setting: &NodeSetting) -> bool {
    setting.value.as_ref().is_ok_and(SettingValue::is_for_start)
}

fn state(
    setting: &NodeSetting,
    in_force: bool,
    waits: bool,
    reason: Option<String>,
) -> NodeSettingStatus {
    NodeSettingStatus {
        annotation: setting.name.clone(),
        value: setting.text.clone(),
        in_force,
        waits,
        reason,
    }
}

#[cfg(test)]
mod tests {
    use flannel_common::abi::mode::Mode;

    use super::*;

    const FLAGS: Checks<GuardMode> = Checks {
        outer: GuardMode::Enforce,
        inner: GuardMode::Audit,
    };

    fn setting(name: &str, text: &str, value: Result<SettingValue, String>) -> NodeSetting {
        NodeSetting {
            name: name.to_owned(),
            text: text.to_owned(),
            value,
            instead: "the flag counts",
        }
    }

    fn mtu(bytes: u16) -> NodeSetting {
        setting("mtu", &bytes.to_string(), Ok(SettingValue::Mtu(bytes)))
    }

    fn mode(mode: Mode) -> NodeSetting {
        setting(
            "mode",
            mode.name(),
            Ok(SettingValue::Mode(ModeSetting::Mode(mode))),
        )
    }

    fn shown(states: Vec<NodeSettingStatus>) -> Vec<String> {
        let text = |state: NodeSettingStatus| {
            let NodeSettingStatus {
                annotation,
                value,
                in_force,
                reason,
                ..
            } = state;
            format!(
                "{annotation}={value} {in_force} {}",
                reason.unwrap_or_default()
            )
        };
        states.into_iter().map(text).collect()
    }

    #[test]
    fn a_mode_is_followed_and_an_mtu_waits_for_the_next_start() {
        let mut node = NodeOverrides::new(NodeSettings(vec![mtu(1400), mode(Mode::Kernel)]));
        assert_eq!(
            shown(node.states()),
            ["mtu=1400 true ", "mode=kernel true "]
        );
        let changes = node.change(NodeSettings(vec![mtu(1300), mode(Mode::Encap)]));
        assert_eq!(
            shown(changes),
            [
                format!("mtu=1300 false {NEXT_START}"),
                "mode=encap true ".to_owned()
            ]
        );
        assert_eq!(node.mode(), Some(ModeSetting::Mode(Mode::Encap)));
        assert_eq!(
            shown(node.change(NodeSettings::default())),
            [format!("mtu=1400 true {REMOVED}")]
        );
        assert_eq!((node.mode(), node.guard(FLAGS)), (None, FLAGS));
        assert_eq!(
            shown(node.change(NodeSettings(vec![mtu(1400)]))),
            ["mtu=1400 true "],
            "back as it was"
        );
    }

    #[test]
    fn a_bad_value_leaves_what_the_agent_started_with_in_force() {
        let mut node = NodeOverrides::new(NodeSettings(vec![mtu(1400)]));
        let bad = setting("mtu", "banana", Err("expected a number".to_owned()));
        let refused = "mtu=banana false refused: expected a number; 1400 stays in force until the \
            next start of the agent";
        assert_eq!(shown(node.change(NodeSettings(vec![bad]))), [refused]);
    }

    #[test]
    fn what_the_node_cannot_follow_stays_refused_until_it_is_another_value() {
        let mut node = NodeOverrides::new(NodeSettings(vec![mtu(9000), mode(Mode::Kernel)]));
        node.refuse(|value| matches!(value, SettingValue::Mtu(_)), "too large");
        assert_eq!(node.settings().mtu(), None);
        let refused =
            "mtu=9000 false refused: too large; the flag counts until it is corrected or removed";
        assert_eq!(shown(node.states()), [refused, "mode=kernel true "]);
        assert_eq!(
            shown(node.change(NodeSettings(vec![mtu(9000), mode(Mode::Fast)]))),
            ["mode=fast true "]
        );
        assert_eq!(
            shown(node.change(NodeSettings(vec![mtu(1400)]))),
            [format!("mtu=1400 false {NEXT_START}")]
        );
        assert_eq!(
            shown(node.change(NodeSettings::default())),
            [""; 0],
            "it never was in force"
        );
        let bad = setting("mode", "turbo", Err("expected kernel".to_owned()));
        assert!(
            shown(node.change(NodeSettings(vec![bad])))[0]
                .contains("mode=turbo false refused: expected kernel")
        );
        assert_eq!(node.mode(), None);
    }
}
