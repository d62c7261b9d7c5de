//! The container image: its content, and that the commands of the manifests work in it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context as _, Result, ensure};
use flannel_tests::{
    Lab,
    agent::{NOT_AS_SHIPPED, is_as_shipped},
    not_run,
};
use serde_json::Value;
use tempfile::TempDir;

use super::{documents::Documents, manifest, text_of};

/// Bytes of all files.
const LARGEST: u64 = 64 << 20;
/// Bytes of the archive.
const LARGEST_DOWNLOAD: u64 = 25_000_000;
/// The packages of Debian 12, from which it is known whether a vulnerability concerns the image. A
/// new dependency shows here.
const PACKAGES: &str = "base-files base-passwd busybox ca-certificates \
    containernetworking-plugins ethtool \
    iproute2 iptables libbpf1 libbsd0 libc6 libcap2 libedit2 libelf1 libgcc-s1 libgcrypt20 \
    libgmp10 libgpg-error0 libip4tc2 libip6tc2 libjansson4 liblz4-1 liblzma5 libmd0 libmnl0 \
    libnetfilter-conntrack3 libnfnetlink0 libnftables1 libnftnl11 libssl3 libstrongswan \
    libstrongswan-standard-plugins libsystemd0 libtinfo6 libxtables12 libzstd1 netbase \
    nftables strongswan-charon strongswan-libcharon strongswan-swanctl zlib1g";
const DOCKER_OPTIONS: &str = "echo FLANNEL_SUBNET=10.1.74.1/24 > /tmp/subnet.env && \
    /opt/bin/mk-docker-opts.sh -f /tmp/subnet.env -d /tmp/docker && grep -q bip=10.1.74.1/24 \
    /tmp/docker";
/// Runs a command in the image: `$1` is its root, `$2` the directory of a volume or empty, `$3` the
/// place of that volume.
const CONTAINER: &str = r#"
    root=$1 volume=$2 place=$3; shift 3
    mount -t proc proc "$root/proc" || exit 125
    if [ -n "$volume" ]; then mkdir -p "$root$place" && mount --bind "$volume" "$root$place" || exit 125; fi
    exec chroot "$root" "$@"
"#;

/// The image, unpacked.
struct Image {
    dir: TempDir,
    config: Value,
}

impl Image {
    /// That of `FLANNEL_IMAGE`.
    fn unpack() -> Result<Option<Self>> {
        let Some(archive) = env::var_os("FLANNEL_IMAGE").map(PathBuf::from) else {
            not_run(
                "the container image",
                "FLANNEL_IMAGE names no archive of `cargo xtask image`",
            );
            return Ok(None);
        };
        let dir = tempfile::tempdir()?;
        untar(&archive, &dir.path().join("layout"))?;
        let json = |name: &str| -> Result<Value> {
            Ok(serde_json::from_str(&fs::read_to_string(
                dir.path().join("layout").join(name),
            )?)?)
        };
        let manifest = json("manifest.json")?[0].clone();
        for layer in manifest["Layers"].as_array().context("layers")? {
            let layer = dir
                .path()
                .join("layout")
                .join(layer.as_str().context("a path")?);
            untar(&layer, &dir.path().join("root"))?;
        }
        let config = json(manifest["Config"].as_str().context("a path")?)?;
        Ok(Some(Self { dir, config }))
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    /// Returns the command line that runs a command in the image, in a new mount namespace, with a
    /// volume.
    fn argv(&self, volume: Option<(&Path, &str)>, command: &[&str]) -> Vec<String> {
        let root = self.root().display().to_string();
        let (volume, place) = volume.map_or_else(Default::default, |(dir, place)| {
            (dir.display().to_string(), place)
        });
        let before = [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            CONTAINER,
            "container",
        ];
        let parts = before
            .into_iter()
            .chain([root.as_str(), volume.as_str(), place]);
        parts
            .chain(command.iter().copied())
            .map(str::to_owned)
            .collect()
    }

    fn run(&self, volume: Option<(&Path, &str)>, command: &[&str]) -> Result<Output> {
        let argv = self.argv(volume, command);
        let output = Command::new(&argv[0]).args(&argv[1..]).output()?;
        ensure!(output.status.success(), "{command:?}: {}", text_of(&output));
        Ok(output)
    }
}

fn untar(archive: &Path, into: &Path) -> Result<()> {
    fs::create_dir_all(into)?;
    let output = Command::new("tar")
        .arg("-xf")
        .arg(archive)
        .arg("-C")
        .arg(into)
        .output()?;
    ensure!(
        output.status.success(),
        "{}: {}",
        archive.display(),
        text_of(&output)
    );
    Ok(())
}

/// Collects every regular file below a directory; leaves out links.
fn files(dir: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            files(&entry.path(), found)?;
        } else if entry.file_type()?.is_file() {
            found.push(entry.path());
        }
    }
    Ok(())
}

