//! The agent in flanneld's place: its name, its flags, its variables.

use std::time::Duration;

use anyhow::{Result, ensure};
use flannel_tests::{TwoNodes, cluster::VXLAN, eventually};

#[test]
fn under_flannelds_name_it_takes_flannelds_flags_and_variables() -> Result<()> {
    let pair = TwoNodes::new("name", VXLAN)?;
    let options = pair.options()?;
    let binary = options.binary.display().to_string();
    pair.a.run(["ln", "-s", &binary, "/run/flanneld"])?;
    let endpoints = format!(
        "FLANNELD_ETCD_ENDPOINTS=http://192.0.2.1:1,{}",
        pair.endpoint()
    );
    let child = pair.a.spawn(
        "flanneld",
        [
            "env",
            &endpoints,
            "FLANNELD_IFACE=nope",
            "FLANNELD_SUBNET_FILE=/run/by-variable.env",
            "FLANNELD_KUBE_SUBNET_MGR=false",
            "/run/flanneld",
            "-iface=eth0",
            "-ip-masq=false",
            "-v=0x1",
            "--subnet-lease-renew-margin",
            "120",
        ],
    )?;
    eventually(
        "the file named by a variable",
        Duration::from_secs(30),
        || {
            ensure!(child.is_running(), "ended:\n{}", child.log_tail(15));
            ensure!(
                pair.a.outside_path("/run/by-variable.env").exists(),
                "{}",
                child.log_tail(5)
            );
            Ok(())
        },
    )?;
    assert!(child.log().contains("DEBUG"), "-v=0x1 logs details");
    child.signal(nix::sys::signal::Signal::SIGTERM)?;
    child.wait_success(Duration::from_secs(10))
}

#[test]
fn under_flannelds_name_version_and_help_go_where_flanneld_sends_them() -> Result<()> {
    let pair = TwoNodes::unconfigured("version")?;
    let binary = pair.options()?.binary.display().to_string();
    pair.a.run(["ln", "-s", &binary, "/run/flanneld"])?;
    let version = pair.a.run(["/run/flanneld", "-version"])?;
    assert_eq!(
        (version.stdout.as_str(), version.stderr.as_str()),
        ("", concat!(env!("CARGO_PKG_VERSION"), "\n"))
    );
    let help = pair.a.command(["/run/flanneld", "-h"]).any_code().run()?;
    assert!(
        help.stdout.is_empty() && help.stderr.contains("--etcd-endpoints"),
        "{help:?}"
    );
    let unknown = pair
        .a
        .command(["/run/flanneld", "-nope"])
        .expect_code(64)
        .run()?;
    assert!(
        unknown.stderr.contains("unknown flag --nope"),
        "{unknown:?}"
    );
    Ok(())
}
