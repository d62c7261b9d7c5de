//! `flannel-agent top`: as one frame of text, and on a terminal; colours there and elsewhere.

use std::{fs::OpenOptions, io::Write as _, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{Agent, Pair, eventually, fast::fast_pair, no_agent::Talk};
use serde_json::Value;

/// One frame of an interval full of messages on a connection.
fn frame(agent: &Agent, talk: &mut Talk, flags: &[&str]) -> Result<String> {
    let args = [&["top", "--once", "--interval=1s"], flags].concat();
    let top = agent.node().spawn("top", agent.argv(&args))?;
    while top.is_running() {
        talk.exchange(100)?;
    }
    top.wait_success(Duration::from_secs(10))?;
    Ok(top.log())
}

/// The words of the line with this text, without the panel's frame.
fn words<'a>(frame: &'a str, part: &str) -> Result<Vec<&'a str>> {
    let line = frame
        .lines()
        .find(|line| line.contains(part))
        .with_context(|| format!("no {part:?} in:\n{frame}"))?;
    Ok(line.trim_matches(['│', ' ']).split_whitespace().collect())
}

/// Documents for programs: a line for each interval, and one frame.
fn documents(agent: &Agent, talk: &mut Talk) -> Result<()> {
    // At the end of an interval the flow may be due for its refresh.
    eventually(
        "a usable flow in a document",
        Duration::from_mins(1),
        || has_usable_flow(agent, talk),
    )?;
    let argv = agent
        .argv(&["top", "-o", "json", "--interval=1s"])
        .join(" ");
    let lines = agent
        .node()
        .command(["sh", "-c", &format!("{argv} | head -n 2")])
        .run()?
        .stdout;
    let times = lines
        .lines()
        .map(|line| Ok(serde_json::from_str::<Value>(line)?["time"].clone()));
    let times = times.collect::<Result<Vec<_>>>()?;
    ensure!(times.len() == 2 && times[0] != times[1], "{lines}");
    let limited = agent.argv(&[
        "top",
        "-o",
        "json",
        "--interval=1s",
        "--count=2",
        "--rows=1",
    ]);
    let lines = agent.node().command(limited).run()?.stdout;
    ensure!(lines.lines().count() == 2, "{lines}");
    for line in lines.lines() {
        let document: Value = serde_json::from_str(line)?;
        let rows = ["flows", "peers"].map(|key| document[key].as_array().map(Vec::len));
        ensure!(rows == [Some(1); 2], "{document:#}");
    }
    Ok(())
}

fn has_usable_flow(agent: &Agent, talk: &mut Talk) -> Result<()> {
    let [source, _] = talk.ends()?.map(|end| end.to_string());
    let filter = format!("--filter={source}");
    let document: Value = serde_json::from_str(&frame(agent, talk, &["-o", "json", &filter])?)?;
    let flows = document["flows"].as_array().context("flows")?;
    // Of its way back the source is the destination.
    let flow = flows
        .iter()
        .find(|flow| flow["source"] == *source)
        .with_context(|| format!("{document:#}"))?;
    ensure!(
        flow["state"] == "usable" && flows.len() <= 2,
        "{document:#}"
    );
    ensure!(
        flow["packets_per_second"]
            .as_f64()
            .is_some_and(|rate| rate > 0.0),
        "{document:#}"
    );
    ensure!(
        document["mode"] == "fast" && document["peers"] == Value::Array(Vec::new()),
        "{document:#}"
    );
    Ok(())
}

/// One frame has them all: in an interval at whose end a flow was just learned its rate is 0.
fn has_rates(pair: &Pair, talk: &mut Talk, agent_line: &str) -> Result<()> {
    eventually("rates of everything", Duration::from_mins(1), || {
        frame_has_rates(pair, talk, agent_line)
    })
}

fn frame_has_rates(pair: &Pair, talk: &mut Talk, agent_line: &str) -> Result<()> {
    let frame = frame(&pair.sender, talk, &[])?;
    ensure!(
        frame.starts_with("mode fast   heartbeat ") && !frame.contains('\u{1b}'),
        "{frame}"
    );
    ensure!(
        frame
            .lines()
            .next()
            .is_some_and(|line| line.ends_with(agent_line)),
        "no {agent_line:?} in:\n{frame}"
    );
    for hook in ["from_pod ", "from_underlay "] {
        let words = words(&frame, hook)?;
        let share: u32 = words
            .iter()
            .rev()
            .nth(1)
            .context("a share")?
            .parse()
            .with_context(|| frame.clone())?;
        ensure!(share > 50, "{share} % at {hook}:\n{frame}");
    }
    let peer = words(&frame, "10.244.9.0/24").or_else(|_| words(&frame, "192.168.2.13"))?;
    ensure!(
        peer.contains(&"tunnel") && peer.iter().filter(|word| **word == "0").count() == 0,
        "{frame}"
    );
    let [source, destination] = talk.ends()?.map(|end| end.to_string());
    let flow = words(&frame, &source)?;
    ensure!(
        flow[0] == "tcp" && flow.contains(&destination.as_str()) && flow.contains(&"usable"),
        "{frame}"
    );
    ensure!(
        frame.contains(" dropped ") && frame.contains(" left to the kernel "),
        "{frame}"
    );
    Ok(())
}

