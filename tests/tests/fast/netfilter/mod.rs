//! Netfilter has its say in mode `fast`: what it forbids stops, what it marks is marked, and what
//! conntrack knows of a connection is what it knows without the mode.

mod classes;
mod conntrack;
mod cut;
mod fields;
mod liberal;
mod marks;
mod programs;
mod unlearned;

use anyhow::{Context as _, Result};
use flannel_tests::fast::{Family, FastLab};

#[test]
fn rules_have_their_say() -> Result<()> {
    let lab = FastLab::new("nf-rules", &[])?;
    cut::established_flows_are_cut_and_go_on(&lab)?;
    unlearned::packets_userspace_judges(&lab).context("NFQUEUE")?;
    fields::drops_by_fields(&lab).context("a DROP by DSCP or TTL")?;
    classes::each_mark_has_a_path_of_its_own(&lab).context("a DROP of marked tunnel packets")?;
    marks::what_is_marked_is_queued_by_its_mark(&lab)?;
    liberal::transfers(&lab, true)
}

#[test]
fn a_connection_with_a_helper_is_left_to_the_kernel() -> Result<()> {
    let lab = FastLab::new("nf-helpers", &[])?;
    unlearned::ports_of_helpers(&lab).context("ports of helpers")?;
    unlearned::connections_with_a_helper(&lab).context("a helper by rule")
}

#[test]
fn conntrack_knows_what_it_knows_without_the_mode() -> Result<()> {
    let lab = FastLab::new("nf-conntrack", &[])?;
    for mode in ["kernel", "fast"] {
        lab.set_mode(mode)?;
        for family in Family::ALL {
            conntrack::ends(&lab, mode, family)
                .with_context(|| format!("mode {mode}, {family:?}"))?;
        }
    }
    for family in Family::ALL {
        conntrack::late_reset(&lab, family).with_context(|| format!("a late reset, {family:?}"))?;
    }
    conntrack::short_timeouts(&lab)?;
    for mode in ["kernel", "fast"] {
        lab.set_mode(mode)?;
        for family in Family::ALL {
            conntrack::pauses(&lab, mode, family)
                .with_context(|| format!("mode {mode}, {family:?}"))?;
        }
    }
    Ok(())
}

#[test]
fn transfers_are_the_kernels_where_conntrack_judges_windows() -> Result<()> {
    let lab = FastLab::new("nf-strict", &["--conntrack-liberal=false"])?;
    liberal::transfers(&lab, false)
}
