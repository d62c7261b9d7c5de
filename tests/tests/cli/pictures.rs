//! The pictures of `status`, `check` and `top` in docs/images, made from real output in colour.
//!
//! After a change of what these commands print, the test fails until the pictures are made again:
//! run it with `FLANNEL_WRITE_DOCS=1`. Numbers, addresses and times may differ; labels, topics,
//! titles and columns may not.

use std::{collections::BTreeSet, env, fs, path::PathBuf, time::Duration};

use anstyle_svg::{Term, WIN10_CONSOLE};
use anyhow::{Context as _, Result, ensure};
use flannel_tests::{Agent, Pair, fast::fast_pair, no_agent::Talk, not_run};

/// Columns of the pictures.
const COLUMNS: usize = 110;

fn picture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/images").join(format!("{name}.svg"))
}

/// Compares the picture with output of now, or writes it.
fn keep(name: &str, output: &str, form: impl Fn(&str) -> BTreeSet<String>) -> Result<()> {
    let svg = Term::new().palette(WIN10_CONSOLE).render_svg(&folded(output.trim_end()));
    if env::var_os("FLANNEL_WRITE_DOCS").is_some() {
        return fs::write(picture(name), svg).context("cannot write the picture");
    }
    let kept = fs::read_to_string(picture(name)).with_context(|| format!("no picture of {name}"))?;
    ensure!(kept.contains("fg-green"), "the picture of {name} has no colours");
    let (is, was) = (form(&text(&svg)), form(&text(&kept)));
    ensure!(
        !is.is_empty() && is == was,
        "docs/images/{name}.svg is not what FLANNEL_WRITE_DOCS=1 makes of it: {is:?}, {was:?}"
    );
    Ok(())
}

/// The output as a terminal of [`COLUMNS`] columns shows it. Colours take no room.
fn folded(output: &str) -> String {
    let (mut folded, mut column, mut is_escape) = (String::new(), 0, false);
    for letter in output.chars() {
        is_escape |= letter == '\u{1b}';
        if letter == '\n' {
            column = 0;
        } else if !is_escape {
            if column == COLUMNS {
                folded.push('\n');
                column = 0;
            }
            column += 1;
        }
        is_escape &= letter != 'm';
        folded.push(letter);
    }
    folded
}

/// The lines of a picture, without markup.
fn text(svg: &str) -> String {
    let lines = svg.lines().filter(|line| line.trim_start().starts_with("<tspan x="));
    let plain = |line: &str| {
        let parts = line.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text));
        parts.collect::<String>().replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    };
    lines.map(|line| plain(line.trim_start()) + "\n").collect()
}

/// The words in front of two blanks, as in `ready      yes`, and the heads of tables.
fn labels(text: &str) -> BTreeSet<String> {
    let label = |line: &str| match line.split_once("  ") {
        Some((label, _)) if label.starts_with(|first: char| first.is_ascii_lowercase()) => Some(label.to_owned()),
        _ => line.starts_with("SUBNET").then(|| line.split_whitespace().collect::<Vec<_>>().join(" ")),
    };
    text.lines().filter_map(label).collect()
}

/// The topics of `check`, behind the level.
fn topics(text: &str) -> BTreeSet<String> {
    let findings = text.lines().filter(|line| ["ok ", "warn ", "FAIL "].iter().any(|level| line.starts_with(level)));
    findings.filter_map(|line| line.get(6..22)).map(|topic| topic.trim().to_owned()).collect()
}

/// The titles of panels without their numbers, and the heads of their columns.
fn panels(text: &str) -> BTreeSet<String> {
    let words = |line: &str| {
        let words = line.split(|letter: char| !letter.is_alphabetic() && letter != '/' && letter != '-');
        words.filter(|word| word.len() > 1 && *word != "more").map(str::to_owned).collect::<Vec<_>>()
    };
    let lines = text.lines().filter(|line| line.starts_with('┌') || line.contains("PKT/S"));
    lines.flat_map(|line| words(&line.replace(" peer ", " peers ").replace(" flow ", " flows "))).collect()
}

