//! The privileges of an agent: no more than its options need, under the shipped profile; and the
//! messages of an agent that has fewer.

use std::{collections::BTreeSet, fs};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Agent, AgentOptions, Confinement, TwoNodes, cluster::VXLAN, confined::Profile, not_run,
};
use serde_json::Value;

/// Bits of linux/capability.h.
const DAC_OVERRIDE: u32 = 1;
const NET_BIND_SERVICE: u32 = 10;
const NET_ADMIN: u32 = 12;
const NET_RAW: u32 = 13;
const PERFMON: u32 = 38;
const BPF: u32 = 39;

fn set(bits: impl IntoIterator<Item = u32>) -> u64 {
    bits.into_iter().fold(0, |set, bit| set | 1 << bit)
}

/// A line of `/proc/<pid>/task/<thread>/status`, of every thread.
fn of_threads(agent: &Agent, name: &str) -> Result<BTreeSet<String>> {
    let mut values = BTreeSet::new();
    for thread in fs::read_dir(format!("/proc/{}/task", agent.child().pid()))? {
        let status = fs::read_to_string(thread?.path().join("status"))?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        values.insert(line.context("no such line")?.trim().to_owned());
    }
    Ok(values)
}

/// Returns the capabilities that all threads have in their effective, permitted and bounding sets.
/// Fails unless these are equal and the inheritable and ambient sets are empty.
fn capabilities(agent: &Agent) -> Result<u64> {
    let mut sets = BTreeSet::new();
    for name in ["CapEff", "CapPrm", "CapBnd"] {
        sets.extend(of_threads(agent, name)?);
    }
    ensure!(sets.len() == 1, "one set for all: {sets:?}");
    for name in ["CapInh", "CapAmb"] {
        ensure!(
            of_threads(agent, name)? == BTreeSet::from([format!("{:016x}", 0)]),
            "{name}"
        );
    }
    Ok(u64::from_str_radix(
        &sets.pop_first().context("a set")?,
        16,
    )?)
}

fn mode_of(agent: &Agent) -> Result<Value> {
    Ok(agent.status()?["mode"].clone())
}

/// Of the manifest: what all agents of these tests are confined by.
#[test]
fn agents_of_the_lab_are_confined_as_in_the_cluster() -> Result<()> {
    let pair = TwoNodes::new("lab", VXLAN)?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    let held = capabilities(&agent)?;
    ensure!(
        held & !set([NET_ADMIN, NET_RAW, BPF, PERFMON]) == 0,
        "{held:#x}"
    );
    ensure!(of_threads(&agent, "Seccomp")? == BTreeSet::from(["2".to_owned()]));
    let mounts = fs::read_to_string(format!("/proc/{}/mounts", agent.child().pid()))?;
    let root = mounts
        .lines()
        .find(|line| line.split(' ').nth(1) == Some("/"))
        .context("a root")?;
    ensure!(
        root.split(' ')
            .nth(3)
            .is_some_and(|options| options.split(',').any(|option| option == "ro")),
        "{root}"
    );
    let privileges = agent.status()?["privileges"].clone();
    ensure!(
        privileges["no_new_privileges"] == true && privileges["seccomp"] == true,
        "{privileges}"
    );
    Ok(())
}

/// And mounts the bpf filesystem first, which it could not do afterwards.
#[test]
fn an_agent_of_root_keeps_what_its_options_need() -> Result<()> {
    let pair = TwoNodes::new("root", VXLAN)?;
    let options = || Ok::<_, anyhow::Error>(pair.options()?.confined_by(None));
    pair.a.sh("umount /sys/fs/bpf")?;
    let agent = pair.a.ready_agent(options()?.flag("--healthz-port=80"))?;
    // The tests' set-up installs Debian's iptables, which has both variants.
    let expected = set([NET_BIND_SERVICE, NET_ADMIN, NET_RAW, BPF, PERFMON]);
    ensure!(
        capabilities(&agent)? == expected,
        "{:#x} instead of {expected:#x}",
        capabilities(&agent)?
    );
    ensure!(of_threads(&agent, "NoNewPrivs")? == BTreeSet::from(["1".to_owned()]));
    let threads = fs::read_dir(format!("/proc/{}/task", agent.child().pid()))?.count();
    ensure!(threads > 1, "the thread for health checks is one of them");
    let status = agent.status()?;
    ensure!(status["mode"]["effective"] == "fast", "{}", status["mode"]);
    let reported = status["privileges"]["capabilities"]
        .as_array()
        .context("a list")?;
    let names = [
        "CAP_NET_BIND_SERVICE",
        "CAP_NET_ADMIN",
        "CAP_BPF",
        "CAP_PERFMON",
    ]
    .map(Value::from);
    ensure!(
        names.iter().all(|name| reported.contains(name)),
        "{reported:?}"
    );
    ensure!(
        agent
            .cli_any(&["status"])?
            .stdout
            .contains("; never more; any system call")
    );
    agent.sigterm_and_wait()?;
    let all = pair
        .a
        .ready_agent(options()?.flag("--keep-capabilities=true"))?;
    let held = capabilities(&all)?;
    ensure!(
        held & !expected != 0 && held & (1 << DAC_OVERRIDE) != 0,
        "kept: {held:#x}"
    );
    Ok(())
}

