//! Speed between pods of two nodes in each mode, next to that of the host network and of stock
//! flannel.
//!
//! Unless asked otherwise, all processes of the load run on one CPU. Modes follow one another
//! within a round. The machine may be shared, so the results are medians and ratios, and no
//! absolute figure is judged. The bench checks that a mode really took the packets, and leaves out
//! the row if it did not.

mod chart;
mod commands;
mod cpus;
mod options;
mod plan;
mod programs;
mod proof;
mod report;
mod rounds;
mod rules;
mod scale;
mod site;
mod table;
mod worker;

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};

pub use self::options::Options;
use self::{
    options::{Other, Output},
    plan::Profile,
    report::Rows,
};

/// Runs a bench, or one of its workers.
pub fn run(options: &Options) -> Result<()> {
    match &options.other {
        Some(Other::Scale(scale)) => scale.run(),
        Some(Other::Programs(programs)) => programs.run(),
        Some(Other::Commands(commands)) => commands.run(),
        Some(Other::Show { rows, svg }) => show(rows, svg.as_deref()),
        Some(Other::Server(server)) => server.run(),
        Some(Other::Client(client)) => client.run(),
        None => measure(options),
    }
}

fn measure(options: &Options) -> Result<()> {
    let plan = options.plan()?;
    let (rows, refused) = rounds::run(&plan)?;
    for profile in &plan.profiles {
        print!("{}", table::terminal(&rows, *profile));
    }
    options.output.write(&rows)?;
    ensure!(
        refused.is_empty(),
        "rows left out, because the packets did not go the way of their mode:\n{}",
        refused.join("\n")
    );
    Ok(())
}

impl Output {
    fn write(&self, rows: &Rows) -> Result<()> {
        if let Some(file) = &self.json {
            write(file, &(serde_json::to_string_pretty(rows)? + "\n"))?;
        }
        self.svg
            .as_deref()
            .map_or(Ok(()), |file| write(file, &chart::svg(rows)))
    }
}

fn show(file: &Path, svg: Option<&Path>) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let rows: Rows = serde_json::from_str(&text)
        .with_context(|| format!("{}: no rows of a bench", file.display()))?;
    for profile in Profile::ALL
        .into_iter()
        .filter(|profile| rows.has(|row| row.profile == *profile))
    {
        println!("{}", table::markdown(&rows, profile));
    }
    svg.map_or(Ok(()), |svg| write(svg, &chart::svg(&rows)))
}

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| file.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A new record: `cargo xtask bench --json FILE --svg FILE` with benchmarks.json and
    /// benchmarks.svg of docs/reference, and the tables that
    /// `cargo xtask bench show docs/reference/benchmarks.json` prints into benchmarks.md there.
    #[test]
    fn documents_show_the_recorded_run() -> Result<()> {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference");
        let [json, svg, page] = ["benchmarks.json", "benchmarks.svg", "benchmarks.md"]
            .map(|name| fs::read_to_string(docs.join(name)).with_context(|| name.to_owned()));
        let rows: Rows = serde_json::from_str(&json?)?;
        assert!(chart::svg(&rows) == svg?, "the chart is of other rows");
        let page = page?;
        for profile in Profile::ALL {
            assert!(
                page.contains(&table::markdown(&rows, profile)),
                "the table of {profile} is of other rows"
            );
        }
        Ok(())
    }
}
