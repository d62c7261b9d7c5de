//! Builds the BPF object and, around it, the agent; and the CNI plugin, statically linked.
//!
//! The object is built first, with its toolchain, into its target directory; the agent's build
//! script takes it from `FLANNEL_BPF_OBJECT`. Without that variable the agent gets a stub in its
//! place.
//!
//! Two profiles: tests, demo and cluster share the dev profile, so that each crate is compiled once
//! for all of them. What is shipped and what is measured is optimised for size, which takes
//! minutes.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
    process::{self, Command},
    thread,
    time::Instant,
};

use anyhow::{Context as _, ensure};

use crate::{
    cargo, object,
    setup::{Needs, Setup, cross::Cross, toolchain::Toolchain},
    workspace::{self, BPF_TARGET, Workspace},
};

/// The file name of the CNI plugin.
const PLUGIN: &str = "flannel";

/// The name of the agent's program.
pub(crate) const AGENT: &str = "flannel-agent";
/// The program by which the lab confines an agent as in the cluster.
pub(crate) const CONFINE: &str = "confine";

/// The crates of a build of the dev profile. Cargo chooses the features of a library by the crates
/// that one command names, so every such command names the same: a library is compiled once.
pub(crate) const ONE_GRAPH: [&str; 3] =
    ["--workspace", "--exclude=flannel-ebpf", "--exclude=xtask"];

/// The test programs of crates that do not import the agent.
pub(crate) const EARLY: [&str; 6] = ["firewall", "iface", "netlink", "etcd", "kube", "traffic"];

/// The programs to build in addition to the BPF object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parts {
    /// The agent's programs and the CNI plugin.
    Agent,
    /// The same, the demo and the bench.
    AgentAndLab,
}

/// The profile of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// For tests, demo and cluster: compiled fast, with overflow checks.
    Dev,
    /// For users and benches: small, optimised at link time.
    Release,
}

impl Profile {
    /// The directory of its programs below a target directory.
    const fn dir(self) -> &'static str {
        match self {
            Self::Dev => "debug",
            Self::Release => "release",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Release => "release",
        }
    }

    /// The profile of the CNI plugin, and its directory.
    const fn of_plugin(self) -> (&'static str, &'static str) {
        match self {
            Self::Dev => ("dev", "debug"),
            Self::Release => ("cni", "cni"),
        }
    }
}

/// The paths of a build's results.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    object: Option<PathBuf>,
    programs: PathBuf,
    profile: Profile,
    /// As Debian and the OCI image specification call it.
    architecture: String,
    strip: String,
}

impl Built {
    /// A program of this build, by its file name.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// The profile with which they were compiled.
    pub(crate) const fn profile(&self) -> Profile {
        self.profile
    }

    /// The architecture of the programs.
    pub(crate) fn architecture(&self) -> &str {
        &self.architecture
    }

    /// The command that removes symbols from a program.
    pub(crate) fn strip(&self) -> &str {
        &self.strip
    }

    /// Sets the variables that name the agent and its profile, the CNI plugin and the BPF object
    /// (`FLANNEL_AGENT`, `FLANNEL_AGENT_PROFILE`, `FLANNEL_CNI`, `FLANNEL_BPF_OBJECT`).
    pub(crate) fn announce(&self, command: &mut Command) {
        command.env("FLANNEL_AGENT", self.program(AGENT));
        command.env("FLANNEL_AGENT_PROFILE", self.profile.name());
        command.env("FLANNEL_CNI", self.program(PLUGIN));
        announce_object(command, self.object.as_deref());
    }
}

/// The BPF object to build, and the toolchain to build it with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bpf<'a> {
    toolchain: &'a Toolchain,
    log: bool,
}

impl<'a> Bpf<'a> {
    /// The object as it is shipped.
    pub(crate) const fn release(toolchain: &'a Toolchain) -> Self {
        Self {
            toolchain,
            log: false,
        }
    }

    /// One whose programs log, if `log` is set.
    pub(crate) const fn with_log(toolchain: &'a Toolchain, log: bool) -> Self {
        Self { toolchain, log }
    }
}

/// The machine to build for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Machine<'a> {
    /// One as this.
    Here,
    /// One of another architecture.
    Other(&'a Cross),
}

/// Builds the object (unless none is asked for) and the `parts` in release mode.
pub(crate) fn build(
    workspace: &Workspace,
    bpf: Option<Bpf<'_>>,
    parts: Parts,
) -> anyhow::Result<Built> {
    build_with(|| workspace.cargo(), workspace, bpf, parts, Machine::Here)
}

