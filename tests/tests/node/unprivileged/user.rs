//! Attempts of a local user without privileges against the agent of a node, all refused: each
//! attempt is printed with its answer.

use std::{fmt::Write as _, fs, os::unix::fs::PermissionsExt as _, time::Duration};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{Agent, Host, Node, TwoNodes, agent_binary, cluster::VXLAN, eventually};
use nix::{errno::Errno, libc};

const STATE: &str = "/run/flannel";
const SUBNET_ENV: &str = "/run/flannel/subnet.env";
const LOCK: &str = "/run/flannel/agent.lock";
/// The path at which every user can reach the program, regardless of where it was built.
const PROGRAM: &str = "/run/flannel-agent";
const NOBODY: libc::uid_t = 65534;
/// Becomes that user, with no group and no capability.
const AS_NOBODY: [&str; 5] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--",
];
/// Texts of a refusal: the kernel's, or the agent's own.
const REFUSALS: [&str; 3] = [
    "permission denied",
    "operation not permitted",
    "missing privilege",
];

/// Something that is tried, and how its line of the report begins.
struct Attempt {
    what: &'static str,
    argv: Vec<String>,
}

fn attempt(what: &'static str, line: &str) -> Attempt {
    Attempt {
        what,
        argv: line.split_ascii_whitespace().map(str::to_owned).collect(),
    }
}

fn shell(what: &'static str, script: String) -> Attempt {
    Attempt {
        what,
        argv: vec!["sh".to_owned(), "-c".to_owned(), script],
    }
}

/// Tries it on `host`, behind the command that takes the privileges away. The line for the report.
fn refused(host: &Host, unprivileged: &[&str], attempt: &Attempt) -> Result<String> {
    let argv = unprivileged
        .iter()
        .map(|word| (*word).to_owned())
        .chain(attempt.argv.iter().cloned());
    let output = host.command(argv).any_code().run()?;
    let text = format!("{}{}", output.stdout, output.stderr);
    let lower = text.to_lowercase();
    let answer = text.lines().find(|line| {
        REFUSALS
            .iter()
            .any(|refusal| line.to_lowercase().contains(refusal))
    });
    ensure!(
        output.code != 0 && answer.is_some(),
        "{}: {:?} was not refused: status {}, {lower}",
        attempt.what,
        attempt.argv,
        output.code
    );
    Ok(format!(
        "{:<46} status {:>3}  {}",
        attempt.what,
        output.code,
        answer.unwrap_or_default().trim()
    ))
}

/// A command of the agent's own program.
fn ours(what: &'static str, args: &str) -> Attempt {
    attempt(what, &format!("{PROGRAM} {args}"))
}

/// Everything a command can try.
fn attempts(agent: &Agent) -> Vec<Attempt> {
    let pid = agent.child().pid();
    let mut all = attempts_at_files(pid);
    all.extend(attempts_at_memory(pid));
    all.extend(attempts_at_maps());
    all.extend(attempts_by_commands());
    all.extend(attempts_at_the_kernel());
    all
}

/// Start, stop and the files of the agent.
fn attempts_at_files(pid: u32) -> Vec<Attempt> {
    vec![
        // Start and stop.
        attempt("lock the lock file", &format!("flock -n {LOCK} true")),
        attempt("read the lock file", &format!("cat {LOCK}")),
        shell("write the lock file", format!("echo >>{LOCK}")),
        shell("stop the agent", format!("kill -TERM {pid}")),
        shell("suspend the agent", format!("kill -STOP {pid}")),
        // Files.
        attempt(
            "read the record of sysctls",
            &format!("cat {STATE}/sysctls"),
        ),
        attempt("remove the socket", &format!("rm -f {STATE}/agent.sock")),
        attempt(
            "put another socket in its place",
            &format!("mv -f {STATE}/agent.sock {STATE}/away"),
        ),
        attempt(
            "plant a lock file in the making",
            &format!("touch {STATE}/agent.lock.new"),
        ),
        attempt("plant a link", &format!("ln -s /etc/passwd {STATE}/clsact")),
        shell(
            "write subnet.env",
            format!("echo FLANNEL_MTU=1 >>{SUBNET_ENV}"),
        ),
        attempt(
            "replace subnet.env",
            &format!("mv -f {SUBNET_ENV} {STATE}/away"),
        ),
        attempt("open the state directory", &format!("chmod 0777 {STATE}")),
    ]
}

