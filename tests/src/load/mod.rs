//! Traffic between hosts of the lab, measured.

pub mod bulk;
pub mod busy;
pub mod crr;
pub mod datagrams;
pub mod equal;
pub mod flood;
pub mod flows;
pub mod idle;
pub mod iperf;
pub mod rr;
pub mod segmented;
pub mod short_flows;
pub mod span;
pub mod stream;
mod tally;
pub mod udp;

pub use self::udp::{UdpLoad, UdpReport, UdpRun, udp_stream};