/// Sets up, and builds the object and with the dev profile these programs. What is fetched is
/// fetched while that is compiled which needs no object.
pub(crate) fn build_for_lab(
    setup: &Setup<'_>,
    needs: Needs,
    programs: &[&str],
) -> anyhow::Result<Built> {
    let workspace = setup.workspace();
    setup.machine(Needs::COMPILE)?;
    let built = thread::scope(|scope| {
        let object = scope.spawn(|| {
            setup.machine(needs)?;
            build_objects(
                workspace,
                Some(Bpf::release(&setup.bpf()?)),
                Machine::Here,
                Profile::Dev,
            )
        });
        let early = cargo::compile(
            &mut early_build(workspace),
            "what needs no BPF programs",
            |_| (),
        );
        let built = object.join().ok().context("the set-up panicked")?;
        early.and(built)
    })?;
    let mut cargo = dev_build(workspace, &built, &["build"]);
    cargo.args(programs.iter().map(|name| format!("--bin={name}")));
    println!("build: {}", programs.join(", "));
    cargo::compile(&mut cargo, "the lab's programs", |_| ())?;
    Ok(built)
}

/// A build of the tests that need no BPF programs: with them most libraries are compiled.
pub(crate) fn early_build(workspace: &Workspace) -> Command {
    let mut cargo = workspace.cargo_for_tests();
    cargo
        .arg("build")
        .args(ONE_GRAPH)
        .args(workspace::locked())
        .args(EARLY.map(|name| format!("--test={name}")));
    cargo
}

/// A build of the dev profile by a verb of cargo, whose targets must be added.
pub(crate) fn dev_build(workspace: &Workspace, built: &Built, verb: &[&str]) -> Command {
    let mut cargo = workspace.cargo_for_tests();
    cargo.args(verb).args(ONE_GRAPH).args(workspace::locked());
    announce_object(&mut cargo, built.object.as_deref());
    cargo
}

/// The variables that `cargo auditable` sets, but for the directory of its program: cargo makes the
/// names of symbols from the wrapper's path too, so programs would differ by the directory of the
/// project.
const AUDITABLE: [(&str, &str); 2] = [
    ("RUSTC_WORKSPACE_WRAPPER", "cargo-auditable"),
    (
        "CARGO_AUDITABLE_ORIG_ARGS",
        r#"{"offline":false,"locked":true,"frozen":false,"config":[]}"#,
    ),
];

/// Builds what is shipped: each program has a list of its crates in the section `.dep-v0`, for
/// scanners of known vulnerabilities, and names no directory of this machine. `auditable` is the
/// directory of cargo-auditable.
pub(crate) fn build_auditable(
    workspace: &Workspace,
    bpf: Bpf<'_>,
    auditable: &Path,
    machine: Machine<'_>,
) -> anyhow::Result<Built> {
    let cargo = || {
        let mut cargo = workspace.cargo_with(auditable);
        cargo.envs(AUDITABLE);
        add_flags(&mut cargo, &workspace.path_maps());
        cargo
    };
    build_with(cargo, workspace, Some(bpf), Parts::Agent, machine)
}

fn build_with(
    cargo: impl Fn() -> Command,
    workspace: &Workspace,
    bpf: Option<Bpf<'_>>,
    parts: Parts,
    machine: Machine<'_>,
) -> anyhow::Result<Built> {
    let built = build_objects(workspace, bpf, machine, Profile::Release)?;
    build_programs(cargo, workspace, &built, parts, machine)?;
    Ok(built)
}

/// Builds the object. The programs that are not built yet will be where the result says.
pub(crate) fn build_objects(
    workspace: &Workspace,
    bpf: Option<Bpf<'_>>,
    machine: Machine<'_>,
    profile: Profile,
) -> anyhow::Result<Built> {
    let object = bpf.map(|bpf| build_object(workspace, bpf)).transpose()?;
    Ok(match machine {
        Machine::Here => Built {
            object,
            programs: workspace.target().join(profile.dir()),
            profile,
            architecture: workspace.architecture()?,
            strip: "strip".to_owned(),
        },
        Machine::Other(cross) => Built {
            object,
            programs: cross.programs(profile.dir()),
            profile,
            architecture: Cross::ARCHITECTURE.to_owned(),
            strip: Cross::strip(),
        },
    })
}

