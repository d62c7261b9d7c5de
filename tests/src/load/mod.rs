//! Traffic between hosts of the lab, measured.

pub mod bulk;
pub mod datagrams;
pub mod flows;
pub mod iperf;
pub mod nfqueue;
pub mod rr;
pub mod segmented;
mod tally;
pub mod udp;

pub use self::udp::{UdpLoad, UdpReport, UdpRun, udp_stream};
