//! An agent that may not do all it would.

use anyhow::Result;
use flannel_tests::{TwoNodes, cluster::VXLAN};

#[test]
fn an_agent_that_may_not_change_the_network_says_so_and_ends() -> Result<()> {
    let pair = TwoNodes::new("admin", VXLAN)?;
    let agent = pair.a.agent(pair.options()?.wrapped_by("setpriv --bounding-set=-net_admin --"))?;
    let (code, text) = agent.wait_end()?;
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("error: missing privilege CAP_NET_ADMIN (effective capabilities 0x"), "{text}");
    assert!(text.contains("grant CAP_NET_ADMIN, and CAP_BPF and CAP_PERFMON for the eBPF datapath"), "{text}");
    Ok(())
}

/// The kernel path needs CAP_NET_ADMIN alone.
#[test]
fn an_agent_that_may_not_load_programs_serves_by_the_kernel_and_says_why() -> Result<()> {
    let pair = TwoNodes::new("bpf", VXLAN)?;
    let unable = "setpriv --bounding-set=-bpf,-perfmon,-sys_admin --";
    let a = pair.a.agent(pair.options()?.wrapped_by(unable))?;
    let b = pair.b.agent(pair.options()?)?;
    a.wait_ready()?;
    b.wait_ready()?;
    a.wait_peers(1)?;
    b.wait_peers(1)?;
    let (near, far) = (pair.a.add_pod("p1")?, pair.b.add_pod("p1")?);
    near.ping(far.ip())?;
    let mode = a.status()?["mode"].clone();
    assert_eq!((&mode["effective"], &mode["wanted"]), (&"kernel".into(), &"fast".into()), "{mode}");
    assert!(mode["attach"].is_null(), "{mode}");
    let reason = mode["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("Operation not permitted"), "{mode}");
    a.wait_log(&["no eBPF datapath on this node; the kernel carries all packets"])?;
    assert_eq!(b.status()?["mode"]["effective"], "fast");
    Ok(())
}

/// What the message of a missing privilege asks for is enough where a bpf filesystem is mounted.
#[test]
fn the_privileges_the_message_names_are_enough() -> Result<()> {
    let pair = TwoNodes::new("enough", VXLAN)?;
    let named = "setpriv --bounding-set=-all,+net_admin,+bpf,+perfmon --";
    let agent = pair.a.agent(pair.options()?.wrapped_by(named))?;
    agent.wait_ready()?;
    let mode = agent.status()?["mode"].clone();
    assert_eq!((&mode["effective"], &mode["reason"]), (&"fast".into(), &serde_json::Value::Null), "{mode}");
    assert_eq!(agent.status()?["dirty"].as_array().map(Vec::len), Some(0));
    Ok(())
}
