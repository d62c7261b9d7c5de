//! A failing scenario as a person repeats it: rules as scripts, traffic in words, and the line that
//! runs it again.

use std::fmt::Write as _;

use flannel_tests::differential::{compare::Difference, scenario::Scenario};

use super::{lab::DiffLab, rules};

/// The page of a scenario.
pub(crate) fn page(
    lab: &DiffLab,
    scenario: &Scenario,
    mode: &str,
    differences: &[Difference],
) -> String {
    let mut page = String::new();
    write_page(&mut page, lab, scenario, mode, differences).expect("memory");
    page
}

fn write_page(
    page: &mut String,
    lab: &DiffLab,
    scenario: &Scenario,
    mode: &str,
    differences: &[Difference],
) -> std::fmt::Result {
    writeln!(
        page,
        "---- seed {:#x}, {}, mode {mode} ----",
        scenario.seed,
        lab.topology.name()
    )?;
    if scenario.surroundings.filters {
        writeln!(
            page,
            "# filters on the ingress of eth0 mirror what comes in"
        )?;
    }
    if scenario.surroundings.wire {
        writeln!(page, "# eth0 without segmentation offloads")?;
    }
    for (side, command, text) in rules::texts(lab, scenario) {
        let lines: Vec<_> = text.lines().collect();
        writeln!(
            page,
            "# on node {side:?}:\n{} <<'END'\n{}\nEND",
            command.join(" "),
            lines.join("\n")
        )?;
    }
    for flow in &scenario.flows {
        writeln!(
            page,
            "# {flow}, sent to {}",
            lab.destination(scenario, flow)
        )?;
    }
    let phases = scenario.phases;
    write!(
        page,
        "# {} equal packets each way, {} varying",
        phases.warm_up, phases.varying
    )?;
    match phases.after_silence {
        Some(packets) => writeln!(page, ", 2.7 s of silence, {packets} varying")?,
        None => writeln!(page)?,
    }
    // Last, because of a long output the end is shown.
    for difference in differences {
        writeln!(page, "# {difference}")?;
    }
    writeln!(
        page,
        "# again: FLANNEL_DIFF_SEED={:#x} cargo xtask test --e2e -- {}",
        scenario.seed,
        lab.topology.test(mode)
    )
}
