//! The capability sets of this thread, made as small as the options allow.

use std::io;

use flannel_options::RunOptions;
use nix::unistd::geteuid;
use rustix::{
    io::Errno,
    thread::{
        CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
        clear_ambient_capability_set, configure_capability_in_ambient_set,
        remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
    },
};

use super::{
    capability_names::names,
    files,
    need::{self, CapabilityNeed},
};

/// Keeps what is needed of what is there.
pub(super) fn keep(options: &RunOptions) -> io::Result<()> {
    let before = capabilities(None)?;
    let needed = need::of(options);
    // Files are looked at as they will be: without the rights to everybody's files.
    set_capabilities(
        None,
        CapabilitySets {
            effective: before.permitted & union(&needed),
            ..before
        },
    )?;
    let needed: Vec<CapabilityNeed> = needed.into_iter().chain(files::needs(options)).collect();
    set_capabilities(None, before)?;
    for need in needed
        .iter()
        .filter(|need| !before.permitted.contains(need.capability))
    {
        tracing::warn!("{}", need.missing_message());
    }
    let keep = before.permitted & (union(&needed) | need::if_held());
    limit(keep)?;
    tracing::info!(
        kept = names(keep).join(" "),
        "gave up all other capabilities"
    );
    Ok(())
}

fn union(needs: &[CapabilityNeed]) -> CapabilitySet {
    needs
        .iter()
        .fold(CapabilitySet::empty(), |set, need| set | need.capability)
}

/// Gives up all but these, also for what this process runs. Root's programs have what the bounding
/// set allows; those of another user have what is ambient.
fn limit(keep: CapabilitySet) -> io::Result<()> {
    shrink_bounding_set(keep)?;
    let inheritable = if geteuid().is_root() {
        CapabilitySet::empty()
    } else {
        keep
    };
    set_capabilities(
        None,
        CapabilitySets {
            effective: keep,
            permitted: keep,
            inheritable,
        },
    )?;
    clear_ambient_capability_set()?;
    for capability in inheritable.iter() {
        configure_capability_in_ambient_set(capability, true)?;
    }
    Ok(set_no_new_privs(true)?)
}

/// Removes all capabilities but `keep` from the bounding set. Without `CAP_SETPCAP` the set stays
/// as it is: a capability that is only in this set cannot be gained once new privileges are
/// refused.
fn shrink_bounding_set(keep: CapabilitySet) -> io::Result<()> {
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        match capability_is_in_bounding_set(capability) {
            Ok(true) if !keep.contains(capability) => {
                match remove_capability_from_bounding_set(capability) {
                    Ok(()) => {}
                    Err(Errno::PERM) => return Ok(()),
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(_) => {}
            // The kernel has no more of them.
            Err(Errno::INVAL) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
