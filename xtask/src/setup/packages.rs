//! The one table of packages: what proves that each is there, who needs it, and why.

use std::{fmt, path::Path};

use anyhow::bail;

use crate::workspace::Workspace;

/// Groups of packages, combined with [`Needs::and`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs(u8);

impl Needs {
    /// To compile and link the agent.
    pub(crate) const COMPILE: Self = Self(1);
    /// To run the tests, the demo and the bench.
    pub(crate) const LAB: Self = Self(2);
    /// To run the demo.
    pub(crate) const DEMO: Self = Self(64);
    /// To compile Kubernetes and to run it.
    pub(crate) const CLUSTER: Self = Self(4);
    /// To compile for another architecture, and to start what was compiled.
    pub(crate) const CROSS: Self = Self(8);
    /// To boot other kernels under emulation.
    pub(crate) const KERNELS: Self = Self(16);
    /// The same for kernels of another architecture.
    pub(crate) const OTHER_MACHINE: Self = Self(32);
    /// To make container images.
    pub(crate) const IMAGE: Self = Self(128);
    /// Everything that the verbs of every day call.
    pub(crate) const ALL: Self = Self::COMPILE.and(Self::LAB);

    /// Both groups.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn include(self, group: Self) -> bool {
        self.0 & group.0 != 0
    }
}

/// The way a package comes to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// `apt-get install`.
    Install,
    /// Unpacked below `target/tools`, because installing it would start a service.
    Unpack,
}

/// The proof that a package is there, however it was installed.
#[derive(Clone, Copy, Debug)]
enum Proof {
    Command(&'static str),
    File(&'static str),
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Package {
    /// Its name in Debian and Ubuntu.
    pub(super) name: &'static str,
    /// The way it comes to the machine.
    pub(super) source: Source,
    proof: Proof,
    needed: Needs,
    why: &'static str,
}

impl fmt::Display for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.why)
    }
}

const fn install(name: &'static str, proof: Proof, needed: Needs, why: &'static str) -> Package {
    Package {
        name,
        source: Source::Install,
        proof,
        needed,
        why,
    }
}

/// A package of strongSwan.
const fn strongswan(name: &'static str, file: &'static str, why: &'static str) -> Package {
    Package {
        name,
        source: Source::Unpack,
        proof: Proof::File(file),
        needed: Needs::LAB,
        why,
    }
}

/// The packages that the demo needs are needed by tests too.
const LAB_AND_DEMO: Needs = Needs::LAB.and(Needs::DEMO);

