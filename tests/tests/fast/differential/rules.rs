//! A scenario's rules on the nodes, and what they counted.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use flannel_tests::{
    differential::{
        render::{self, iptables, nft},
        scenario::{Scenario, Side, Tool, Via},
    },
    fast::Family,
    service_rules::Service,
};
use serde_json::Value;

use super::lab::DiffLab;

/// The command that reads rules.
pub(crate) fn restore(tool: Tool, family: Family) -> Vec<String> {
    let name = command(tool, family, "restore");
    match tool {
        Tool::Nft => vec!["nft".to_owned(), "-f".to_owned(), "-".to_owned()],
        Tool::IptablesNft => vec![name, "--noflush".to_owned()],
        Tool::IptablesLegacy => vec![
            name,
            "-w".to_owned(),
            "5".to_owned(),
            "--noflush".to_owned(),
        ],
    }
}

fn command(tool: Tool, family: Family, verb: &str) -> String {
    let variant = if tool == Tool::IptablesNft {
        "nft"
    } else {
        "legacy"
    };
    let family = if family == Family::V4 {
        "iptables"
    } else {
        "ip6tables"
    };
    format!("{family}-{variant}-{verb}")
}

/// Every text of a scenario with the node and the command that reads it.
pub(crate) fn texts(lab: &DiffLab, scenario: &Scenario) -> Vec<(Side, Vec<String>, String)> {
    let mut texts = Vec::new();
    for (side, tool, family) in used(scenario) {
        let text = match tool {
            Tool::Nft => nft::install(scenario, &lab.addresses, side, family),
            _ => iptables::install(scenario, &lab.addresses, side, tool, family),
        };
        texts.push((side, restore(tool, family), text));
    }
    texts
}

/// The nodes, tools and families with rules.
fn used(scenario: &Scenario) -> Vec<(Side, Tool, Family)> {
    let mut used: Vec<(Side, Tool, Family)> = Vec::new();
    for rule in &scenario.rules {
        let place = (rule.side, rule.tool, rule.family);
        if !used.contains(&place) {
            used.push(place);
        }
    }
    used
}

/// Rules and Services, with counters at zero.
pub(crate) fn install(lab: &DiffLab, scenario: &Scenario) -> Result<()> {
    for (side, command, text) in texts(lab, scenario) {
        lab.node(side)
            .command(command)
            .input(&text)
            .run()
            .with_context(|| text.clone())?;
    }
    let services: Vec<Service> = scenario
        .flows
        .iter()
        .filter(|flow| flow.via == Via::Service)
        .map(|flow| Service::new(lab.service(flow), flow.protocol(), [lab.server(flow)]))
        .collect();
    set_services(lab, &services)
}

fn set_services(lab: &DiffLab, services: &[Service]) -> Result<()> {
    for (number, family) in Family::ALL.into_iter().enumerate() {
        let of_family: Vec<Service> = services
            .iter()
            .filter(|service| service.at.is_ipv4() == (family == Family::V4))
            .cloned()
            .collect();
        lab.services
            .iter()
            .try_for_each(|node| node[number].set(&of_family))?;
    }
    Ok(())
}

/// Takes the rules away again.
pub(crate) fn remove(lab: &DiffLab, scenario: &Scenario) -> Result<()> {
    for (side, tool, family) in used(scenario) {
        let text = match tool {
            Tool::Nft => nft::remove(family),
            _ => iptables::remove(scenario, side, tool, family),
        };
        lab.node(side)
            .command(restore(tool, family))
            .input(&text)
            .run()
            .with_context(|| text.clone())?;
    }
    Ok(())
}

/// Packets each rule counted.
pub(crate) fn counters(lab: &DiffLab, scenario: &Scenario) -> Result<BTreeMap<u16, u64>> {
    let mut counters = BTreeMap::new();
    for (side, tool, family) in used(scenario) {
        let counted = if tool == Tool::Nft {
            let table = nft::table(family);
            let words = ["nft", "-j", "list", "table"]
                .into_iter()
                .chain(table.split(' '))
                .map(str::to_owned);
            let listed: Value = serde_json::from_str(&lab.node(side).run(words)?.stdout)?;
            of_nft(&listed)
        } else {
            of_iptables(
                &lab.node(side)
                    .run([command(tool, family, "save"), "-c".to_owned()])?
                    .stdout,
            )
        };
        for (rule, packets) in counted {
            *counters.entry(rule).or_default() += packets;
        }
    }
    Ok(counters)
}

fn of_nft(listed: &Value) -> Vec<(u16, u64)> {
    let rules = listed["nftables"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|item| &item["rule"]);
    let counted = rules.filter_map(|rule| {
        let number = render::rule_number(rule["comment"].as_str()?)?;
        let counter = rule["expr"]
            .as_array()?
            .iter()
            .find_map(|expr| expr["counter"]["packets"].as_u64())?;
        Some((number, counter))
    });
    counted.collect()
}

/// `[7:420] -A DIFF-FORWARD ... --comment diff-3 ...`
fn of_iptables(saved: &str) -> Vec<(u16, u64)> {
    let counted = saved.lines().filter_map(|line| {
        let packets = line.strip_prefix('[')?.split(':').next()?.parse().ok()?;
        let comment = line.split("--comment ").nth(1)?.split(' ').next()?;
        Some((render::rule_number(comment.trim_matches('"'))?, packets))
    });
    counted.collect()
}
