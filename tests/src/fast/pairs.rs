//! The flows that the programs learned, compared with conntrack's own table: each as the packet
//! that enters and the packet that leaves.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
};

use anyhow::{Context as _, Result, ensure};
use flannel_common::flow::flow_key::{Address, FlowKey};
use flannel_datapath::Maps;

use crate::{
    Host,
    kernel::conntrack::{self, Tuple},
    load::rr::Protocol,
};

/// Fails unless conntrack translates every flow the way it was learned; how many there are.
pub fn are_right(node: &Host, maps: &Maps) -> Result<usize> {
    // Flows first: conntrack knows what they were learned from.
    let mut pairs = Vec::new();
    for entry in maps.flows.entries() {
        let (key, flow) = entry?;
        pairs.push((tuple(&key)?, tuple(&flow.action.out)?));
    }
    for entry in maps.flows6.entries() {
        let (key, flow) = entry?;
        pairs.push((tuple(&key)?, tuple(&flow.action.out)?));
    }
    let known = conntrack::translations(&conntrack::table(node)?);
    let wrong: Vec<_> = pairs
        .iter()
        .filter_map(|(key, out)| differs(&known, key, out))
        .collect();
    let some = &wrong[..wrong.len().min(5)];
    ensure!(
        wrong.is_empty(),
        "{}: {} of {} flows, such as {some:#?}",
        node.name(),
        wrong.len(),
        pairs.len()
    );
    Ok(pairs.len())
}

fn differs(known: &HashMap<Tuple, Tuple>, key: &Tuple, out: &Tuple) -> Option<String> {
    match known.get(key) {
        Some(right) if right == out => None,
        right => Some(format!("{key:?} was learned as {out:?} and is {right:?}")),
    }
}

fn tuple<A: Address>(end: &FlowKey<A>) -> Result<Tuple> {
    let protocol = match end.protocol {
        6 => Protocol::Tcp,
        17 => Protocol::Udp,
        other => anyhow::bail!("a flow of protocol {other}"),
    };
    let [from, to] = end.port_numbers();
    let source = SocketAddr::new(address(&end.source)?, from);
    Ok(Tuple {
        protocol,
        source,
        destination: SocketAddr::new(address(&end.destination)?, to),
    })
}

fn address<A: Address>(address: &A) -> Result<IpAddr> {
    let bytes: Vec<u8> = address
        .words()
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    if let Ok(v4) = <[u8; 4]>::try_from(bytes.as_slice()) {
        return Ok(v4.into());
    }
    Ok(<[u8; 16]>::try_from(bytes.as_slice())
        .context("an address of neither family")?
        .into())
}
