//! The images of the cluster, except for our own. The cluster has no registry: each image is made
//! of compiled programs and of packages.

use std::{fs, os::unix::fs::symlink, path::Path};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::places::{self, Places};
use crate::{
    files,
    image::{
        layout::{Compression, Layer, Layout},
        root, search_path,
    },
    setup::Setup,
    workspace,
};

/// The image of every pod's first container.
const PAUSE: &str = "k8s.gcr.io/pause:3.2";
/// A server for our own tests, and a shell.
const SERVER: &str = "flannel-test:1";
/// The names under which the end-to-end tests of Kubernetes know images of many tools. One image
/// has the tools of all.
const TOOLS: [&str; 3] = [
    "k8s.gcr.io/e2e-test-images/agnhost:2.21",
    "gcr.io/kubernetes-e2e-test-images/jessie-dnsutils:1.0",
    "k8s.gcr.io/build-image/debian-iptables:buster-v1.3.0",
];
/// The same for images of a shell.
const SHELLS: [&str; 2] = ["busybox:1.29", "busybox:latest"];
/// The same for web servers: what is asked of them is an answer on port 80.
const WEB_SERVERS: [&str; 4] = [
    "httpd:2.4.38-alpine",
    "httpd:2.4.39-alpine",
    "nginx:1.14-alpine",
    "nginx:1.15-alpine",
];
/// The image of the cluster's DNS server.
const DNS: &str = "clusterdns:1";
/// Debian's packages with the tools that the end-to-end tests call in their pods.
const TOOL_PACKAGES: [&str; 21] = [
    "base-files",
    "base-passwd",
    "bash",
    "bind9-dnsutils",
    "ca-certificates",
    "conntrack",
    "coreutils",
    "curl",
    "dash",
    "grep",
    "hostname",
    "iperf",
    "iproute2",
    "iptables",
    "iputils-ping",
    "libc-bin",
    "netcat-openbsd",
    "procps",
    "sed",
    "tcpdump",
    "wget",
];

fn names(e2e: bool) -> impl Iterator<Item = &'static str> {
    let of_e2e = ["tools", "shell", "web", "dns"]
        .into_iter()
        .filter(move |_| e2e);
    ["pause", "server"].into_iter().chain(of_e2e)
}

/// Returns true if all images are kept already.
pub(super) fn are_kept(places: &Places, e2e: bool) -> bool {
    names(e2e).all(|name| places.image(name).is_file())
}

/// Makes images for one set of places.
#[derive(Debug)]
pub(super) struct Images<'a> {
    setup: &'a Setup<'a>,
    places: &'a Places,
}

impl<'a> Images<'a> {
    pub(super) fn new(setup: &'a Setup<'a>, places: &'a Places) -> Self {
        Self { setup, places }
    }

    /// The number of kept images and of all, as a line of progress shows it.
    pub(super) fn progress(&self, e2e: bool) -> String {
        let kept = names(e2e)
            .filter(|name| self.places.image(name).is_file())
            .count();
        format!("{kept} of {} images", names(e2e).count())
    }

    /// Makes those that are not kept.
    pub(super) fn make(&self, e2e: bool) -> anyhow::Result<()> {
        for name in names(e2e).filter(|name| !self.places.image(name).is_file()) {
            let tree = self.places.work("images").join(name);
            files::remove(&tree)?;
            let (names, container) = self.fill(name, &tree)?;
            self.pack(name, names, container, &tree)?;
        }
        Ok(())
    }