fn attempts_at_memory(pid: u32) -> Vec<Attempt> {
    vec![
        attempt(
            "read the agent's environment",
            &format!("cat /proc/{pid}/environ"),
        ),
        attempt(
            "read the agent's memory",
            &format!("head -c 1 /proc/{pid}/mem"),
        ),
        attempt(
            "list the agent's descriptors",
            &format!("ls /proc/{pid}/fd"),
        ),
        attempt(
            "look through the agent's root",
            &format!("ls /proc/{pid}/root/"),
        ),
        attempt(
            "enter the agent's namespaces",
            &format!("nsenter -t {pid} -n -m true"),
        ),
    ]
}

/// Pins and maps.
fn attempts_at_maps() -> Vec<Attempt> {
    vec![
        attempt("list the pins", "ls /sys/fs/bpf/flannel/"),
        attempt("remove the pins", "rm -r /sys/fs/bpf/flannel/v2"),
        ours("dump the peers", "maps dump peers"),
        ours("dump the flows", "maps dump flows"),
        ours("flush the flows", "flows flush"),
        ours("change the mode", "datapath set kernel"),
        ours("switch the guard off", "guard set off"),
        ours("watch packets", "monitor"),
    ]
}

/// The agent's other commands.
fn attempts_by_commands() -> Vec<Attempt> {
    vec![
        ours("ask for the status", "status"),
        ours("check the host", "check"),
        ours("clean up", "cleanup"),
        ours("set sysctls", "prepare"),
        ours(
            "run a second agent",
            "run --etcd-endpoints=http://192.168.1.12:2379 --iface=eth0",
        ),
    ]
}

fn attempts_at_the_kernel() -> Vec<Attempt> {
    vec![
        attempt("take the tunnel down", "ip link set flannel.1 down"),
        attempt(
            "take the tunnel down in a user namespace",
            "unshare -Ur ip link set flannel.1 down",
        ),
        attempt(
            "lead the pod network elsewhere",
            "ip route add 10.244.0.0/17 dev lo",
        ),
        attempt(
            "add an FDB entry",
            "bridge fdb append 02:00:00:00:00:01 dev flannel.1 dst 192.168.1.99",
        ),
        shell(
            "switch forwarding off",
            "echo 0 >/proc/sys/net/ipv4/ip_forward".to_owned(),
        ),
    ]
}

/// `PTRACE_SEIZE`, which stops nothing by itself.
fn trace(host: &Host, pid: u32) -> Result<Errno> {
    let pid = libc::pid_t::try_from(pid)?;
    host.enter(move || {
        // The libc functions would change the credentials of all threads.
        for (call, id) in [(libc::SYS_setresgid, NOBODY), (libc::SYS_setresuid, NOBODY)] {
            // SAFETY: the call takes three numbers and changes only this thread, which ends with
            // the attempt.
            let result = unsafe { libc::syscall(call, id, id, id) };
            Errno::result(result).context("cannot become nobody")?;
        }
        // SAFETY: PTRACE_SEIZE reads no memory of this process; the address must be 0, and the
        // options are empty.
        let result = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0_usize, 0_usize) };
        Errno::result(result)
            .err()
            .context("the agent could be traced")
    })?
}

/// Returns the names and modes of the files in the state directory.
fn listing(node: &Node) -> Result<String> {
    let mut names: Vec<_> = fs::read_dir(node.outside_path(STATE))?
        .map(|entry| Ok(entry?.file_name()))
        .collect::<Result<_>>()?;
    names.sort();
    let mut list = String::new();
    for name in names {
        let path = node.outside_path(STATE).join(&name);
        writeln!(
            list,
            "{:04o} {}",
            path.symlink_metadata()?.permissions().mode() & 0o7777,
            name.display()
        )?;
    }
    Ok(list)
}

