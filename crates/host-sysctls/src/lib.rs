//! The sysctls without which the kernel carries no packet of pods: forwarding, the settings of our
//! own devices, and those of other devices by which packets of pods arrive or leave.
//!
//! Nothing announces a change of a sysctl to every mount of proc, so they are read every second. A
//! value that another program changed is set again. One that may not be set is a named problem: the
//! node is not ready then. Invariant: none is set before its value is in the record.

mod need;
mod router;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use flannel_host::{
    error_chain::chain,
    family::Family,
    sysctl_record::{self, SharedRecord},
};
use flannel_status::SysctlProblem;

pub use self::need::Devices;
use self::need::{Need, Scope};

/// The sysctls of one node.
#[derive(Debug)]
pub struct HostSysctls {
    /// The record of earlier changes; the reason why there is none.
    record: Result<SharedRecord, String>,
    /// True if settings of the whole host may be changed.
    may_forward: bool,
    /// Those that were as needed at some time: another change is a repair.
    met: BTreeSet<String>,
    /// The values that could not be changed, and why. Not tried again until something differs.
    refused: BTreeMap<String, (u32, String)>,
    problems: Vec<SysctlProblem>,
    repairs: u64,
}

/// The result of a look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// The problems are others.
    pub changed: bool,
    /// Settings were changed: what the kernel removed because of them has to be restored.
    pub repaired: bool,
}

impl HostSysctls {
    /// Those of this network namespace, before the first look. `may_forward`: forwarding is
    /// switched on where it is off.
    pub fn new(record: Result<SharedRecord, String>, may_forward: bool) -> Self {
        Self {
            record,
            may_forward,
            met: BTreeSet::new(),
            refused: BTreeMap::new(),
            problems: Vec::new(),
            repairs: 0,
        }
    }

    /// Reads them, and sets those that are not as needed.
    pub fn look(&mut self, devices: &[Devices]) -> Looked {
        let (mut problems, mut repaired) = (Vec::new(), false);
        let mut seen = BTreeSet::new();
        for need in devices.iter().flat_map(need::of) {
            // Two families may have one device.
            if seen.insert(need.name.clone()) {
                repaired |= self.look_at(&need, &mut problems);
            }
        }
        let changed = problems != self.problems;
        for problem in problems
            .iter()
            .filter(|problem| !self.problems.contains(problem))
        {
            tracing::warn!("{}", problem.text);
        }
        self.problems = problems;
        Looked {
            changed: changed || repaired,
            repaired,
        }
    }

    /// Tries again what was refused.
    pub fn retry(&mut self) {
        self.refused.clear();
    }

    /// Those that keep packets from pods.
    pub fn problems(&self) -> &[SysctlProblem] {
        &self.problems
    }

    /// The number of times that another program changed one and it was set again.
    pub const fn repairs(&self) -> u64 {
        self.repairs
    }

    /// Switches forwarding on for these families, where it is off. Returns the reasons why it stays
    /// off.
    pub fn prepare(&mut self, families: &[Family]) -> &[SysctlProblem] {
        let mut problems = Vec::new();
        for family in families {
            self.look_at(&need::forwarding(*family), &mut problems);
        }
        self.problems = problems;
        &self.problems
    }

    /// Looks at one, and sets it. Returns true if it was set.
    fn look_at(&mut self, need: &Need, problems: &mut Vec<SysctlProblem>) -> bool {
        // A device that is gone has none, and a kernel without IPv6 has none.
        let Ok(Some(own)) = sysctl_record::read(&need.name) else {
            return false;
        };
        let for_all = need
            .rule
            .for_all()
            .and_then(|name| Some((name, sysctl_record::read(name).ok()??)));
        let stricter = for_all.filter(|(_, value)| *value > own);
        let now = stricter.map_or(own, |(_, value)| value);
        if need.accepts(now) {
            self.met.insert(need.name.clone());
            self.refused.remove(&need.name);
            return false;
        }
        let Need {
            name,
            value,
            effect,
            ..
        } = need;
        match self.set(need, own) {
            Ok(()) => {
                let was_met = self.met.contains(name);
                self.repairs += u64::from(was_met);
                tracing::warn!("set {name} from {own} to {value}: with {now} {effect}");
                true
            }
            Err(reason) => {
                let shown = stricter
                    .map(|(all, value)| format!(", and {all} is {value}"))
                    .unwrap_or_default();
                let text = || {
                    format!("{name} is {own}{shown}: {effect}. {reason}; sysctl -w {name}={value}")
                };
                problems.extend(need.is_vital.then(|| SysctlProblem {
                    sysctl: name.clone(),
                    value: now,
                    needed: *value,
                    text: text(),
                }));
                false
            }
        }
    }

    /// Sets one, or says why not.
    fn set(&mut self, need: &Need, now: u32) -> Result<(), String> {
        match need.scope {
            Scope::OtherDevice => {
                return Err("The agent changes no setting of that device".to_owned());
            }
            Scope::Host(_) if !self.may_forward => {
                return Err(
                    "The agent does not set it because of --set-forwarding=false".to_owned(),
                );
            }
            Scope::Host(_) | Scope::OwnDevice => {}
        }
        if let Some((_, reason)) = self
            .refused
            .get(&need.name)
            .filter(|(value, _)| *value == now)
        {
            return Err(reason.clone());
        }
        let record = self
            .record
            .as_ref()
            .map_err(|error| format!("The agent sets none: {error}"))?;
        let set = match need.scope {
            Scope::Host(Family::V6) => keep_default_routes(record)
                .and_then(|()| write(record, &need.name, now, need.value)),
            _ => write(record, &need.name, now, need.value),
        };
        set.inspect_err(|reason| {
            self.refused
                .insert(need.name.clone(), (now, reason.clone()));
        })
    }
}

/// The sysctl without which a tunnel device carries no packets of a family, and its value.
pub fn of_tunnel(family: Family, device: &str) -> (String, u32) {
    let need = need::of_tunnel(family, device);
    (need.name, need.value)
}

/// Lets devices take router advertisements also while this host forwards.
fn keep_default_routes(record: &SharedRecord) -> Result<(), String> {
    for need in router::needs() {
        if let Ok(Some(now @ 1)) = sysctl_record::read(&need.name) {
            write(record, &need.name, now, need.value)?;
            tracing::warn!(
                "set {} from {now} to {}: otherwise {}",
                need.name,
                need.value,
                need.effect
            );
        }
    }
    Ok(())
}

fn write(record: &SharedRecord, name: &str, now: u32, value: u32) -> Result<(), String> {
    let set = record.set(name, now, value, &BTreeSet::new());
    set.map_err(|error| {
        let hint = match error.io_kind() {
            Some(io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied) => {
                " (/proc/sys is read-only in a container; `flannel-agent prepare` in a privileged \
                 one sets forwarding)"
            }
            _ => "",
        };
        format!("The agent {}{hint}", chain(&error))
    })
}

#[cfg(test)]
mod tests;
