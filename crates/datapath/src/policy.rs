//! The choice of the active mode. Pure.
//!
//! The run-time choice (pinned) takes precedence over the annotation of the Node, that over the
//! flag, the flag over `Backend.Datapath`, and that over the default. A node that cannot run the
//! requested mode runs the next lower one and reports the reason.

use flannel_common::abi::mode::Mode;
use flannel_status::ModeSource;
use flannel_store::ModeSetting;

/// The mode if none is requested. A node that cannot run it runs the next lower mode.
pub const DEFAULT: Mode = Mode::Fast;

/// The same with a backend that leaves the programs nothing to do.
const DEFAULT_WITHOUT_PROGRAMS: Mode = Mode::Kernel;

/// The reason why mode `encap` is not active without a tunnel.
pub const NO_TUNNEL: &str = "the programs encapsulate nothing with this backend";

/// The capabilities of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// The highest mode.
    pub most: Mode,
    /// True if there is a tunnel. Without one mode `encap` would be mode `kernel` by another name.
    pub tunnel: bool,
    /// True if there is something for programs to do. Without that no mode is missed.
    pub has_work: bool,
}

impl Capability {
    /// A node without programs.
    pub const NOTHING: Self = Self {
        most: Mode::Kernel,
        tunnel: false,
        has_work: true,
    };

    /// The mode asked for, or the next lesser one there is.
    fn best(self, wanted: Mode) -> Mode {
        match wanted.min(self.most) {
            Mode::Encap if !self.tunnel => Mode::Kernel,
            mode => mode,
        }
    }
}

/// The requested modes, by source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModeRequest {
    /// `flannel-agent datapath set`.
    pub choice: Option<Mode>,
    /// The annotation `node-datapath` of the Node; `auto` goes past the flag.
    pub annotation: Option<ModeSetting>,
    /// `--datapath` or `FLANNELD_DATAPATH`.
    pub flag: Option<Mode>,
    /// `Backend.Datapath` in the network configuration.
    pub config: Option<Mode>,
}

/// The active mode, with the request for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeChoice {
    /// The mode.
    pub mode: Mode,
    /// The mode asked for.
    pub wanted: Mode,
    /// The source of the request.
    pub source: ModeSource,
}

impl ModeRequest {
    /// Returns the active mode of a node with these capabilities.
    pub fn decide(self, able: Capability) -> ModeChoice {
        let annotation = match self.annotation {
            Some(ModeSetting::Mode(mode)) => Some(mode),
            Some(ModeSetting::FollowConfig) | None => None,
        };
        let asked = [
            (self.choice, ModeSource::RunTime),
            (annotation, ModeSource::NodeAnnotation),
            (
                self.flag.filter(|_| self.annotation.is_none()),
                ModeSource::Flag,
            ),
            (self.config, ModeSource::NetworkConfig),
        ];
        let first = asked
            .into_iter()
            .find_map(|(mode, source)| mode.map(|mode| (mode, source)));
        let default = if able.has_work {
            DEFAULT
        } else {
            DEFAULT_WITHOUT_PROGRAMS
        };
        let (wanted, source) = first.unwrap_or((default, ModeSource::Default));
        ModeChoice {
            mode: able.best(wanted),
            wanted,
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Capability = Capability {
        most: Mode::Fast,
        tunnel: true,
        has_work: true,
    };

    #[test]
    fn the_nearest_request_wins() {
        let all = ModeRequest {
            choice: Some(Mode::Kernel),
            annotation: Some(ModeSetting::Mode(Mode::Fast)),
            flag: Some(Mode::Encap),
            config: Some(Mode::Kernel),
        };
        let decided = |request: ModeRequest| (request.decide(ALL).mode, request.decide(ALL).source);
        assert_eq!(decided(all), (Mode::Kernel, ModeSource::RunTime));
        let node = ModeRequest {
            choice: None,
            ..all
        };
        assert_eq!(decided(node), (Mode::Fast, ModeSource::NodeAnnotation));
        let auto = ModeRequest {
            annotation: Some(ModeSetting::FollowConfig),
            ..node
        };
        assert_eq!(decided(auto), (Mode::Kernel, ModeSource::NetworkConfig));
        assert_eq!(
            decided(ModeRequest {
                annotation: None,
                ..node
            }),
            (Mode::Encap, ModeSource::Flag)
        );
        let config = ModeRequest {
            config: Some(Mode::Kernel),
            ..ModeRequest::default()
        };
        assert_eq!(decided(config), (Mode::Kernel, ModeSource::NetworkConfig));
        assert_eq!(
            decided(ModeRequest::default()),
            (DEFAULT, ModeSource::Default)
        );
    }

    #[test]
    fn with_nothing_for_programs_to_do_no_mode_is_missed_unless_it_is_asked_for() {
        let able = Capability {
            has_work: false,
            ..Capability::NOTHING
        };
        let choice = ModeRequest::default().decide(able);
        assert_eq!((choice.mode, choice.wanted), (Mode::Kernel, Mode::Kernel));
        let choice = ModeRequest {
            flag: Some(Mode::Fast),
            ..ModeRequest::default()
        }
        .decide(able);
        assert_eq!((choice.mode, choice.wanted), (Mode::Kernel, Mode::Fast));
    }

    #[test]
    fn a_source_has_one_name() {
        for source in [
            ModeSource::RunTime,
            ModeSource::NodeAnnotation,
            ModeSource::Flag,
            ModeSource::NetworkConfig,
            ModeSource::Default,
        ] {
            assert_eq!(serde_json::to_value(source).expect("JSON"), source.name());
        }
    }

    #[test]
    fn a_node_that_cannot_stays_with_the_kernel_and_remembers_the_wish() {
        let decision = ModeRequest {
            flag: Some(Mode::Encap),
            ..ModeRequest::default()
        }
        .decide(Capability::NOTHING);
        assert_eq!(
            (decision.mode, decision.wanted),
            (Mode::Kernel, Mode::Encap)
        );
        let fast = ModeRequest {
            choice: Some(Mode::Fast),
            ..ModeRequest::default()
        };
        let no_fast = Capability {
            most: Mode::Encap,
            ..ALL
        };
        assert_eq!(
            (fast.decide(no_fast).mode, fast.decide(ALL).mode),
            (Mode::Encap, Mode::Fast)
        );
    }

    /// Below `fast` there is `kernel`, whatever is asked for.
    #[test]
    fn without_a_tunnel_there_is_no_mode_encap() {
        let modes = [Mode::Kernel, Mode::Encap, Mode::Fast];
        for most in modes {
            let able = Capability {
                most,
                tunnel: false,
                has_work: true,
            };
            for choice in modes {
                let decision = ModeRequest {
                    choice: Some(choice),
                    ..ModeRequest::default()
                }
                .decide(able);
                let fast = choice == Mode::Fast && most == Mode::Fast;
                assert_eq!(
                    decision.mode,
                    if fast { Mode::Fast } else { Mode::Kernel },
                    "{choice} of {most}"
                );
                assert_eq!(decision.wanted, choice);
            }
        }
    }
}