/// Runs the live dashboard on a new terminal, until `q`.
fn quits(agent: &Agent) -> Result<()> {
    let (node, top) = (
        agent.node(),
        agent.argv(&["top", "--interval=1s"]).join(" "),
    );
    node.sh("mkfifo /run/keys")?;
    // It takes the shell's place, so that it ends with the lab if the test fails.
    let script =
        format!("exec script -qefc 'stty rows 40 cols 120; exec {top}' /run/screen < /run/keys");
    let terminal = node.spawn("terminal", ["sh", "-c", &script])?;
    let mut keys = OpenOptions::new()
        .write(true)
        .open(node.outside_path("/run/keys"))?;
    eventually("a frame", Duration::from_secs(10), || {
        let screen = std::fs::read(node.outside_path("/run/screen"))?;
        let screen = String::from_utf8_lossy(&screen);
        // Blanks between words are movements of the cursor.
        ensure!(
            screen.contains("from_pod") && screen.contains("quit"),
            "{screen:?}"
        );
        Ok(())
    })?;
    keys.write_all(b"q")?;
    terminal.wait_success(Duration::from_secs(10))?;
    let screen = std::fs::read_to_string(node.outside_path("/run/screen"))?;
    // The sequence that leaves the alternate screen.
    ensure!(
        screen.contains("\u{1b}[?1049l"),
        "the terminal is as it was: {screen:?}"
    );
    Ok(())
}

/// The same command on a terminal, with and without `NO_COLOR`, and into a pipe.
fn colours_are_for_terminals(agent: &Agent) -> Result<()> {
    let status = agent.argv(&["status"]).join(" ");
    let on_terminal = |variables: &str| {
        let script =
            format!("env TERM=xterm {variables} script -qefc '{status}' /dev/null < /dev/null");
        Ok::<_, anyhow::Error>(agent.node().run(["sh", "-c", &script])?.stdout)
    };
    let green = "\u{1b}[32myes\u{1b}[0m";
    let colored = on_terminal("")?;
    ensure!(colored.contains(green), "{colored:?}");
    let plain = on_terminal("NO_COLOR=1")?;
    ensure!(
        plain.contains("ready      yes") && !plain.contains('\u{1b}'),
        "{plain:?}"
    );
    let piped = agent.cli(&["status"])?.stdout;
    ensure!(
        piped.contains("ready      yes\n") && !piped.contains('\u{1b}'),
        "{piped:?}"
    );
    Ok(())
}

/// The agent has points after three readings of the counters, which the dashboard draws.
fn has_a_history(pair: &Pair) -> Result<()> {
    let agent = &pair.sender;
    let _pings = pair
        .near
        .spawn("pings", ["ping", "-i0.1", &pair.far.ip().to_string()])?;
    eventually("a history", Duration::from_mins(2), || {
        let document = agent.cli_json(&["top", "-o", "json", "--interval=1s", "--once"])?;
        let points = document["history"]["packets_per_second"]
            .as_array()
            .context("no history")?;
        ensure!(
            points.last().is_some_and(|point| point.as_u64() > Some(0)),
            "{points:?}"
        );
        Ok(())
    })?;
    let wide = agent.argv(&["top", "--once", "--interval=1s"]);
    let frame = agent
        .node()
        .run(
            [
                &["env".to_owned(), "COLUMNS=160".to_owned()],
                wide.as_slice(),
            ]
            .concat(),
        )?
        .stdout;
    let peer = words(&frame, "192.168.2.13")?;
    ensure!(
        peer.last().is_some_and(
            |history| history.contains(|block| ('\u{2581}'..='\u{2588}').contains(&block))
        ),
        "{frame}"
    );
    Ok(())
}

#[test]
fn top_has_rates_with_and_without_an_agent() -> Result<()> {
    let pair = fast_pair("top", &[])?;
    let mut talk = pair.talk()?;
    pair.talk_until_replayed(&mut talk, 100)?;
    has_rates(
        &pair,
        &mut talk,
        &format!("agent {} ready", env!("CARGO_PKG_VERSION")),
    )
    .context("alive")?;
    let colored = frame(&pair.sender, &mut talk, &["--color=always"])?;
    ensure!(colored.contains("\u{1b}[32mtunnel\u{1b}[0m"), "{colored:?}");
    documents(&pair.sender, &mut talk).context("documents")?;
    quits(&pair.sender).context("on a terminal")?;
    colours_are_for_terminals(&pair.sender).context("colours")?;
    has_a_history(&pair).context("history")?;

    let piped = pair.sender.cli_any(&["top"])?;
    ensure!(
        piped.code == 2 && piped.stderr.contains("`--once` prints one frame"),
        "{piped:?}"
    );
    pair.sender.kill9()?;
    // Heartbeats of the last five seconds let flows be replayed without an agent.
    has_rates(&pair, &mut talk, "no agent answers").context("dead")
}
