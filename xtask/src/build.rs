//! Builds the BPF object and, around it, the agent; and the CNI plugin, statically linked.
//!
//! The object is built first, with its own toolchain, into a target directory of its own; the
//! agent's build script takes it from `FLANNEL_BPF_OBJECT`. Without that variable the agent gets a
//! stub in its place.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{self, Command},
    thread,
    time::Instant,
};

use anyhow::{Context as _, ensure};

use crate::{
    object,
    setup::{cross::Cross, toolchain::Toolchain},
    workspace::{self, BPF_TARGET, Workspace},
};

/// The file name of the CNI plugin.
const PLUGIN: &str = "flannel";

/// The programs to build in addition to the BPF object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parts {
    /// The agent's programs and the CNI plugin.
    Agent,
    /// The same, the demo and the bench.
    AgentAndLab,
}

/// The paths of a build's results.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    object: Option<PathBuf>,
    release: PathBuf,
    /// As Debian and the OCI image specification call it.
    architecture: String,
    strip: String,
}

impl Built {
    /// A program of this build, by its file name.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.release.join(name)
    }

    /// The architecture of the programs.
    pub(crate) fn architecture(&self) -> &str {
        &self.architecture
    }

    /// The command that removes symbols from a program.
    pub(crate) fn strip(&self) -> &str {
        &self.strip
    }

    /// Sets the variables that name the agent, the CNI plugin and the BPF object for a command
    /// (`FLANNEL_AGENT`, `FLANNEL_CNI`, `FLANNEL_BPF_OBJECT`).
    pub(crate) fn announce(&self, command: &mut Command) {
        command.env("FLANNEL_AGENT", self.program("flannel-agent"));
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
        Self { toolchain, log: false }
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
pub(crate) fn build(workspace: &Workspace, bpf: Option<Bpf<'_>>, parts: Parts) -> anyhow::Result<Built> {
    build_with(|| workspace.cargo(), workspace, bpf, parts, Machine::Here)
}

/// Builds the programs around an object, and runs `meanwhile` at the same time: the agent is
/// optimised at link time, for minutes on one CPU.
pub(crate) fn build_agent_while<T: Send>(
    workspace: &Workspace,
    built: &Built,
    meanwhile: impl FnOnce() -> T + Send,
) -> anyhow::Result<T> {
    thread::scope(|scope| {
        let other = scope.spawn(meanwhile);
        build_programs(|| workspace.cargo(), workspace, built, Parts::Agent, Machine::Here)?;
        other.join().ok().context("what ran during the build panicked")
    })
}

/// Builds what is shipped: each program has a list of its crates in the section `.dep-v0`, for
/// scanners of known vulnerabilities. `auditable` is the directory of cargo-auditable.
pub(crate) fn build_auditable(
    workspace: &Workspace,
    bpf: Bpf<'_>,
    auditable: &Path,
    machine: Machine<'_>,
) -> anyhow::Result<Built> {
    let cargo = || {
        let mut cargo = workspace.cargo_with(auditable);
        cargo.arg("auditable");
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
    let built = build_objects(workspace, bpf, machine)?;
    build_programs(cargo, workspace, &built, parts, machine)?;
    Ok(built)
}

/// Builds the object. The programs that are not built yet will be where the result says.
pub(crate) fn build_objects(
    workspace: &Workspace,
    bpf: Option<Bpf<'_>>,
    machine: Machine<'_>,
) -> anyhow::Result<Built> {
    let object = bpf.map(|bpf| build_object(workspace, bpf)).transpose()?;
    Ok(match machine {
        Machine::Here => Built {
            object,
            release: workspace.target().join("release"),
            architecture: workspace.architecture()?,
            strip: "strip".to_owned(),
        },
        Machine::Other(cross) => Built {
            object,
            release: cross.programs("release"),
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
        ["flannel-agent", PLUGIN].iter().try_for_each(|name| cross.try_out(workspace, &built.program(name)))?;
    }
    Ok(())
}

/// Builds the lab's programs. Optimisation at link time would take minutes of each, and only the
/// agent's size matters.
fn build_lab(mut cargo: Command, built: &Built) -> anyhow::Result<()> {
    cargo.args(["build", "--release", "--bins", "--package=flannel-tests"]).args(workspace::locked());
    cargo.env("CARGO_PROFILE_RELEASE_LTO", "off");
    announce_object(&mut cargo, built.object.as_deref());
    println!("build: the lab");
    workspace::run(&mut cargo, "the lab's build")
}

fn build_agent(mut cargo: Command, built: &Built, machine: Machine<'_>) -> anyhow::Result<()> {
    let started = Instant::now();
    cargo.args(["build", "--release", "--bins", "--package=flannel-agent"]).args(workspace::locked());
    if let Machine::Other(cross) = machine {
        cross.apply(&mut cargo);
    }
    announce_object(&mut cargo, built.object.as_deref());
    println!("build: the agent{}", if built.object.is_some() { "" } else { ", without BPF programs" });
    workspace::run(&mut cargo, "the agent's build")?;
    println!("build: {} ({:.1} s)", built.program("flannel-agent").display(), started.elapsed().as_secs_f32());
    Ok(())
}

/// Builds the CNI plugin so that it runs on any host: an image's plugin is copied to hosts with an
/// older C library, another one, or none where its loader is looked for.
fn build_plugin(mut cargo: Command, workspace: &Workspace, built: &Built, machine: Machine<'_>) -> anyhow::Result<()> {
    let started = Instant::now();
    cargo.args(["build", "--profile=cni", "--package=flannel-cni"]).args(workspace::locked());
    let programs = match machine {
        Machine::Here => {
            let host = host_triple(workspace)?;
            cargo.args(["--target", &host]);
            workspace.target().join(host).join("cni")
        }
        Machine::Other(cross) => {
            cross.apply(&mut cargo);
            cross.programs("cni")
        }
    };
    // With --target these are not for build scripts and macros.
    cargo.env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static\x1f-Crelocation-model=static");
    println!("build: the CNI plugin");
    workspace::run(&mut cargo, "the CNI plugin's build")?;
    let program = programs.join(PLUGIN);
    let installed = built.program(PLUGIN);
    // A copy in place would be refused while the plugin runs, and another build may run too.
    let new = installed.with_extension(format!("new-{}", process::id()));
    fs::copy(&program, &new).with_context(|| format!("cannot copy {} to {}", program.display(), new.display()))?;
    fs::rename(&new, &installed).with_context(|| format!("cannot replace {}", installed.display()))?;
    println!("build: {} ({:.1} s)", installed.display(), started.elapsed().as_secs_f32());
    Ok(())
}

fn host_triple(workspace: &Workspace) -> anyhow::Result<String> {
    let mut rustc = workspace.command(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let text = workspace::output(rustc.arg("-vV"))?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.with_context(|| format!("rustc -vV names no host: {text}"))?.to_owned())
}

/// Builds the agent as it is without the BPF toolchain, with the tests' profile, and puts it where
/// the next build does not overwrite it.
pub(crate) fn build_stub(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    println!("build: an agent without BPF programs, for the tests of that case");
    debug_agent(workspace, None, Machine::Here)?;
    let stub = workspace.logs()?.join("flannel-agent-stub");
    let built = workspace.target().join("debug/flannel-agent");
    fs::copy(&built, &stub).with_context(|| format!("cannot copy {} to {}", built.display(), stub.display()))?;
    Ok(stub)
}

/// Builds the agent with the tests' profile, around the object of `built`.
pub(crate) fn build_debug_agent(workspace: &Workspace, built: &Built, machine: Machine<'_>) -> anyhow::Result<()> {
    println!("build: the agent, with the tests' profile");
    debug_agent(workspace, built.object.as_deref(), machine)
}

fn debug_agent(workspace: &Workspace, object: Option<&Path>, machine: Machine<'_>) -> anyhow::Result<()> {
    let mut cargo = workspace.cargo();
    cargo.args(["build", "--bins", "--package=flannel-agent"]).args(workspace::locked());
    if let Machine::Other(cross) = machine {
        cross.apply(&mut cargo);
    }
    announce_object(&mut cargo, object);
    workspace::run(&mut cargo, "the agent's build")
}

fn build_object(workspace: &Workspace, bpf: Bpf<'_>) -> anyhow::Result<PathBuf> {
    let started = Instant::now();
    println!("build: the BPF object{}, with {}", if bpf.log { " with its log" } else { "" }, bpf.toolchain);
    let mut cargo = bpf.toolchain.cargo(workspace, "build");
    cargo.args(["--profile=bpf", "--package=flannel-ebpf", "--target", BPF_TARGET]).args(workspace::locked());
    let mut target = workspace.bpf_target();
    if bpf.log {
        // Not at the other object's path: cargo puts an object it has kept back there with its old
        // time, and the agent's build script would go on with the one it saw last.
        target.push("log");
        cargo.arg("--features=log").env("CARGO_TARGET_DIR", &target);
    }
    workspace::run(&mut cargo, "the BPF object's build")?;
    let object = target.join(BPF_TARGET).join("bpf/flannel-ebpf");
    let bytes = check_object(&object)?;
    println!("build: {} ({bytes} bytes, {:.1} s)", object.display(), started.elapsed().as_secs_f32());
    Ok(object)
}

/// The loader needs BTF for maps and functions, and bpf-linker leaves it out silently when the
/// object was compiled without debug information; older verifiers refuse what the tests' kernel
/// takes. Returns the object's size.
fn check_object(object: &Path) -> anyhow::Result<usize> {
    let bytes = fs::read(object).with_context(|| format!("cannot read {}", object.display()))?;
    ensure!(
        bytes.windows(5).any(|window| window == b".BTF\0"),
        "{} has no .BTF section: the `bpf` profile must keep debug information",
        object.display()
    );
    object::check(&bytes).with_context(|| format!("{} is not for every supported kernel", object.display()))?;
    Ok(bytes.len())
}

fn announce_object(command: &mut Command, object: Option<&Path>) {
    match object {
        Some(object) => command.env("FLANNEL_BPF_OBJECT", object),
        // One left in the caller's environment would be embedded although a stub was asked for.
        None => command.env_remove("FLANNEL_BPF_OBJECT"),
    };
}
