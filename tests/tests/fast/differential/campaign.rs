//! Seeds in one lab, one after the other: those every run has, then as many more as there is time
//! for.

use std::{
    collections::BTreeSet,
    env,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    differential::{
        compare::{Aspect, Difference, Signature, differences},
        generate,
        random::Random,
        scenario::Scenario,
        shrink::shrink,
    },
    harness::variable::number,
};

use super::{
    lab::{DiffLab, Topology, require},
    report,
    run::run as one_run,
};

/// Time of a topology in a plain run, without the scenario under way.
const BUDGET: Duration = Duration::from_secs(25);
/// Differences of a seed that are listed.
const LISTED: usize = 12;
/// Pairs of runs for making a failing scenario smaller.
const SHRINKS: usize = 8;
/// Pairs of runs that have to show a difference again. On a busy machine connections are lost in
/// either mode, and by chance at the same message.
const CONFIRMATIONS: usize = 2;
/// Replayed packets for each packet sent in mode `fast`, over all seeds, in percent: fewer prove
/// nothing.
const LEAST_REPLAYED: u64 = 30;

/// The results so far.
#[derive(Debug, Default)]
struct Tally {
    seeds: u32,
    sent: u64,
    replayed: u64,
    allowed: usize,
    noise: usize,
    /// Differences already shown by a small scenario.
    shown: BTreeSet<Aspect>,
    /// Defects with their seeds, some of each seed.
    defects: Vec<String>,
}

/// Runs the seeds of one topology.
pub(crate) fn run(topology: Topology, mode: &str) -> Result<()> {
    let lab = DiffLab::new(topology)?;
    require(&lab.tools)?;
    let (seeds, budget) = plan()?;
    let (start, mut tally) = (Instant::now(), Tally::default());
    for seed in seeds {
        if tally.seeds > 0 && start.elapsed() > budget {
            break;
        }
        try_seed(&lab, seed, mode, &mut tally).with_context(|| format!("seed {seed:#x}"))?;
        let Tally {
            seeds,
            sent,
            replayed,
            allowed,
            noise,
            defects,
            ..
        } = &tally;
        println!(
            "{}: {seeds} seeds in {:?}, last {seed:#x}; {sent} packets sent, {replayed} replayed; \
             {allowed} differences \
             by design, {noise} of noise, {} defects",
            topology.name(),
            start.elapsed(),
            defects.len()
        );
    }
    ensure!(
        tally.defects.is_empty(),
        "seeds differ; the output has a page about each:\n{}",
        tally.defects.join("\n")
    );
    let share = tally.replayed * 100 / tally.sent.max(1);
    ensure!(
        mode != "fast" || share >= LEAST_REPLAYED,
        "{share} % of the packets were replayed: {tally:?}"
    );
    Ok(())
}

/// The seeds, and the time for them.
fn plan() -> Result<(Box<dyn Iterator<Item = u64>>, Duration)> {
    if let Ok(seed) = env::var("FLANNEL_DIFF_SEED") {
        let digits = seed
            .strip_prefix("0x")
            .map(|digits| u64::from_str_radix(digits, 16));
        let seed = digits
            .unwrap_or_else(|| seed.parse())
            .context("FLANNEL_DIFF_SEED")?;
        return Ok((Box::new(std::iter::once(seed)), BUDGET));
    }
    if let Some(minutes) = number::<u64>("FLANNEL_DIFF_MINUTES")? {
        let mut random = Random::new(rand::random());
        return Ok((
            Box::new(std::iter::repeat_with(move || random.next())),
            Duration::from_secs(60 * minutes),
        ));
    }
    let mut random = Random::new(0);
    Ok((
        Box::new(
            generate::FIRST
                .into_iter()
                .chain(std::iter::repeat_with(move || random.next())),
        ),
        BUDGET,
    ))
}

fn try_seed(lab: &DiffLab, seed: u64, mode: &str, tally: &mut Tally) -> Result<()> {
    let scenario = generate::scenario(seed).with_tools(&lab.tools);
    let kernel = one_run(lab, &scenario, "kernel")?;
    let fast = one_run(lab, &scenario, mode)?;
    tally.seeds += 1;
    tally.sent += fast.sent;
    tally.replayed += fast.replayed;
    let (allowed, suspects): (Vec<_>, Vec<_>) = differences(&scenario, &kernel, &fast)
        .into_iter()
        .partition(|difference| difference.allowed.is_some());
    tally.allowed += allowed.len();
    if suspects.is_empty() {
        return Ok(());
    }
    let mut defects = suspects.clone();
    for _ in 0..CONFIRMATIONS {
        // A property that differs between two runs of one mode says nothing about the other mode.
        let again = one_run(lab, &scenario, "kernel")?;
        let noise = signatures(&differences(&scenario, &kernel, &again));
        let fast = one_run(lab, &scenario, mode)?;
        let more = signatures(&differences(&scenario, &again, &fast));
        defects.retain(|defect| {
            more.contains(&defect.signature()) && !noise.contains(&defect.signature())
        });
        if defects.is_empty() {
            break;
        }
    }
    for noise in suspects.iter().filter(|one| !defects.contains(one)) {
        tally.noise += 1;
        println!("seed {seed:#x}: not again: {noise}");
    }
    if !defects.is_empty() {
        println!("seed {seed:#x}: {} differences", defects.len());
        let listed: Vec<_> = defects
            .iter()
            .take(LISTED)
            .map(|defect| format!("seed {seed:#x}: {defect}"))
            .collect();
        println!("{}", listed.join("\n"));
        // Each kind of difference is made small once.
        let unseen = defects
            .iter()
            .find(|defect| !tally.shown.contains(&defect.aspect));
        if let Some(defect) = unseen {
            println!("{}", smallest(lab, &scenario, mode, defect)?);
            tally.shown.insert(defect.aspect);
        }
        tally.defects.extend(listed);
    }
    Ok(())
}

fn signatures(differences: &[Difference]) -> BTreeSet<Signature> {
    differences
        .iter()
        .filter(|one| one.allowed.is_none())
        .map(Difference::signature)
        .collect()
}

/// The page of a smaller scenario that shows a difference.
fn smallest(lab: &DiffLab, scenario: &Scenario, mode: &str, defect: &Difference) -> Result<String> {
    let wanted = defect.signature();
    let mut seen = vec![defect.clone()];
    let smaller = shrink(scenario, wanted.1, SHRINKS, |smaller| -> Result<bool> {
        if smaller.flows.is_empty() || wanted.1.is_some_and(|flow| smaller.flow(flow).is_none()) {
            return Ok(false);
        }
        let (kernel, fast) = (
            one_run(lab, smaller, "kernel")?,
            one_run(lab, smaller, mode)?,
        );
        let found: Vec<_> = differences(smaller, &kernel, &fast)
            .into_iter()
            .filter(|one| one.allowed.is_none())
            .collect();
        let shows = found.iter().any(|one| one.signature() == wanted);
        if shows {
            seen = found;
        }
        Ok(shows)
    })?;
    Ok(report::page(lab, &smaller, mode, &seen))
}
