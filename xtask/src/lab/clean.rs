//! `clean-lab`: takes down what a dead demo or test left, and labs kept on purpose.
//!
//! Only processes in a lab's record are ended, each by pid and start time. A lab whose owner lives
//! is left alone unless `--all` is given.

use std::fs;

use anyhow::{Context as _, ensure};

use super::{Condition, Lab, directories, mounts};
use crate::{cli::CleanLabOptions, workspace};

/// Takes down the labs the options allow.
///
/// # Errors
/// A lab could not be removed. The others are removed all the same.
pub(crate) fn run(options: &CleanLabOptions) -> anyhow::Result<()> {
    ensure!(
        options.dry_run || workspace::is_root(),
        "labs belong to root: run clean-lab as root, or with --dry-run"
    );
    let labs = super::all();
    if labs.is_empty() {
        println!("clean-lab: no labs");
    }
    let mut failed = 0_usize;
    for lab in &labs {
        if lab.condition() == Condition::InUse && !options.all {
            println!(
                "clean-lab: {} is in use (--all takes it down too)",
                lab.dir.display()
            );
        } else if options.dry_run {
            announce(lab)?;
        } else if let Err(error) = remove(lab) {
            eprintln!("clean-lab: {error:#}");
            failed += 1;
        }
    }
    ensure!(
        failed == 0,
        "{failed} of {} labs could not be removed",
        labs.len()
    );
    Ok(())
}

fn announce(lab: &Lab) -> anyhow::Result<()> {
    println!(
        "clean-lab: would remove {} ({:?})",
        lab.dir.display(),
        lab.condition()
    );
    for (process, what) in lab
        .record
        .members
        .iter()
        .filter(|(process, _)| process.is_alive())
    {
        println!("clean-lab: would end {process} ({what})");
    }
    for point in mounts::below(&lab.dir)? {
        println!("clean-lab: would unmount {}", point.display());
    }
    for dir in &lab.directories {
        println!("clean-lab: would remove {}", dir.display());
    }
    Ok(())
}

/// Removes a lab. The owner is ended first, so that it does not restart the members ended after it.
/// The directory is removed last, and only after all mounts in it are gone: a mount may lead to
/// files that are not the lab's.
fn remove(lab: &Lab) -> anyhow::Result<()> {
    println!(
        "clean-lab: removing {} ({:?})",
        lab.dir.display(),
        lab.condition()
    );
    if let Some(owner) = lab.record.owner {
        owner.end()?;
    }
    for (process, what) in &lab.record.members {
        process
            .end()
            .with_context(|| format!("cannot end {what}"))?;
    }
    for point in mounts::below(&lab.dir)? {
        mounts::detach(&point)?;
    }
    ensure!(
        mounts::below(&lab.dir)?.is_empty(),
        "something is still mounted below {}",
        lab.dir.display()
    );
    for dir in &lab.directories {
        directories::remove(dir)?;
    }
    match fs::remove_dir_all(&lab.dir) {
        // Its owner, on the way out, was faster.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        result => result.with_context(|| format!("cannot remove {}", lab.dir.display())),
    }
}