#[test]
fn the_image_has_the_packages_it_is_known_for() -> Result<()> {
    let Some(image) = Image::unpack()? else {
        return Ok(());
    };
    let mut names: Vec<String> = fs::read_dir(image.root().join("var/lib/dpkg/status.d"))?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    names.sort();
    let os = fs::read_to_string(image.root().join("usr/lib/os-release"))?;
    if os.contains("\nVERSION_ID=\"12\"\n") && os.contains("\nID=debian\n") {
        assert_eq!(names, PACKAGES.split_ascii_whitespace().collect::<Vec<_>>());
    } else {
        not_run("the list of packages", "it is that of Debian 12");
    }
    assert_eq!(image.config["config"]["Entrypoint"][0], "/opt/bin/flanneld");
    assert_eq!(
        image.config["config"]["Labels"]["org.opencontainers.image.version"],
        env!("CARGO_PKG_VERSION")
    );
    Ok(())
}

/// The loader names what it does not find. Plugins are loaded by name, so no program names their
/// libraries.
const LIBRARIES: &str = "loader=$(echo /lib*/ld-linux*.so.*); loader=${loader##* }; \
    for file in /usr/bin/* /usr/sbin/* /usr/lib/cni/* /opt/bin/* /usr/lib/ipsec/charon \
    /usr/lib/ipsec/plugins/*.so /usr/lib/*-linux-gnu/xtables/*.so; do \
    $loader --list $file 2>&1 | sed \"s|^|$file: |\"; done";

#[test]
fn no_program_of_the_image_misses_a_library() -> Result<()> {
    let Some(image) = Image::unpack()? else {
        return Ok(());
    };
    let output = text_of(&image.run(None, &["sh", "-c", LIBRARIES])?);
    let missing: Vec<&str> = output
        .lines()
        .filter(|line| line.contains("not found") || line.contains("cannot open"))
        .collect();
    ensure!(missing.is_empty(), "{missing:#?}");
    for program in [
        "/usr/sbin/nft",
        "/usr/lib/ipsec/plugins/libstrongswan-openssl.so",
    ] {
        let found = |line: &str| line.starts_with(program) && line.contains("libc.so");
        ensure!(output.lines().any(found), "{program}: {output}");
    }
    // strongSwan ends its threads with it, and no dynamic section names it.
    image.run(None, &["sh", "-c", "ls /lib/*-linux-gnu/libgcc_s.so.1"])?;
    Ok(())
}

#[test]
fn the_image_is_small() -> Result<()> {
    if !is_as_shipped() {
        not_run("the size of the image", NOT_AS_SHIPPED);
        return Ok(());
    }
    let Some(image) = Image::unpack()? else {
        return Ok(());
    };
    let mut all = Vec::new();
    files(&image.root(), &mut all)?;
    let bytes: u64 = all
        .iter()
        .map(|file| Ok(fs::metadata(file)?.len()))
        .sum::<Result<u64>>()?;
    let download = fs::metadata(env::var("FLANNEL_IMAGE")?)?.len();
    println!(
        "the image: {} files, {bytes} bytes, {download} bytes to download",
        all.len()
    );
    ensure!(bytes < LARGEST, "{bytes} bytes");
    ensure!(download < LARGEST_DOWNLOAD, "{download} bytes to download");
    Ok(())
}

#[test]
fn the_programs_that_are_called_run_in_the_image() -> Result<()> {
    let Some(image) = Image::unpack()? else {
        return Ok(());
    };
    for command in [
        &["/opt/bin/flanneld", "--version"][..],
        &["flannel-agent", "status", "--help"],
        &["sh", "-c", DOCKER_OPTIONS],
        &["ip", "-V"],
        &["bridge", "-V"],
        &["tc", "-V"],
        &["nstat", "-V"],
        &["ethtool", "--version"],
        &["nft", "--version"],
        &["iptables", "--version"],
        &["iptables-legacy", "--version"],
        &["ip6tables-save", "--version"],
        &[
            "sh",
            "-c",
            "cd /tmp && echo x > a && tar -cf b a && cp -f b c && grep -q x c",
        ],
        &["/usr/lib/ipsec/charon", "--version"],
        &["swanctl", "--help"],
        &[
            "sh",
            "-c",
            "for plugin in /usr/lib/cni/*; do echo {} | CNI_COMMAND=VERSION $plugin || exit 1; \
             done",
        ],
        &[
            "sh",
            "-c",
            "test -s /etc/ssl/certs/ca-certificates.crt && test -s /opt/share/flannel-agent.json",
        ],
    ] {
        image.run(None, command)?;
    }
    Ok(())
}

