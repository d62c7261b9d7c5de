//! `datapath show` and `datapath set`.

use std::{
    fs::File,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use flannel_tests::{Agent, AgentOptions, TwoNodes, cluster::VXLAN, eventually, judged};
use nix::fcntl::{Flock, FlockArg};

fn agent(change: impl Fn(AgentOptions) -> AgentOptions) -> Result<(TwoNodes, Agent)> {
    let pair = TwoNodes::new("mode", VXLAN)?;
    let agent = pair.a.ready_agent(change(pair.options()?))?;
    Ok((pair, agent))
}

fn shown(agent: &Agent) -> Result<String> {
    Ok(agent.cli(&["datapath", "show"])?.stdout)
}

#[test]
fn the_mode_is_shown_and_set_at_run_time() -> Result<()> {
    let (_pair, agent) = agent(|options| options)?;
    assert_eq!(shown(&agent)?, "fast (not chosen at run time)\n");
    assert_eq!(
        agent.cli(&["datapath", "set", "kernel"])?.stdout,
        "kernel (chosen at run time)\n"
    );
    assert_eq!(shown(&agent)?, "kernel (chosen at run time)\n");
    let document = agent.cli_json(&["datapath", "show", "-o", "json"])?;
    assert_eq!(
        (&document["mode"], &document["choice"]),
        (&"kernel".into(), &"kernel".into()),
        "{document}"
    );
    let first = document["generation"].as_u64();
    let status = agent.wait_status("the choice", |status| {
        ensure!(status["mode"]["effective"] == "kernel" && status["mode"]["source"] == "run-time");
        Ok(())
    })?;
    assert!(status["mode"]["reason"].is_null(), "{status}");

    agent.cli(&["datapath", "set", "kernel"])?;
    let again = agent.cli_json(&["datapath", "show", "-o", "json"])?;
    assert_eq!(
        again["generation"].as_u64(),
        first,
        "nothing changed, nothing is written"
    );
    assert_eq!(
        agent.cli(&["datapath", "set", "auto"])?.stdout,
        "fast (not chosen at run time)\n"
    );
    agent.wait_status("the default", |status| {
        ensure!(status["mode"]["effective"] == "fast" && status["mode"]["source"] == "default");
        Ok(())
    })?;
    Ok(())
}

#[test]
fn wrong_words_end_with_64_and_name_the_right_ones() -> Result<()> {
    let (pair, agent) = agent(|options| options)?;
    let binary = pair.options()?.binary.display().to_string();
    for (words, message) in [
        (
            &["datapath", "set", "quick"][..],
            "invalid value 'quick' for '<MODE>': not a datapath mode; the modes are kernel, encap \
             and fast",
        ),
        (&["datapath", "set"], "<MODE>"),
        (&["datapath", "turn"], "unrecognized subcommand 'turn'"),
        (
            &["maps", "dump", "routes"],
            "[possible values: peers, stats, config, pods, flows, all]",
        ),
        (
            &["maps", "dump", "peers", "-o", "yaml"],
            "[possible values: table, json]",
        ),
        (
            &["maps", "dump", "peers", "--src", "10.244.1.2"],
            "use them with `maps dump flows`",
        ),
        (
            &["maps", "dump", "flows", "--dst", "10.244.1"],
            "neither an address nor a prefix",
        ),
        (&["status", "now"], "unexpected argument 'now'"),
    ] {
        let argv = [binary.as_str()].into_iter().chain(words.iter().copied());
        let output = pair.a.command(argv).expect_code(64).run()?;
        assert!(
            output.stdout.is_empty() && output.stderr.contains(message),
            "{words:?}: {output:?}"
        );
    }
    assert_eq!(shown(&agent)?, "fast (not chosen at run time)\n");
    Ok(())
}

/// The word is in a pinned map; the agent that starts finds it there.
#[test]
fn a_mode_set_while_the_agent_is_dead_is_in_force_at_once_and_after_its_start() -> Result<()> {
    let (_pair, agent) = agent(|options| options)?;
    agent.kill9()?;
    agent.cli(&["datapath", "set", "kernel"])?;
    assert_eq!(shown(&agent)?, "kernel (chosen at run time)\n");
    let status = agent.status()?;
    assert_eq!(
        (&status["mode"]["effective"], &status["mode"]["source"]),
        (&"kernel".into(), &"run-time".into())
    );
    agent.restart()?;
    agent.wait_ready()?;
    let mode = agent.status()?["mode"].clone();
    assert_eq!(
        (&mode["effective"], &mode["source"]),
        (&"kernel".into(), &"run-time".into()),
        "{mode}"
    );
    Ok(())
}

#[test]
fn a_choice_at_run_time_goes_before_the_flag_and_auto_returns_to_it() -> Result<()> {
    let (_pair, agent) = agent(|options| options.flag("--datapath=kernel"))?;
    let mode = |agent: &Agent| -> Result<_> { Ok(agent.status()?["mode"].clone()) };
    assert_eq!(
        (&mode(&agent)?["effective"], &mode(&agent)?["source"]),
        (&"kernel".into(), &"flag".into())
    );
    agent.set_mode("encap")?;
    assert_eq!(mode(&agent)?["source"], "run-time");
    agent.cli(&["datapath", "set", "auto"])?;
    eventually("the flag", Duration::from_secs(10), || {
        let mode = mode(&agent)?;
        ensure!(
            mode["effective"] == "kernel" && mode["source"] == "flag",
            "{mode}"
        );
        Ok(())
    })
}

#[test]
fn the_network_configuration_names_a_mode_for_nodes_that_choose_none() -> Result<()> {
    let pair = TwoNodes::new(
        "wide",
        r#"{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","Datapath":"kernel"}}"#,
    )?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    let mode = agent.status()?["mode"].clone();
    assert_eq!(
        (&mode["effective"], &mode["source"]),
        (&"kernel".into(), &"network-config".into()),
        "{mode}"
    );
    Ok(())
}

/// The emergency switch waits for no process that was stopped while it held the lock of the mode
/// word, and says so.
#[test]
fn a_mode_is_set_although_a_stopped_process_holds_the_lock() -> Result<()> {
    let (_pair, agent) = agent(|options| options)?;
    let maps = File::open(agent.node().outside_path("/sys/fs/bpf/flannel/v2"))?;
    let lock = Flock::lock(maps, FlockArg::LockExclusive).map_err(|(_, errno)| errno)?;
    judged("the emergency switch", || {
        let start = Instant::now();
        let text = agent.cli(&["datapath", "set", "kernel"])?.stdout;
        ensure!(
            start.elapsed() < Duration::from_secs(10),
            "{:?}",
            start.elapsed()
        );
        ensure!(
            text.starts_with("kernel (chosen at run time)\nset without waiting any longer: "),
            "{text}"
        );
        Ok(())
    })?;
    assert_eq!(shown(&agent)?, "kernel (chosen at run time)\n");
    let flush = agent
        .cli(&["flows", "flush"])
        .expect_err("what is no emergency needs the lock")
        .to_string();
    ensure!(flush.contains("lslocks"), "{flush}");
    drop(lock);
    assert_eq!(
        agent.cli(&["datapath", "set", "encap"])?.stdout,
        "encap (chosen at run time)\n"
    );
    Ok(())
}
