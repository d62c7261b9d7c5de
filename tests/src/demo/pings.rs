//! Reachability.

use anyhow::{Context as _, Result};

use super::{Cluster, page::Page, table::table};
use crate::Pod;

/// Every pod pings every other.
pub(super) fn matrix(page: &mut Page, cluster: &Cluster) -> Result<()> {
    let mut rows = vec![
        [String::new()]
            .into_iter()
            .chain(cluster.pods.iter().map(name))
            .collect::<Vec<_>>(),
    ];
    for from in &cluster.pods {
        let mut cells = vec![name(from)];
        for to in &cluster.pods {
            cells.push(if from.ip() == to.ip() {
                ".".to_owned()
            } else {
                cell(page, from, to)?
            });
        }
        rows.push(cells);
    }
    page.line(&table(&rows));
    page.proved("all pods reach all others, on one segment and through the router");
    Ok(())
}

fn cell(page: &mut Page, from: &Pod, to: &Pod) -> Result<String> {
    match from.ping(to.ip()) {
        Ok(output) => {
            shortest(&output.stdout).with_context(|| format!("ping printed:\n{}", output.stdout))
        }
        Err(error) => {
            page.expect(false, &format!("{error:#}"));
            Ok("lost".to_owned())
        }
    }
}

/// From `rtt min/avg/max/mdev = 0.020/0.028/0.036/0.006 ms`.
fn shortest(text: &str) -> Option<String> {
    let (_, times) = text.split_once("min/avg/max/mdev = ")?;
    Some(times.split('/').next()?.to_owned())
}

fn name(pod: &Pod) -> String {
    pod.name().to_owned()
}
