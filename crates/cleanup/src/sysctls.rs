//! The sysctls the agent changed: which are set back, which stay, and why.
//!
//! Forwarding and the settings of devices are those of the pod network: they are set back with it,
//! and stay where it stays.
//!
//! Conntrack keeps windows of replayed connections that are out of date for as long as those live.
//! So its settings may change back only when no connection of a pod is left; a connection that was
//! replayed cannot be known from one that was not.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use flannel_host::sysctl_record::{self, ChangedSysctl, Record};

use super::{connections, scope::When};

/// A sysctl the agent changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SysctlStep {
    state_dir: PathBuf,
    changed: ChangedSysctl,
    fate: Fate,
}

/// The fate of a sysctl.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    /// It has the value of the agent, and gets back the one before.
    Restore,
    /// It has the value before.
    Restored,
    /// It has a value of another origin, and keeps it.
    Foreign(u32),
    /// This kernel does not have it any more.
    Gone,
    /// It keeps the value of the agent for now, because of that.
    Wait(String),
    /// It keeps the value of the agent with the network that stays.
    Keep,
}

/// The steps for all sysctls in the record of a state directory.
pub(super) fn plan(
    state_dir: &Path,
    when: When,
    keep_network: bool,
) -> anyhow::Result<Vec<SysctlStep>> {
    let record = Record::load(state_dir)?;
    if record.changed().is_empty() {
        return Ok(Vec::new());
    }
    let in_the_way = match when {
        When::Unused
            if record
                .changed()
                .iter()
                .any(|changed| is_of_conntrack(&changed.name)) =>
        {
            in_the_way(&record)
        }
        When::Now | When::Unused => None,
    };
    let step = |changed: &ChangedSysctl| {
        let now = sysctl_record::read(&changed.name)?;
        let fate = if is_of_conntrack(&changed.name) {
            fate(changed, now, in_the_way.as_deref())
        } else if keep_network {
            Fate::Keep
        } else {
            fate(changed, now, None)
        };
        Ok(SysctlStep {
            state_dir: state_dir.to_owned(),
            changed: changed.clone(),
            fate,
        })
    };
    // The last one first: what a setting needed before it was made is undone after it.
    record.changed().iter().rev().map(step).collect()
}

/// Returns true for a sysctl on which connections depend.
fn is_of_conntrack(name: &str) -> bool {
    name.starts_with("net.netfilter.")
}

/// The reason for which no sysctl may be set back yet.
fn in_the_way(record: &Record) -> Option<String> {
    match connections::alive(record.networks()) {
        Ok(0) => None,
        Ok(1) => Some("a TCP connection of a pod is alive".to_owned()),
        Ok(count) => Some(format!("{count} TCP connections of pods are alive")),
        Err(error) => Some(format!(
            "the connections of pods cannot be counted ({error})"
        )),
    }
}

fn fate(changed: &ChangedSysctl, now: Option<u32>, in_the_way: Option<&str>) -> Fate {
    match (now, in_the_way) {
        (None, _) => Fate::Gone,
        (Some(now), _) if now == changed.before => Fate::Restored,
        (Some(now), _) if !changed.is_ours(now) => Fate::Foreign(now),
        (Some(_), Some(reason)) => Fate::Wait(reason.to_owned()),
        (Some(_), None) => Fate::Restore,
    }
}

impl SysctlStep {
    /// Does what the fate says. What is settled leaves the record.
    pub(super) fn execute(&self) -> io::Result<()> {
        let ChangedSysctl { name, before, .. } = &self.changed;
        match self.fate {
            Fate::Wait(_) | Fate::Keep => return Ok(()),
            Fate::Restore => sysctl_record::write(name, *before)?,
            Fate::Restored | Fate::Foreign(_) | Fate::Gone => {}
        }
        let mut record = Record::load(&self.state_dir).map_err(io::Error::other)?;
        record.forget(name);
        record.save().map_err(io::Error::other)
    }
}

impl fmt::Display for SysctlStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ChangedSysctl {
            name, before, set, ..
        } = &self.changed;
        match &self.fate {
            Fate::Restore => write!(f, "set {name} back to {before}"),
            Fate::Restored => write!(f, "leave {name} at {before}, as it was before"),
            Fate::Foreign(now) => {
                write!(
                    f,
                    "leave {name} at {now}: the agent set {set}, something else changed it since"
                )
            }
            Fate::Gone => write!(f, "forget {name}, which this kernel does not have"),
            Fate::Keep => write!(
                f,
                "leave {name} at {set} ({before} before), because the network stays; \
                 `flannel-agent cleanup` sets it back"
            ),
            Fate::Wait(reason) => write!(
                f,
                "leave {name} at {set} ({before} before) because {reason}; `flannel-agent cleanup \
                 --keep-network` sets it back \
                 once none is, with --restore-sysctls=now at once"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "net.netfilter.nf_conntrack_tcp_timeout_unacknowledged";

    fn changed() -> ChangedSysctl {
        let mut record = Record::default();
        record.note(NAME, 300, 432_000);
        record.note(NAME, 432_000, 500_000);
        record.changed()[0].clone()
    }

    #[test]
    fn only_the_agents_own_values_are_set_back() {
        for (now, expected) in [
            (Some(500_000), Fate::Restore),
            (Some(432_000), Fate::Restore),
            (Some(300), Fate::Restored),
            (Some(600), Fate::Foreign(600)),
            (None, Fate::Gone),
        ] {
            assert_eq!(fate(&changed(), now, None), expected, "{now:?}");
        }
    }

    #[test]
    fn connections_are_waited_for_where_a_value_would_change() {
        for (now, expected) in [
            (Some(500_000), Fate::Wait("so".to_owned())),
            (Some(300), Fate::Restored),
            (Some(600), Fate::Foreign(600)),
            (None, Fate::Gone),
        ] {
            assert_eq!(fate(&changed(), now, Some("so")), expected, "{now:?}");
        }
    }

    #[test]
    fn settings_of_the_network_stay_with_it_and_go_in_reverse() {
        const FIRST: &str = "kernel.ngroups_max";
        const LAST: &str = "kernel.absent";
        let dir = tempfile::tempdir().expect("a directory");
        let record = |names: &[&str]| {
            let mut record = Record::load(dir.path()).expect("readable");
            for name in names {
                record.note(name, 0, 65536);
            }
            record.save().expect("written");
        };
        record(&[FIRST, LAST]);
        let steps = |keep_network| {
            let steps = plan(dir.path(), When::Unused, keep_network).expect("a plan");
            steps.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let kept = steps(true);
        assert!(
            kept.iter()
                .all(|step| step.contains("because the network stays")),
            "{kept:?}"
        );
        let expected = [
            format!("forget {LAST}, which this kernel does not have"),
            format!("set {FIRST} back to 0"),
        ];
        assert_eq!(steps(false), expected);
    }

    #[test]
    fn what_stays_is_named_with_both_values_and_the_remedy() {
        let fate = Fate::Wait("3 TCP connections of pods are alive".to_owned());
        let text = SysctlStep {
            state_dir: PathBuf::new(),
            changed: changed(),
            fate,
        }
        .to_string();
        for part in [
            NAME,
            "500000",
            "300 before",
            "3 TCP connections",
            "cleanup --keep-network",
            "--restore-sysctls=now",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
