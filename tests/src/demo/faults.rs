//! Acts of others against a node: they remove its routes, forge tunnel packets, and drop packets by
//! a rule.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::{Cluster, page::Page};
use crate::eventually;

const LIMIT: Duration = Duration::from_secs(20);

/// The address from which a host without a lease sends.
const STRANGER: &str = "10.244.250.2";

/// The table of the rule that drops.
const TABLE: &str = "demo";

/// A route and the tunnel device of node a are removed: the agent brings both back.
pub(super) fn repaired(page: &mut Page, cluster: &Cluster) -> Result<()> {
    let (node, far) = (&cluster.net.a, cluster.agents[2].status()?);
    let subnet = far["lease"]["subnet"]
        .as_str()
        .context("the subnet of c")?
        .to_owned();
    for removal in [
        format!("ip route delete {subnet}"),
        "ip link delete flannel.1".to_owned(),
    ] {
        node.sh(&removal)?;
        let start = Instant::now();
        eventually("the route", LIMIT, || {
            let routes = node.sh(&format!("ip route show {subnet}"))?.stdout;
            ensure!(routes.contains("flannel.1"), "{routes:?}");
            Ok(())
        })?;
        page.line(&format!(
            "a$ {removal:<34} repaired after {:.2} s",
            start.elapsed().as_secs_f64()
        ));
    }
    eventually("pods that reach each other", LIMIT, || {
        cluster.near().ping(cluster.far().ip()).map(drop)
    })?;
    page.proved("the agent watches the kernel, and puts back what others remove");
    Ok(())
}

/// The router has no lease, and sends packets in VXLAN to a pod of node a.
pub(super) fn refused(page: &mut Page, cluster: &Cluster) -> Result<()> {
    let (router, agent) = (&cluster.net.r, &cluster.agents[0]);
    let mac = agent.status()?["device"]["mac"]
        .as_str()
        .context("the address of flannel.1")?
        .to_owned();
    let pod = cluster.near().ip();
    for command in [
        "ip link add stranger type vxlan id 1 dev br1 dstport 8472 nolearning".to_owned(),
        format!("ip address add {STRANGER}/32 dev stranger"),
        "ip link set stranger up".to_owned(),
        format!("bridge fdb append {mac} dst 192.168.1.11 dev stranger"),
        format!("ip neighbour add {pod} lladdr {mac} dev stranger"),
        format!("ip route add {pod}/32 dev stranger src {STRANGER}"),
    ] {
        router.sh(&command)?;
    }
    let count = || agent.counted("from_underlay", "refused_vtep");
    let before = count()?;
    let answers = router
        .command(format!("ping -c 3 -i 0.2 -W 1 {pod}").split(' '))
        .any_code()
        .run()?;
    let refused = count()? - before;
    router.sh("ip link delete stranger")?;
    page.line(&format!(
        "r$ ping {pod}, in VXLAN from a host without a lease: {refused} of 3 packets refused"
    ));
    page.line(&agent.cli(&["guard", "show"])?.stdout);
    page.expect(refused == 3, &format!("{refused} packets were refused"));
    page.expect(answers.stdout.contains(" 0 received"), &answers.stdout);
    page.proved("tunnel packets of hosts without a lease do not reach pods");
    Ok(())
}

/// A rule of a network policy drops a pod's packets: the trace names it.
pub(super) fn explained(page: &mut Page, cluster: &Cluster) -> Result<()> {
    let (node, agent) = (&cluster.net.a, &cluster.agents[0]);
    let [from, to] = [cluster.near().ip(), cluster.far().ip()].map(|ip| ip.to_string());
    node.nft(&format!(
        "table ip {TABLE} {{
            chain isolate {{
                type filter hook forward priority 0
                ip daddr {to} icmp type echo-request drop
            }}
        }}
        "
    ))?;
    let pings = cluster.near().spawn("pings", ["ping", "-i", "0.2", &to])?;
    let output = agent
        .cli_any(&["explain", &from, &to, "--proto=icmp", "--trace=2"])?
        .stdout;
    pings.kill9()?;
    node.nft(&format!("delete table ip {TABLE}"))?;
    page.line(&format!(
        "a$ flannel-agent explain {from} {to} --proto=icmp --trace=2"
    ));
    let is_of_trace = |line: &&str| line.contains("trace") || line.contains("drop");
    for line in output.lines().filter(is_of_trace) {
        page.line(line.trim_end());
    }
    page.expect(output.contains("dropped by"), &output);
    page.proved("the firewall rule that drops a flow is named, with its handle");
    Ok(())
}
