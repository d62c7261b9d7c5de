//! The kernel's floor: the objects of all peers, made by iproute2 from a file.

use std::{
    fmt::Write as _,
    fs,
    time::{Duration, Instant},
};

use anyhow::Result;

use super::{node::Underlay, peers::NumberedPeer};
use crate::{Lab, Node};

/// The form of the routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Each with its gateway.
    Plain,
    /// Each by a nexthop object.
    Objects,
}

/// Seconds that a fresh namespace takes for neighbours, FDB entries, routes and, with
/// [`Shape::Objects`], nexthop objects.
pub(super) fn floor(lab: &Lab, peers: u32, shape: Shape) -> Result<f64> {
    let node = lab.node("floor")?;
    Underlay::of(&node)?;
    node.sh(
        "ip link add flannel.1 type vxlan id 1 dstport 8472 local 192.168.1.11 dev eth0 nolearning",
    )?;
    node.sh("ip link set flannel.1 up")?;
    write(&node, "bridge", &fdb(peers))?;
    write(&node, "ip", &entries(peers, shape))?;
    let start = Instant::now();
    for program in ["bridge", "ip"] {
        node.command([program, "-batch", &file(program)])
            .limit(Duration::from_mins(2))
            .run()?;
    }
    let seconds = start.elapsed().as_secs_f64();
    node.end()?;
    Ok(seconds)
}

fn file(program: &str) -> String {
    format!("/run/{program}.batch")
}

fn write(node: &Node, program: &str, text: &str) -> Result<()> {
    Ok(fs::write(node.outside_path(file(program)), text)?)
}

fn fdb(peers: u32) -> String {
    let mut text = String::new();
    for peer in NumberedPeer::first(peers) {
        let line = format_args!(
            "fdb replace {} dst {} self permanent dev flannel.1",
            peer.mac(),
            peer.public_ip()
        );
        writeln!(text, "{line}").expect("text grows");
    }
    text
}

fn entries(peers: u32, shape: Shape) -> String {
    let each = |line: &dyn Fn(NumberedPeer) -> String| {
        NumberedPeer::first(peers).map(line).collect::<String>()
    };
    let neighbours = each(&|peer| {
        format!(
            "neigh replace {} lladdr {} nud permanent dev flannel.1\n",
            peer.base(),
            peer.mac()
        )
    });
    let routes = match shape {
        Shape::Plain => each(&|peer| {
            format!(
                "route replace {0}/24 via {0} dev flannel.1 onlink\n",
                peer.base()
            )
        }),
        Shape::Objects => {
            let id = |peer: NumberedPeer| u32::from(peer.base());
            let objects = |peer: NumberedPeer| {
                format!(
                    "nexthop replace id {} via {} dev flannel.1 onlink proto 191\n",
                    id(peer),
                    peer.base()
                )
            };
            let routes = |peer: NumberedPeer| {
                format!("route replace {}/24 nhid {}\n", peer.base(), id(peer))
            };
            each(&objects) + &each(&routes)
        }
    };
    neighbours + &routes
}
