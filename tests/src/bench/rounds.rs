//! A whole run: every workload in every mode, round by round.

use std::time::Instant;

use anyhow::Result;

use super::{
    cpus::{Cpus, Placement},
    plan::{Mode, Profile, Via, Workload},
    report::{Rows, Series},
    site::{Binaries, Load, Site},
};
use crate::Lab;

/// The measurements of a run.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) rounds: u32,
    pub(super) seconds: f64,
    pub(super) placement: Placement,
    pub(super) cpus: Cpus,
    pub(super) profiles: Vec<Profile>,
    pub(super) workloads: Vec<Workload>,
    pub(super) vias: Vec<Via>,
    pub(super) modes: Vec<Mode>,
    pub(super) binaries: Binaries,
}

/// The rows, and why some are not among them.
pub(super) fn run(plan: &Plan) -> Result<(Rows, Vec<String>)> {
    let load = Load {
        cpus: plan.cpus.clone(),
        seconds: plan.seconds,
    };
    let lab = Lab::new("bench")?;
    lab.end_on_interrupt()?;
    let sites = plan
        .modes
        .iter()
        .map(|mode| Site::new(&lab, *mode, &plan.binaries, &load.cpus));
    let sites: Vec<Site> = sites.collect::<Result<_>>()?;
    let (mut rows, mut refused) = (Vec::new(), Vec::new());
    for &profile in &plan.profiles {
        sites
            .iter()
            .try_for_each(|site| site.set_profile(profile))?;
        for series in measure(plan, profile, &sites, &load)? {
            match series {
                Ok(series) => rows.extend(series.row()),
                Err(objection) => refused.push(format!("{profile}: {objection}")),
            }
        }
    }
    Ok((Rows(rows), refused))
}

/// All rounds of one profile. A series with one sample that is none of its mode is none.
fn measure(
    plan: &Plan,
    profile: Profile,
    sites: &[Site],
    load: &Load,
) -> Result<Vec<Result<Series, String>>> {
    let asked: Vec<(Workload, Via)> = plan
        .workloads
        .iter()
        .flat_map(|&workload| plan.vias.iter().map(move |&via| (workload, via)))
        .collect();
    let mut all: Vec<Result<Series, String>> = Vec::new();
    for &(workload, via) in &asked {
        all.extend(sites.iter().map(|site| {
            Ok(Series::new(
                profile,
                workload,
                via,
                site.mode,
                plan.placement,
            ))
        }));
    }
    for round in 0..plan.rounds {
        let start = Instant::now();
        for (series, &(workload, via)) in all.chunks_mut(sites.len()).zip(&asked) {
            // Each round begins with another mode, so that none is always the one after a certain
            // other.
            for turn in 0..sites.len() {
                let place = (turn + round as usize) % sites.len();
                add(
                    &mut series[place],
                    sites[place].sample(workload, via, load)?,
                );
            }
        }
        eprintln!(
            "{profile}: round {} of {} took {:.0} s",
            round + 1,
            plan.rounds,
            start.elapsed().as_secs_f64()
        );
    }
    Ok(all)
}

fn add(series: &mut Result<Series, String>, outcome: super::site::Outcome) {
    match (&mut *series, outcome) {
        (Ok(series), Ok(sample)) => series.samples.push(sample),
        (Ok(_), Err(objection)) => *series = Err(objection),
        (Err(_), _) => {}
    }
}