#[test]
fn an_agent_keeps_the_right_to_files_of_others_only_where_it_has_to() -> Result<()> {
    let pair = TwoNodes::new("files", VXLAN)?;
    pair.a.sh("install -d -o 4711 -m 700 /run/theirs")?;
    let theirs = |options: AgentOptions| AgentOptions {
        state_dir: "/run/theirs".to_owned(),
        ..options
    };
    let agent = pair
        .a
        .ready_agent(theirs(pair.options()?.confined_by(None)))?;
    ensure!(capabilities(&agent)? & (1 << DAC_OVERRIDE) != 0);
    agent.sigterm_and_wait()?;
    let unable = pair.a.agent(theirs(pair.options()?))?;
    let (code, text) = unable.wait_end()?;
    ensure!(
        code == 1 && text.contains("CAP_DAC_OVERRIDE is missing"),
        "{text}"
    );
    ensure!(
        text.contains("cannot use the state directory /run/theirs"),
        "{text}"
    );
    Ok(())
}

#[test]
fn an_agent_that_may_not_change_the_network_says_so_and_ends() -> Result<()> {
    let pair = TwoNodes::new("admin", VXLAN)?;
    let agent = pair.a.agent(
        pair.options()?
            .confined_by(Confinement::of_the_manifest()?.without("net_admin")),
    )?;
    let (code, text) = agent.wait_end()?;
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("error: missing privilege CAP_NET_ADMIN (effective capabilities 0x"),
        "{text}"
    );
    assert!(
        text.contains("grant CAP_NET_ADMIN, and CAP_BPF and CAP_PERFMON for the eBPF datapath"),
        "{text}"
    );
    Ok(())
}

/// The kernel path needs only CAP_NET_ADMIN.
#[test]
fn an_agent_that_may_not_load_programs_serves_by_the_kernel_and_says_why() -> Result<()> {
    let pair = TwoNodes::new("bpf", VXLAN)?;
    let unable = Confinement::of_the_manifest()?
        .without("bpf")
        .without("perfmon");
    let a = pair.a.agent(pair.options()?.confined_by(unable))?;
    let b = pair.b.agent(pair.options()?)?;
    a.wait_ready()?;
    b.wait_ready()?;
    a.wait_peers(1)?;
    b.wait_peers(1)?;
    let (near, far) = (pair.a.add_pod("p1")?, pair.b.add_pod("p1")?);
    near.ping(far.ip())?;
    let mode = mode_of(&a)?;
    assert_eq!(
        (&mode["effective"], &mode["wanted"]),
        (&"kernel".into(), &"fast".into()),
        "{mode}"
    );
    assert!(mode["attach"].is_null(), "{mode}");
    let reason = mode["reason"].as_str().unwrap_or_default();
    assert!(
        reason.contains("Operation not permitted (os error 1) (CAP_BPF is missing, "),
        "{mode}"
    );
    assert!(reason.contains("; CAP_PERFMON is missing, "), "{mode}");
    a.wait_log(&["no eBPF datapath on this node; the kernel carries all packets"])?;
    assert_eq!(mode_of(&b)?["effective"], "fast");
    Ok(())
}

/// The privileges that the message of a missing privilege asks for are enough where a bpf
/// filesystem is mounted.
#[test]
fn the_privileges_the_message_names_are_enough() -> Result<()> {
    let pair = TwoNodes::new("enough", VXLAN)?;
    let agent = pair.a.ready_agent(
        pair.options()?
            .confined_by(Confinement::of_the_manifest()?.without("net_raw")),
    )?;
    assert_eq!(capabilities(&agent)?, set([NET_ADMIN, BPF, PERFMON]));
    let mode = mode_of(&agent)?;
    assert_eq!(
        (&mode["effective"], &mode["reason"]),
        (&"fast".into(), &Value::Null),
        "{mode}"
    );
    assert_eq!(agent.status()?["dirty"].as_array().map(Vec::len), Some(0));
    Ok(())
}

/// Switching off the randomisation of addresses needs no privilege, only a call no part of the
/// agent makes.
#[test]
fn the_profile_refuses_a_call_it_does_not_list() -> Result<()> {
    let pair = TwoNodes::unconfigured("call")?;
    let call = ["setarch", "--addr-no-randomize", "true"].map(str::to_owned);
    if pair.a.command(call.clone()).any_code().run()?.code != 0 {
        not_run(
            "a call the profile does not list",
            "this machine refuses personality() to everybody",
        );
        return Ok(());
    }
    let confined = |command: &[String]| -> Result<_> {
        let argv = [&Confinement::of_the_manifest()?.argv(), command].concat();
        pair.a.command(argv).any_code().run()
    };
    let output = confined(&call)?;
    ensure!(
        output.code != 0 && output.stderr.contains("Operation not permitted"),
        "{output:?}"
    );
    ensure!(
        confined(&["true".to_owned()])?.code == 0,
        "what it does list goes on"
    );
    Ok(())
}

#[test]
fn an_agent_whose_profile_lacks_a_call_says_so() -> Result<()> {
    let pair = TwoNodes::new("profile", VXLAN)?;
    let shipped = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../deploy/seccomp/flannel-agent.json"
    );
    let text = fs::read_to_string(shipped)?;
    let broken = text.replace("\"bpf\"", "\"acct\"");
    ensure!(
        Profile::parse(&broken).is_ok() && broken != text,
        "the profile lists bpf"
    );
    fs::write(pair.a.outside_path("/run/broken.json"), broken)?;
    let confinement = Confinement::of_the_manifest()?.profile("/run/broken.json".into());
    let agent = pair
        .a
        .ready_agent(pair.options()?.confined_by(confinement))?;
    let mode = mode_of(&agent)?;
    ensure!(mode["effective"] == "kernel", "{mode}");
    let reason = mode["reason"].as_str().unwrap_or_default();
    ensure!(
        reason.ends_with("(a seccomp profile is in force, which has to let bpf() through)"),
        "{reason}"
    );
    Ok(())
}
