//! Stock's traffic rules by iptables, and how it writes them.

use anyhow::Result;

use crate::Host;

/// Installs masquerade and forward rules for a node's subnet of 10.244.0.0/16. Empties an existing
/// chain first, and its jump moves to the end: in between the rules are missing for a moment, as
/// with stock.
pub(super) fn install(host: &Host, subnet: &str) -> Result<()> {
    for (table, chain) in [("nat", "FLANNEL-POSTRTG"), ("filter", "FLANNEL-FWD")] {
        let made = host
            .command(["iptables", "-w", "-t", table, "-N", chain])
            .any_code()
            .run()?;
        if made.code != 0 {
            host.sh(&format!("iptables -w -t {table} -F {chain}"))?;
        }
    }
    let [masquerade, forward] = [
        ("nat", "POSTROUTING", "FLANNEL-POSTRTG", "flanneld masq"),
        ("filter", "FORWARD", "FLANNEL-FWD", "flanneld forward"),
    ]
    .map(|(table, hook, chain, comment)| jump(host, table, hook, chain, comment));
    let text = format!(
        r#"*nat
{}-A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG -s {subnet} -d 10.244.0.0/16 -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG -s 10.244.0.0/16 -d {subnet} -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG ! -s 10.244.0.0/16 -d {subnet} -m comment --comment "flanneld masq" -j RETURN
-A FLANNEL-POSTRTG -s 10.244.0.0/16 ! -d 224.0.0.0/4 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
-A FLANNEL-POSTRTG ! -s 10.244.0.0/16 -d 10.244.0.0/16 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully
COMMIT
*filter
{}-A FLANNEL-FWD -s 10.244.0.0/16 -m comment --comment "flanneld forward" -j ACCEPT
-A FLANNEL-FWD -d 10.244.0.0/16 -m comment --comment "flanneld forward" -j ACCEPT
COMMIT
"#,
        masquerade?, forward?
    );
    host.command(["iptables-restore", "-w", "--noflush"])
        .input(&text)
        .run()
        .map(drop)
}

/// The lines that put the jump to a chain at the end of the kernel's.
fn jump(host: &Host, table: &str, hook: &str, chain: &str, comment: &str) -> Result<String> {
    let rule = ["-m", "comment", "--comment", comment, "-j", chain];
    let check = ["iptables", "-w", "-t", table, "-C", hook]
        .into_iter()
        .chain(rule);
    let is_there = host.command(check).any_code().run()?.code == 0;
    let line = format!("{hook} -m comment --comment \"{comment}\" -j {chain}\n");
    Ok(if is_there {
        format!("-D {line}-A {line}")
    } else {
        format!("-A {line}")
    })
}