fn build_programs(
    cargo: impl Fn() -> Command,
    workspace: &Workspace,
    built: &Built,
    parts: Parts,
    machine: Machine<'_>,
) -> anyhow::Result<()> {
    build_agent(cargo(), built, machine)?;
    if parts == Parts::AgentAndLab {
        build_lab(cargo(), built)?;
    }
    build_plugin(cargo(), workspace, built, machine)?;
    if let Machine::Other(cross) = machine {
        [AGENT, PLUGIN]
            .iter()
            .try_for_each(|name| cross.try_out(workspace, &built.program(name)))?;
    }
    Ok(())
}

/// Builds the lab's programs. Optimisation at link time would take minutes of each, and only the
/// agent's size matters.
fn build_lab(mut cargo: Command, built: &Built) -> anyhow::Result<()> {
    cargo
        .args(["build", "--release", "--bins", "--package=flannel-tests"])
        .args(workspace::locked());
    cargo.env("CARGO_PROFILE_RELEASE_LTO", "off");
    announce_object(&mut cargo, built.object.as_deref());
    println!("build: the lab");
    cargo::compile(&mut cargo, "the lab", |_| ())
}

fn build_agent(mut cargo: Command, built: &Built, machine: Machine<'_>) -> anyhow::Result<()> {
    let started = Instant::now();
    cargo
        .args(["build", "--release", "--bins", "--package=flannel-agent"])
        .args(workspace::locked());
    if let Machine::Other(cross) = machine {
        cross.apply(&mut cargo);
    }
    announce_object(&mut cargo, built.object.as_deref());
    println!(
        "build: the agent{}",
        if built.object.is_some() {
            ""
        } else {
            ", without BPF programs"
        }
    );
    cargo::compile(&mut cargo, "the agent", |_| ())?;
    println!(
        "build: {} ({:.1} s)",
        built.program(AGENT).display(),
        started.elapsed().as_secs_f32()
    );
    Ok(())
}

/// Builds the CNI plugin so that it runs on any host: an image's plugin is copied to hosts with an
/// older C library, another one, or none where its loader is looked for.
pub(crate) fn build_plugin(
    mut cargo: Command,
    workspace: &Workspace,
    built: &Built,
    machine: Machine<'_>,
) -> anyhow::Result<()> {
    let started = Instant::now();
    let (profile, dir) = built.profile.of_plugin();
    cargo
        .args(["build", "--profile", profile, "--package=flannel-cni"])
        .args(workspace::locked());
    let programs = match machine {
        Machine::Here => {
            let host = host_triple(workspace)?;
            cargo.args(["--target", &host]);
            workspace.target().join(host).join(dir)
        }
        Machine::Other(cross) => {
            cross.apply(&mut cargo);
            cross.programs(dir)
        }
    };
    // With --target these are not for build scripts and macros.
    add_flags(
        &mut cargo,
        &["-Ctarget-feature=+crt-static", "-Crelocation-model=static"].map(OsString::from),
    );
    println!("build: the CNI plugin");
    cargo::compile(&mut cargo, "the CNI plugin", |_| ())?;
    let program = programs.join(PLUGIN);
    let installed = built.program(PLUGIN);
    // A copy in place would be refused while the plugin runs, and another build may run too.
    fs::create_dir_all(&built.programs)
        .with_context(|| format!("cannot create {}", built.programs.display()))?;
    let new = installed.with_extension(format!("new-{}", process::id()));
    fs::copy(&program, &new)
        .with_context(|| format!("cannot copy {} to {}", program.display(), new.display()))?;
    fs::rename(&new, &installed)
        .with_context(|| format!("cannot replace {}", installed.display()))?;
    println!(
        "build: {} ({:.1} s)",
        installed.display(),
        started.elapsed().as_secs_f32()
    );
    Ok(())
}

/// Adds flags of rustc to those that the command already sets.
fn add_flags(cargo: &mut Command, flags: &[OsString]) {
    const FLAGS: &str = "CARGO_ENCODED_RUSTFLAGS";
    let set = cargo
        .get_envs()
        .find_map(|(name, value)| value.filter(|_| name == FLAGS))
        .map(OsStr::to_owned);
    let all: Vec<OsString> = set.into_iter().chain(flags.iter().cloned()).collect();
    cargo.env(FLAGS, all.join(OsStr::new("\x1f")));
}