/// Runs the commands of a manifest's containers: the init containers with their volumes, and the
/// agent with `--version` after its flags. Stock's manifest uses `cp` and `install-conf`, this
/// project's uses `flannel-agent install`.
fn containers_run(image: &Image, documents: &Documents) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let configuration = image.root().join("etc/kube-flannel/cni-conf.json");
    fs::create_dir_all(configuration.parent().context("a directory")?)?;
    fs::write(&configuration, "{}")?;
    for (index, place, file) in [
        (0, "/opt/cni/bin", "flannel"),
        (1, "/etc/cni/net.d", "10-flannel.conflist"),
    ] {
        let container = documents.pod(&format!("/initContainers/{index}"))?;
        let volume = scratch.path().join(index.to_string());
        fs::create_dir(&volume)?;
        image.run(Some((&volume, place)), &words(container)?)?;
        ensure!(volume.join(file).is_file(), "{container:#} makes no {file}");
    }
    let plugin = Command::new(scratch.path().join("0/flannel"))
        .env("CNI_COMMAND", "VERSION")
        .output()?;
    ensure!(
        text_of(&plugin).contains("supportedVersions"),
        "{}",
        text_of(&plugin)
    );
    let agent = documents.pod("/containers/0")?;
    // As Kubernetes puts it in.
    let words: Vec<String> = words(agent)?
        .iter()
        .map(|word| word.replace("$(POD_IP)", "192.0.2.1"))
        .collect();
    let words: Vec<&str> = words
        .iter()
        .map(String::as_str)
        .chain(["--version"])
        .collect();
    image.run(None, &words)?;
    Ok(())
}

/// The command and the arguments of a container.
fn words(container: &Value) -> Result<Vec<&str>> {
    let parts = [&container["command"], &container["args"]]
        .into_iter()
        .filter_map(Value::as_array)
        .flatten();
    parts
        .map(Value::as_str)
        .collect::<Option<_>>()
        .context("texts")
}

/// On a node with one of them, which stays.
#[test]
fn the_standard_cni_plugins_come_with_the_image_where_they_are_absent() -> Result<()> {
    let Some(image) = Image::unpack()? else {
        return Ok(());
    };
    let bin = tempfile::tempdir()?;
    fs::write(bin.path().join("portmap"), "of the node")?;
    let install = [
        "flannel-agent",
        "install",
        "--cni-plugins",
        "/opt/cni/flannel",
        "/opt/cni/bin/flannel",
    ];
    image.run(Some((bin.path(), "/opt/cni/bin")), &install)?;
    let mut names: Vec<_> = fs::read_dir(bin.path())?
        .map(|entry| Ok(entry?.file_name()))
        .collect::<Result<_>>()?;
    names.sort();
    assert_eq!(
        names,
        [
            "bandwidth",
            "bridge",
            "flannel",
            "host-local",
            "loopback",
            "portmap"
        ]
    );
    assert_eq!(
        fs::read_to_string(bin.path().join("portmap"))?,
        "of the node"
    );
    let bridge = Command::new(bin.path().join("bridge"))
        .env("CNI_COMMAND", "VERSION")
        .output()?;
    ensure!(
        text_of(&bridge).contains("supportedVersions"),
        "{}",
        text_of(&bridge)
    );
    Ok(())
}

#[test]
fn the_manifests_containers_run_in_the_image() -> Result<()> {
    let Some(image) = Image::unpack()? else {
        return Ok(());
    };
    containers_run(&image, &manifest()?)
}

/// Upstream's files, with only the image changed. `FLANNEL_UPSTREAM` is a directory with flannel's
/// `Documentation/kube-flannel.yml`.
#[test]
fn the_containers_of_flannels_own_manifest_run_in_the_image() -> Result<()> {
    let Some(image) = Image::unpack()? else {
        return Ok(());
    };
    let Some(upstream) = env::var_os("FLANNEL_UPSTREAM").map(PathBuf::from) else {
        not_run(
            "flannel's own manifest with our image",
            "FLANNEL_UPSTREAM names no directory of flannel's files",
        );
        return Ok(());
    };
    let text = fs::read_to_string(upstream.join("Documentation/kube-flannel.yml"))?;
    containers_run(&image, &Documents::parse(&text)?)
}

#[test]
fn bugtool_misses_no_program_in_the_image() -> Result<()> {
    let Some(image) = Image::unpack()? else {
        return Ok(());
    };
    let lab = Lab::new("image")?;
    let node = lab.node("n")?;
    let out = tempfile::tempdir()?;
    let volume = Some((out.path(), "/run/flannel"));
    node.run(image.argv(
        volume,
        &[
            "flannel-agent",
            "bugtool",
            "-o",
            "/run/flannel/report.tar.gz",
        ],
    ))?;
    untar(
        &out.path().join("report.tar.gz"),
        &out.path().join("report"),
    )?;
    let mut pieces = Vec::new();
    files(&out.path().join("report"), &mut pieces)?;
    ensure!(pieces.len() > 20, "{pieces:?}");
    for piece in pieces {
        let text = String::from_utf8_lossy(&fs::read(&piece)?).into_owned();
        ensure!(
            !text.contains("is not installed"),
            "{}: {text}",
            piece.display()
        );
    }
    Ok(())
}