const TABLE: &[Package] = &[
    install(
        "gcc",
        Proof::Command("cc"),
        Needs::COMPILE,
        "links Rust programs, compiles the C and assembly in ring",
    ),
    install(
        "libc6-dev",
        Proof::File("/usr/include/stdio.h"),
        Needs::COMPILE,
        "what every program is linked with",
    ),
    install(
        "protobuf-compiler",
        Proof::Command("protoc"),
        Needs::COMPILE,
        "etcd-client's build script runs protoc",
    ),
    install(
        "libprotobuf-dev",
        Proof::File("/usr/include/google/protobuf/descriptor.proto"),
        Needs::COMPILE,
        "the definitions etcd's API imports",
    ),
    install(
        "iproute2",
        Proof::Command("ip"),
        LAB_AND_DEMO,
        "ip, bridge and tc lay out the lab's networks",
    ),
    install(
        "iputils-ping",
        Proof::Command("ping"),
        LAB_AND_DEMO,
        "reachability between pods",
    ),
    install(
        "iptables",
        Proof::Command("iptables"),
        LAB_AND_DEMO,
        "one of the two rule engines the agent drives",
    ),
    install(
        "nftables",
        Proof::Command("nft"),
        Needs::LAB,
        "the other one",
    ),
    install(
        "ethtool",
        Proof::Command("ethtool"),
        LAB_AND_DEMO,
        "offloads of the lab's devices",
    ),
    install(
        "procps",
        Proof::Command("sysctl"),
        LAB_AND_DEMO,
        "sysctls inside namespaces",
    ),
    install(
        "util-linux",
        Proof::Command("nsenter"),
        LAB_AND_DEMO,
        "unshare, nsenter, setsid and taskset",
    ),
    install(
        "mount",
        Proof::Command("mount"),
        LAB_AND_DEMO,
        "each node's own /run and /sys/fs/bpf",
    ),
    install(
        "tcpdump",
        Proof::Command("tcpdump"),
        Needs::LAB,
        "what really is on the underlay",
    ),
    install(
        "containernetworking-plugins",
        Proof::File("/usr/lib/cni/bridge"),
        Needs::LAB,
        "bridge, host-local and portmap, which the CNI plugin's tests call",
    ),
    install(
        "iperf3",
        Proof::Command("iperf3"),
        LAB_AND_DEMO,
        "throughput and long-lived flows",
    ),
    install(
        "python3",
        Proof::Command("python3"),
        Needs::LAB,
        "holds a port, or a TUN device, as other programs do",
    ),
    install(
        "etcd-client",
        Proof::Command("etcdctl"),
        Needs::LAB,
        "writes the network, as the quick start does",
    ),
    install(
        "bpftool",
        Proof::Command("bpftool"),
        Needs::LAB,
        "takes links of programs off by force",
    ),
    install(
        "zsh",
        Proof::Command("zsh"),
        Needs::LAB,
        "completes a command line, as bash does",
    ),
    install(
        "fish",
        Proof::Command("fish"),
        Needs::LAB,
        "so does this one",
    ),
    install(
        "wireguard-go",
        Proof::Command("wireguard-go"),
        Needs::LAB,
        "WireGuard where the kernel has none",
    ),
    install(
        "wireguard-tools",
        Proof::Command("wg"),
        Needs::LAB,
        "changes a WireGuard device behind the agent's back",
    ),
    install(
        "libdeflate-tools",
        Proof::Command("libdeflate-gzip"),
        Needs::IMAGE.and(Needs::LAB).and(Needs::CLUSTER),
        "packs the layers of images, smaller than gzip does",
    ),
    install(
        "dpkg-dev",
        Proof::Command("dpkg-source"),
        Needs::CLUSTER,
        "unpacks the source package of Kubernetes",
    ),
    install(
        "conntrack",
        Proof::Command("conntrack"),
        Needs::CLUSTER,
        "called by kube-proxy",
    ),
    install(
        "curl",
        Proof::Command("curl"),
        Needs::CLUSTER,
        "asks servers in the cluster",
    ),
    install(
        "gcc-aarch64-linux-gnu",
        Proof::Command("aarch64-linux-gnu-gcc"),
        Needs::CROSS,
        "links programs for arm64",
    ),
    install(
        "libc6-dev-arm64-cross",
        Proof::File("/usr/aarch64-linux-gnu/include/stdio.h"),
        Needs::CROSS,
        "what every program for arm64 is linked with",
    ),
    install(
        "qemu-system-x86",
        Proof::Command("qemu-system-x86_64"),
        Needs::KERNELS,
        "the machine of another kernel",
    ),
    install(
        "qemu-system-arm",
        Proof::Command("qemu-system-aarch64"),
        Needs::OTHER_MACHINE,
        "the machine of a kernel for arm64",
    ),
    install(
        "busybox-static",
        Proof::Command("busybox"),
        Needs::KERNELS,
        "the first programs on it",
    ),
    install(
        "ipvsadm",
        Proof::Command("ipvsadm"),
        Needs::KERNELS,
        "Services of IPVS, on kernels that have it",
    ),
    install(
        "cpio",
        Proof::Command("cpio"),
        Needs::KERNELS,
        "packs what the kernel starts with",
    ),
    install(
        "kmod",
        Proof::Command("depmod"),
        Needs::KERNELS,
        "the order of the kernel's modules",
    ),
    install(
        "xz-utils",
        Proof::Command("xz"),
        Needs::KERNELS,
        "unpacks modules",
    ),
    Package {
        name: "qemu-user-static",
        source: Source::Unpack,
        proof: Proof::Command("qemu-aarch64-static"),
        needed: Needs::CROSS,
        why: "starts a program for arm64; unpacked, because its package registers it with the \
            kernel",
    },
    strongswan(
        "strongswan-charon",
        "/usr/lib/ipsec/charon",
        "agrees on keys with the backend ipsec; unpacked, because its package starts a service",
    ),
    strongswan(
        "strongswan-libcharon",
        "/usr/lib/ipsec/libcharon.so.0",
        "what charon is linked with",
    ),
    strongswan(
        "libstrongswan",
        "/usr/lib/ipsec/libstrongswan.so.0",
        "so is this, with plugins",
    ),
    strongswan(
        "libstrongswan-standard-plugins",
        "/usr/lib/ipsec/plugins/libstrongswan-openssl.so",
        "algorithms that flannel's proposals name",
    ),
    strongswan(
        "strongswan-swanctl",
        "/usr/lib/ipsec/plugins/libstrongswan-vici.so",
        "charon's control interface",
    ),
    Package {
        name: "etcd-server",
        source: Source::Unpack,
        proof: Proof::Command("etcd"),
        needed: LAB_AND_DEMO,
        why: "the real store; unpacked, because its package starts a service",
    },
];