    /// Puts the files of an image into a directory; its names and its container's configuration.
    fn fill(&self, name: &str, tree: &Path) -> anyhow::Result<(&'static [&'static str], Value)> {
        Ok(match name {
            "pause" => {
                self.pause(&tree.join("pause"))?;
                (&[PAUSE], json!({ "Entrypoint": ["/pause"] }))
            }
            "server" => {
                self.shell(tree)?;
                self.server(tree)?;
                (
                    &[SERVER],
                    json!({ "Env": [search_path()], "Entrypoint": ["/agnhost"], "Cmd": ["pause"] }),
                )
            }
            "tools" => {
                let packages = self
                    .setup
                    .closure(&TOOL_PACKAGES, &self.places.work("debs"))?;
                root::make(self.setup.workspace(), &packages, tree)?;
                root::record(self.setup.workspace(), &packages, tree)?;
                // As update-alternatives names them.
                link("nc.openbsd", &tree.join("usr/bin/nc"))?;
                link("mawk", &tree.join("usr/bin/awk"))?;
                self.server(tree)?;
                (
                    &TOOLS,
                    json!({ "Env": [search_path()], "Entrypoint": ["/agnhost"], "Cmd": ["pause"] }),
                )
            }
            "shell" => {
                self.shell(tree)?;
                (&SHELLS, json!({ "Env": [search_path()], "Cmd": ["sh"] }))
            }
            "web" => {
                self.shell(tree)?;
                files::write(
                    &tree.join("www/index.html"),
                    "<html><body><h1>It works!</h1></body></html>\n",
                )?;
                (
                    &WEB_SERVERS,
                    json!({
                        "Env": [search_path()],
                        "Cmd": ["httpd", "-f", "-p", "80", "-h", "/www"],
                    }),
                )
            }
            _ => {
                files::install(
                    &self.places.program("clusterdns"),
                    &tree.join("clusterdns"),
                    0o755,
                )?;
                (&[DNS], json!({ "Entrypoint": ["/clusterdns"] }))
            }
        })
    }

    fn pack(
        &self,
        name: &str,
        names: &[&str],
        container: Value,
        tree: &Path,
    ) -> anyhow::Result<()> {
        let workspace = self.setup.workspace();
        let architecture = workspace.architecture()?;
        let layers = [Layer::of(
            workspace,
            tree,
            "cargo xtask cluster",
            0,
            Compression::Fast,
        )?];
        let layout = Layout {
            names,
            architecture: &architecture,
            layers: &layers,
            container,
            epoch: 0,
        };
        let work = self.places.work("images");
        let partial = work.join(format!("{name}.partial"));
        let dir = work.join(format!("{name}.layout"));
        layout.write(workspace, &dir, &partial)?;
        files::install(&partial, &self.places.image(name), 0o644)?;
        fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))
    }

    /// From the source of Kubernetes, which has it in C.
    fn pause(&self, program: &Path) -> anyhow::Result<()> {
        files::make_parent(program)?;
        let version = PAUSE.rsplit(':').next().unwrap_or_default();
        let mut cc = self.setup.workspace().command("cc");
        cc.args([
            "-Os",
            "-static",
            "-s",
            &format!("-DVERSION={version}"),
            "-o",
        ])
        .arg(program);
        workspace::run(
            cc.arg(self.places.source().join("build/pause/linux/pause.c")),
            "the compiler of pause",
        )
    }

    fn server(&self, tree: &Path) -> anyhow::Result<()> {
        files::install(
            &self.places.program("agnhost"),
            &tree.join("agnhost"),
            0o755,
        )?;
        link("agnhost", &tree.join("agnhost-2"))?;
        for name in ["localhost.crt", "localhost.key"] {
            let file = self
                .places
                .source()
                .join("test/images/agnhost/porter")
                .join(name);
            files::install(&file, &tree.join(name), 0o644)?;
        }
        places::make(&tree.join("uploads"))
    }

    /// busybox under all the names it goes by.
    fn shell(&self, tree: &Path) -> anyhow::Result<()> {
        let unpacked = self.places.work("busybox");
        self.setup.unpack(&["busybox-static"], &unpacked)?;
        let busybox = tree.join("bin/busybox");
        files::install(&unpacked.join("bin/busybox"), &busybox, 0o755)?;
        fs::remove_dir_all(&unpacked)
            .with_context(|| format!("cannot remove {}", unpacked.display()))?;
        let names = workspace::output(self.setup.workspace().command(&busybox).arg("--list"))?;
        for name in names.lines().filter(|name| *name != "busybox") {
            link("busybox", &tree.join("bin").join(name))?;
        }
        files::write(&tree.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n")?;
        files::write(&tree.join("etc/group"), "root:x:0:\n")?;
        ["root", "home"]
            .iter()
            .try_for_each(|name| places::make(&tree.join(name)))?;
        files::make_open(&tree.join("tmp"))
    }
}

fn link(to: &str, link: &Path) -> anyhow::Result<()> {
    files::make_parent(link)?;
    symlink(to, link).with_context(|| format!("cannot link {}", link.display()))
}