/// Major and minor number of the kernel that a text of `check` names.
fn kernel(text: &str) -> Option<&str> {
    let release = text.split_once("Linux ")?.1;
    release.match_indices('.').nth(1).map(|(end, _)| &release[..end])
}

/// The output without what a kernel's builder added to its version.
fn without_local_version(output: &str) -> String {
    let shorten = |line: &str| match line.split_once("Linux ") {
        Some((before, release)) => format!("{before}Linux {}", release.split('-').next().unwrap_or_default()),
        None => line.to_owned(),
    };
    output.lines().map(|line| shorten(line) + "\n").collect()
}

fn check_picture(agent: &Agent) -> Result<()> {
    let output = without_local_version(&agent.cli_any(&["check", "--color=always"])?.stdout);
    let kept = fs::read_to_string(picture("check")).map(|svg| text(&svg)).unwrap_or_default();
    let is_other = kernel(&kept) != kernel(&output);
    if is_other && env::var_os("FLANNEL_WRITE_DOCS").is_none() {
        not_run("the picture of check", "it was made on another kernel, which has other findings");
        return Ok(());
    }
    keep("check", &output, topics)
}

fn top_picture(pair: &Pair, talks: &mut [Talk]) -> Result<()> {
    let agent = &pair.sender;
    let argv = [
        vec!["env".to_owned(), format!("COLUMNS={COLUMNS}")],
        agent.argv(&["top", "--once", "--interval=2s", "--color=always"]),
    ];
    let top = agent.node().spawn("top", argv.concat())?;
    while top.is_running() {
        for (number, talk) in (1..).zip(talks.iter_mut()) {
            talk.exchange(20 * number)?;
        }
    }
    top.wait_success(Duration::from_secs(10))?;
    keep("top", &top.log(), panels)
}

#[test]
fn pictures_of_commands_are_as_the_commands_are() -> Result<()> {
    let pair = fast_pair("pictures", &[])?;
    let mut talks = Vec::new();
    for _ in 0..3 {
        talks.push(pair.talk()?);
    }
    for talk in &mut talks {
        pair.talk_until_replayed(talk, 100)?;
    }
    let status = pair.sender.cli(&["status", "--color=always"])?.stdout;
    keep("status", &status, labels).context("status")?;
    check_picture(&pair.sender).context("check")?;
    top_picture(&pair, &mut talks).context("top")
}

#[test]
fn the_form_of_a_picture_is_its_words() {
    let svg =
        Term::new().render_svg("\u{1b}[36mready      \u{1b}[0m\u{1b}[32myes\u{1b}[0m\nSUBNET  WAY\n10.1.0.0/24  a <b>");
    assert_eq!(text(&svg), "ready      yes\nSUBNET  WAY\n10.1.0.0/24  a <b>\n");
    assert_eq!(labels(&text(&svg)), BTreeSet::from(["ready".to_owned(), "SUBNET WAY".to_owned()]));
    assert_eq!(
        topics("ok    kernel          Linux 6.1\nthis node can do mode fast\n"),
        BTreeSet::from(["kernel".to_owned()])
    );
    assert_eq!(
        panels("┌ 3 flows by rate ──┐\n│FROM  PKT/S│\n│10.1.0.2│"),
        panels("┌ 1 flow by rate ──┐\n│FROM  PKT/S│")
    );
    let wide = format!("\u{1b}[32m{}\u{1b}[0mb\nc", "a".repeat(COLUMNS));
    assert_eq!(folded(&wide), format!("\u{1b}[32m{}\u{1b}[0m\nb\nc", "a".repeat(COLUMNS)));
    assert_eq!(kernel(&without_local_version("ok  Linux 6.18.44-x-1\n")), Some("6.18"));
}