/// The platform of this machine, as rustc names it.
pub(crate) fn host_triple(workspace: &Workspace) -> anyhow::Result<String> {
    let mut rustc = workspace.command(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let text = workspace::output(rustc.arg("-vV"))?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host
        .with_context(|| format!("rustc -vV names no host: {text}"))?
        .to_owned())
}

/// Builds the agent as it is without the BPF toolchain, with the tests' profile, and puts it where
/// the next build does not overwrite it.
pub(crate) fn build_stub(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    println!("build: an agent without BPF programs, for the tests of that case");
    let built = build_objects(workspace, None, Machine::Here, Profile::Dev)?;
    cargo::compile(
        dev_build(workspace, &built, &["build"]).arg(format!("--bin={AGENT}")),
        "the agent without programs",
        |_| (),
    )?;
    let stub = workspace.logs()?.join("flannel-agent-stub");
    let agent = built.program(AGENT);
    fs::copy(&agent, &stub)
        .with_context(|| format!("cannot copy {} to {}", agent.display(), stub.display()))?;
    Ok(stub)
}

/// Builds the programs that the lab calls for another architecture, with the tests' profile.
pub(crate) fn build_for_foreign_lab(
    workspace: &Workspace,
    built: &Built,
    cross: &Cross,
) -> anyhow::Result<()> {
    println!(
        "build: the agent for {}, with the tests' profile",
        Cross::ARCHITECTURE
    );
    let mut cargo = dev_build(workspace, built, &["build"]);
    cargo.args([AGENT, CONFINE].map(|name| format!("--bin={name}")));
    cross.apply(&mut cargo);
    cargo::compile(&mut cargo, "the agent", |_| ())?;
    build_plugin(workspace.cargo(), workspace, built, Machine::Other(cross))
}

fn build_object(workspace: &Workspace, bpf: Bpf<'_>) -> anyhow::Result<PathBuf> {
    let started = Instant::now();
    println!(
        "build: the BPF object{}, with {}",
        if bpf.log { " with its log" } else { "" },
        bpf.toolchain
    );
    let mut cargo = bpf.toolchain.cargo(workspace, "build");
    cargo
        .args([
            "--profile=bpf",
            "--package=flannel-ebpf",
            "--target",
            BPF_TARGET,
        ])
        .args(workspace::locked());
    let mut target = workspace.bpf_target();
    if bpf.log {
        // Not at the other object's path: cargo puts an object it has kept back there with its old
        // time, and the agent's build script would go on with the one it saw last.
        target.push("log");
        cargo.arg("--features=log").env("CARGO_TARGET_DIR", &target);
    }
    cargo::compile(&mut cargo, "the BPF object", |_| ())?;
    let linked = target.join(BPF_TARGET).join("bpf/flannel-ebpf");
    let bytes = check_object(&linked)?;
    let object = linked.with_extension("stripped");
    write_if_changed(
        &object,
        &object::without_debug_information(&bytes).context("cannot strip the BPF object")?,
    )?;
    println!(
        "build: {} ({:.1} s)",
        object.display(),
        started.elapsed().as_secs_f32()
    );
    Ok(object)
}

/// Writes a file, unless that is its content already: its time makes cargo build the agent again.
fn write_if_changed(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    if fs::read(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}

/// The loader needs BTF for maps and functions, and bpf-linker leaves it out silently when the
/// object was compiled without debug information; older verifiers refuse what the tests' kernel
/// takes. Returns the object.
fn check_object(object: &Path) -> anyhow::Result<Vec<u8>> {
    let bytes = fs::read(object).with_context(|| format!("cannot read {}", object.display()))?;
    ensure!(
        bytes.windows(5).any(|window| window == b".BTF\0"),
        "{} has no .BTF section: the `bpf` profile must keep debug information",
        object.display()
    );
    object::check(&bytes)
        .with_context(|| format!("{} is not for every supported kernel", object.display()))?;
    Ok(bytes)
}

fn announce_object(command: &mut Command, object: Option<&Path>) {
    match object {
        Some(object) => command.env("FLANNEL_BPF_OBJECT", object),
        // One left in the caller's environment would be embedded although a stub was asked for.
        None => command.env_remove("FLANNEL_BPF_OBJECT"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wrapper_of_a_release_has_no_directory() {
        let (name, wrapper) = AUDITABLE[0];
        assert_eq!(name, "RUSTC_WORKSPACE_WRAPPER");
        assert_eq!(Path::new(wrapper).components().count(), 1);
    }
}