#[test]
fn what_a_user_without_privileges_tries_is_refused() -> Result<()> {
    let pair = TwoNodes::new("nobody", VXLAN)?;
    let [agent, _other] = pair.agents()?;
    let node = agent.node();
    let (near, far) = (pair.a.add_pod("p1")?, pair.b.add_pod("p1")?);
    near.ping(far.ip())?;
    let program = agent_binary()?;
    node.sh(&format!("touch {PROGRAM}"))?;
    node.run([
        "mount",
        "--bind",
        program.to_str().context("a path")?,
        PROGRAM,
    ])?;
    node.run([&AS_NOBODY[..], &[PROGRAM, "--version"]].concat())
        .context("every user can start the program")?;
    let before = listing(node)?;
    assert_eq!(
        before,
        "0600 agent.lock\n0600 agent.sock\n0600 lease\n0600 networks\n0644 subnet.env\n0600 \
         sysctls\n"
    );

    let mut report = String::new();
    for attempt in attempts(&agent) {
        let line = refused(node, &AS_NOBODY, &attempt)?;
        // The daemon may run as another user.
        let is_command = attempt.argv[0] == PROGRAM && attempt.argv[1] != "run";
        ensure!(
            !is_command || line.contains("run as root"),
            "no remedy: {line}"
        );
        writeln!(report, "{line}")?;
    }
    let errno = trace(node, agent.child().pid())?;
    ensure!(errno == Errno::EPERM, "{errno}");
    writeln!(report, "{:<46} {errno}", "trace the agent")?;
    // What every user may do.
    let text = node
        .run([&AS_NOBODY[..], &["cat", SUBNET_ENV]].concat())?
        .stdout;
    ensure!(text.contains("FLANNEL_SUBNET="), "{text}");
    writeln!(report, "{:<46} allowed", "read subnet.env")?;
    println!("{report}");

    assert_eq!(listing(node)?, before);
    let status = agent.status()?;
    ensure!(
        status["ready"] == true && status["mode"]["effective"] == "fast",
        "{status}"
    );
    ensure!(agent.cli(&["guard", "show"])?.stdout.contains("enforce"));
    near.ping(far.ip()).map(drop)
}

/// Earlier versions left the file with mode 0644, and a lock takes no right but to read.
#[test]
fn a_lock_held_by_another_user_keeps_no_agent_from_its_start() -> Result<()> {
    let pair = TwoNodes::new("foreign-lock", VXLAN)?;
    fs::create_dir(pair.a.outside_path(STATE))?;
    let lock = pair.a.outside_path(LOCK);
    fs::write(&lock, "")?;
    fs::set_permissions(&lock, fs::Permissions::from_mode(0o644))?;
    let holder = pair.a.spawn(
        "holder",
        [&AS_NOBODY[..], &["flock", "-x", LOCK, "sleep", "600"]].concat(),
    )?;
    eventually(
        "the lock of the other user",
        Duration::from_secs(10),
        || {
            let code = pair
                .a
                .command(["flock", "-n", LOCK, "true"])
                .any_code()
                .run()?
                .code;
            ensure!(code == 1, "status {code}");
            Ok(())
        },
    )?;
    let agent = pair.a.ready_agent(pair.options()?)?;
    agent.wait_log(&[&format!(
        "which was locked by process {} (flock): no agent answers",
        holder.pid()
    )])?;
    ensure!(holder.is_running(), "it still holds its lock");
    assert_eq!(fs::metadata(&lock)?.permissions().mode() & 0o7777, 0o600);
    // The holder's descriptor is of the replaced file, which no agent opens any more.
    agent.sigterm_and_wait()?;
    agent.restart()?;
    agent.wait_ready()?;
    let second = pair.a.agent(pair.options()?)?.wait_end()?.1;
    ensure!(
        second.contains(&format!(
            "in use by process {} (flannel-agent)",
            agent.child().pid()
        )),
        "{second}"
    );
    Ok(())
}
