//! The process that has a port.

use std::fs;

/// A kind of sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// Sockets of UDP.
    Udp,
    /// Listening sockets of TCP.
    TcpListener,
}

impl PortKind {
    const fn tables(self) -> [&'static str; 2] {
        match self {
            Self::Udp => ["/proc/net/udp", "/proc/net/udp6"],
            Self::TcpListener => ["/proc/net/tcp", "/proc/net/tcp6"],
        }
    }

    /// The state of a socket that counts, as the table has it (`enum` in [include/net/tcp_states.h,
    /// Linux 6.1](https://elixir.bootlin.com/linux/v6.1/source/include/net/tcp_states.h)): of UDP
    /// each does.
    const fn state(self) -> Option<&'static str> {
        match self {
            Self::Udp => None,
            Self::TcpListener => Some("0A"),
        }
    }

    const fn options_of_ss(self) -> &'static str {
        match self {
            Self::Udp => "-ulnp",
            Self::TcpListener => "-tlnp",
        }
    }
}

/// Returns the process that has a port in this network namespace, in words; `None` if none has it.
/// Processes of other users than root, and of other PID namespaces, are not visible to all callers.
pub fn port_holder(kind: PortKind, port: u16) -> Option<String> {
    let tables = kind
        .tables()
        .into_iter()
        .filter_map(|table| fs::read_to_string(table).ok());
    let inode = tables
        .into_iter()
        .find_map(|table| inode_of(&table, kind, port))?;
    let ss = kind.options_of_ss();
    let hidden = || {
        format!(
            "a process that is not visible here (`ss {ss} 'sport = :{port}'` on the host names it)"
        )
    };
    Some(owner(inode).unwrap_or_else(hidden))
}

/// The inode of the socket at a port: of a row, the second column has the port, the fourth the
/// state and the tenth the inode.
fn inode_of(table: &str, kind: PortKind, port: u16) -> Option<u64> {
    table.lines().skip(1).find_map(|row| {
        let mut columns = row.split_ascii_whitespace();
        let (_, text) = columns.nth(1)?.rsplit_once(':')?;
        let state = columns.nth(1)?;
        let inode = columns.nth(5)?.parse().ok()?;
        let is_it = u16::from_str_radix(text, 16).ok()? == port
            && kind.state().is_none_or(|wanted| state == wanted);
        is_it.then_some(inode)
    })
}

/// The process that has a socket open, in words.
fn owner(inode: u64) -> Option<String> {
    let socket = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let has_it = |pid: &u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .filter_map(Result::ok);
        files
            .filter_map(|file| fs::read_link(file.path()).ok())
            .any(|target| target.as_os_str() == socket.as_str())
    };
    let pid = pids.into_iter().find(has_it)?;
    Some(format!(
        "{} (process {pid})",
        process_name(pid).unwrap_or_else(|| "a program".to_owned())
    ))
}

/// The name of a process; `None` if there is none of this number.
pub fn process_name(pid: u32) -> Option<String> {
    Some(
        fs::read_to_string(format!("/proc/{pid}/comm"))
            .ok()?
            .trim_end()
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use std::{
        net::{TcpListener, TcpStream, UdpSocket},
        process,
    };

    use super::*;

    #[test]
    fn the_process_with_a_udp_port_is_named() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let port = socket.local_addr().expect("an address").port();
        let holder = port_holder(PortKind::Udp, port).expect("this process");
        assert!(
            holder.ends_with(&format!("(process {})", process::id())),
            "{holder}"
        );
        drop(socket);
        assert_ne!(port_holder(PortKind::Udp, port), Some(holder));
    }

    #[test]
    fn only_a_listener_has_a_tcp_port() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("an address");
        let client = TcpStream::connect(address).expect("a connection");
        let accepted = listener.accept().expect("the connection");
        let holder = port_holder(PortKind::TcpListener, address.port()).expect("this process");
        assert!(
            holder.ends_with(&format!("(process {})", process::id())),
            "{holder}"
        );
        drop(listener);
        assert_eq!(
            port_holder(PortKind::TcpListener, address.port()),
            None,
            "only a connection has it"
        );
        drop((client, accepted));
    }
}
