//! Owners of the UDP ports of IKE: charon listens on all addresses, so one other socket is in its
//! way.

use std::fs;

use super::IpsecError;

/// IKE, and IKE through a NAT or with UDP encapsulation.
const PORTS: [u16; 2] = [500, 4500];
const TABLES: [&str; 2] = ["/proc/net/udp", "/proc/net/udp6"];

/// Fails if another process has one of the ports.
pub(super) fn check() -> Result<(), IpsecError> {
    let tables: Vec<String> = TABLES.iter().filter_map(|table| fs::read_to_string(table).ok()).collect();
    for port in PORTS {
        if let Some(inode) = tables.iter().find_map(|table| inode_of(table, port)) {
            let hidden =
                || format!("a process that is not visible here (`ss -ulnp 'sport = :{port}'` on the host names it)");
            return Err(IpsecError::PortTaken { port, owner: owner(inode).unwrap_or_else(hidden) });
        }
    }
    Ok(())
}

/// The inode of the socket at a port: second and tenth column of a row.
fn inode_of(table: &str, port: u16) -> Option<u64> {
    table.lines().skip(1).find_map(|row| {
        let mut columns = row.split_ascii_whitespace();
        let (_, text) = columns.nth(1)?.rsplit_once(':')?;
        let inode = columns.nth(7)?.parse().ok()?;
        (u16::from_str_radix(text, 16).ok()? == port).then_some(inode)
    })
}

/// The process that has a socket open, in words. Others than root's are not visible to all agents.
fn owner(inode: u64) -> Option<String> {
    let socket = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let has_it = |pid: &u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().filter_map(Result::ok);
        files.filter_map(|file| fs::read_link(file.path()).ok()).any(|target| target.as_os_str() == socket.as_str())
    };
    let pid = pids.into_iter().find(has_it)?;
    Some(format!("{} (process {pid})", name(pid).unwrap_or_else(|| "a program".to_owned())))
}

/// The name of a process.
pub(super) fn name(pid: u32) -> Option<String> {
    Some(fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use std::{net::UdpSocket, process};

    use super::*;

    #[test]
    fn the_socket_at_a_port_is_found_and_its_process_named() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let port = socket.local_addr().expect("an address").port();
        let table = fs::read_to_string(TABLES[0]).expect("the table");
        let inode = inode_of(&table, port).expect("a row");
        let owner = owner(inode).expect("this process");
        assert!(owner.ends_with(&format!("(process {})", process::id())), "{owner}");
        drop(socket);
        let table = fs::read_to_string(TABLES[0]).expect("the table");
        assert_ne!(inode_of(&table, port), Some(inode));
    }
}
