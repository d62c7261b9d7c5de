//! Pods come and go, and their programs and entries with them.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use flannel_datapath::AttachKind;
use flannel_tests::{
    Node, Pod,
    cluster::topology::Stack,
    eventually,
    fast::{fast_pair, fast_pair_of},
    kernel::hooks::{self, Side, ifindex},
    no_agent::Talk,
};

/// The programs on a pod's veth: ingress, egress.
fn programs(pod: &Pod) -> Result<[Vec<String>; 2]> {
    let on = |side| hooks::programs(pod.node(), pod.veth(), side);
    Ok([on(Side::Ingress)?, on(Side::Egress)?])
}

/// Interface indexes in the pinned map of pods, and in the names of the pinned links.
fn known(node: &Node) -> Result<Vec<String>> {
    let dir = node.outside_path("/sys/fs/bpf/flannel/v2/links");
    let mut names: Vec<_> = std::fs::read_dir(dir)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    names.retain(|name| name.starts_with("from_pod-") || name.starts_with("to_pod-"));
    names.sort();
    Ok(names)
}

/// Attachments by TCX are pinned links, those by clsact are none.
fn links_of_a_pod() -> usize {
    if AttachKind::detect() == AttachKind::Tcx {
        2
    } else {
        0
    }
}

#[test]
fn a_new_pod_takes_part_without_a_restart_and_leaves_nothing_when_it_goes() -> Result<()> {
    let pair = fast_pair("fa-pods", &[])?;
    let pod = pair.net.a.add_pod("p2")?;
    pair.sender.wait_pod(&pod, true, true)?;
    assert_eq!(programs(&pod)?, [["from_pod"], ["to_pod"]]);
    let before = pair.sender.replayed()?;
    let mut talk = Talk::open(&pod, &pair.far, (pair.far.ip(), 0).into(), None)?;
    eventually(
        "replayed packets of the new pod",
        Duration::from_secs(10),
        || {
            talk.exchange(100)?;
            let replayed = pair.sender.replayed()? - before;
            ensure!(replayed > 100, "{replayed}");
            Ok(())
        },
    )?;
    let index = ifindex(&pair.net.a, pod.veth())?;
    let links = known(&pair.net.a)?
        .iter()
        .filter(|name| name.ends_with(&format!("-{index}")))
        .count();
    assert_eq!(links, links_of_a_pod());
    pod.remove()?;
    eventually("nothing of the pod", Duration::from_secs(5), || {
        let dump = pair
            .sender
            .cli_json(&["maps", "dump", "pods", "-o", "json"])?;
        let rows = dump["pods"].as_array().map_or(0, Vec::len);
        let links = known(&pair.net.a)?;
        ensure!(
            rows == 1
                && !links
                    .iter()
                    .any(|name| name.ends_with(&format!("-{index}"))),
            "{dump} {links:?}"
        );
        Ok(())
    })
}

/// The pod's own address is what frames for it carry; when it changes, the entry does.
#[test]
fn the_address_of_a_pod_s_own_end_is_followed() -> Result<()> {
    let pair = fast_pair("fa-mac", &[])?;
    let mac = "02:00:00:00:0a:0b";
    pair.near.sh(&format!("ip link set eth0 address {mac}"))?;
    eventually("the new address", Duration::from_secs(10), || {
        let row = pair.sender.pod_status(&pair.near)?;
        ensure!(row["mac"] == mac, "{row}");
        Ok(())
    })?;
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 100)
}

/// A pod is deleted and recreated with the same address while packets flow to it: they reach the
/// new pod, by the new veth.
#[test]
fn a_pod_that_comes_back_with_its_address_is_reached_at_once() -> Result<()> {
    let mut pair = fast_pair_of("fa-again", Stack::Dual, &[])?;
    for _ in 0..3 {
        let run = pair.stream(2_000, Duration::from_mins(1))?;
        let start = pair.receiver.replayed()?;
        eventually("replayed packets", Duration::from_secs(10), || {
            let replayed = pair.receiver.replayed()? - start;
            ensure!(replayed > 1_000, "{replayed}");
            Ok(())
        })?;
        pair.far = pair.far.clone().again()?;
        for at in pair.far.addresses() {
            pair.near.wait_ping(*at)?;
            let mut talk = Talk::open(&pair.near, &pair.far, (*at, 0).into(), None)?;
            pair.talk_until_replayed(&mut talk, 100)?;
        }
        drop(run.stop());
    }
    Ok(())
}

/// Commands of ip, in one process.
fn batch(node: &Node, commands: impl Iterator<Item = String>) -> Result<()> {
    let script = commands.collect::<Vec<_>>().join("\n");
    node.command(["ip", "-batch", "-"])
        .input(&script)
        .limit(Duration::from_secs(40))
        .run()
        .map(drop)
}

/// As many as a full node has, made as fast as they can be: the peers of all lie in one namespace.
#[test]
fn a_full_node_s_pods_all_take_part() -> Result<()> {
    const PODS: usize = 250;
    let pair = fast_pair("fa-many", &[])?;
    let (node, inside) = (&pair.net.a, pair.lab.node("inside")?);
    let pid = inside.pid();
    let add = |number| {
        let ends = format!("many{number} type veth peer name eth{number} netns {pid}");
        [
            format!("link add {ends}"),
            format!("link set many{number} master cni0 up"),
        ]
    };
    batch(node, (0..PODS).flat_map(add))?;
    let start = Instant::now();
    eventually("250 pods", Duration::from_secs(20), || {
        let status = pair.sender.status()?;
        let pods = status["fast"]["pods"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let taking_part = pods
            .iter()
            .filter(|pod| pod["sends"] == true && pod["receives"] == true)
            .count();
        let links = known(node)?.len();
        ensure!(
            taking_part == PODS + 1 && links == links_of_a_pod() * (PODS + 1),
            "{taking_part} of {}, {links} links",
            pods.len()
        );
        Ok(())
    })?;
    println!(
        "all take part {:?} after the last was made",
        start.elapsed()
    );
    batch(
        node,
        (0..PODS).map(|number| format!("link delete many{number}")),
    )?;
    eventually("their links to go", Duration::from_secs(20), || {
        let links = known(node)?.len();
        ensure!(links == links_of_a_pod(), "{links}");
        Ok(())
    })
}