impl Package {
    fn is_present(&self, workspace: &Workspace) -> bool {
        match self.proof {
            Proof::Command(name) => workspace.find_command(name).is_some(),
            Proof::File(path) => {
                let unpacked = workspace.tools().join(path.trim_start_matches('/'));
                Path::new(path).exists() || (self.source == Source::Unpack && unpacked.exists())
            }
        }
    }
}

/// The rows of the given groups whose proof is not there.
pub(super) fn missing(workspace: &Workspace, needs: Needs) -> Vec<&'static Package> {
    TABLE
        .iter()
        .filter(|package| needs.include(package.needed) && !package.is_present(workspace))
        .collect()
}

/// Checks after an installation that it brought what it was for.
pub(super) fn verify(workspace: &Workspace, needs: Needs) -> anyhow::Result<()> {
    if let Some(package) = missing(workspace, needs).first() {
        bail!(
            "{} was installed, but {} is still missing",
            package.name,
            package.proof
        );
    }
    Ok(())
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(name) => write!(f, "the command `{name}`"),
            Self::File(path) => f.write_str(path),
        }
    }
}

/// Returns the message on packages that are missing and that we may not or cannot install, with the
/// remedy.
pub(super) fn explain(missing: &[&Package], obstacle: &str) -> String {
    let rows: Vec<String> = missing
        .iter()
        .map(|package| format!("  {} ({package})", package.proof))
        .collect();
    let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
    format!(
        "this machine lacks what follows, and it is not installed here because {obstacle}:\n\
         {}\n\
         On Debian or Ubuntu run, as root: apt-get install --no-install-recommends {}\n\
         Elsewhere install what provides these commands and files, or pass --skip-setup if they \
         are in other places.",
        rows.join("\n"),
        names.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_row_says_why() {
        for (index, package) in TABLE.iter().enumerate() {
            assert!(!package.why.is_empty(), "{}", package.name);
            assert!(
                TABLE[index + 1..]
                    .iter()
                    .all(|other| other.name != package.name),
                "{} twice",
                package.name
            );
        }
    }

    #[test]
    fn groups_are_apart() {
        assert!(Needs::ALL.include(Needs::LAB) && Needs::ALL.include(Needs::COMPILE));
        assert!(!Needs::COMPILE.include(Needs::LAB));
        assert!(!Needs::ALL.include(Needs::KERNELS));
    }

    #[test]
    fn the_demo_needs_less_than_the_tests() {
        let of = |group| {
            TABLE
                .iter()
                .filter(move |package| package.needed.include(group))
        };
        assert!(of(Needs::DEMO).all(|package| package.needed.include(Needs::LAB)));
        assert!(
            (8..12).contains(&of(Needs::DEMO).count()),
            "{}",
            of(Needs::DEMO).count()
        );
    }

    #[test]
    fn an_explanation_names_the_file_and_the_package() {
        let descriptor = TABLE
            .iter()
            .find(|package| package.name == "libprotobuf-dev")
            .expect("a row");
        let text = explain(&[descriptor], "it is Tuesday");
        assert!(
            text.contains("descriptor.proto") && text.contains("Tuesday"),
            "{text}"
        );
        assert!(
            text.contains("apt-get install --no-install-recommends libprotobuf-dev"),
            "{text}"
        );
    }
}
