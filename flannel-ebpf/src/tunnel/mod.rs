//! The tunnel to a peer: encapsulation, validation of the path, ECMP, the source filter, and
//! reports of packets that are too big.

pub(crate) mod ecmp;
pub(crate) mod encapsulation;
pub(crate) mod packet_too_big;
pub(crate) mod path_probe;
pub(crate) mod redirected;
pub(crate) mod source_filter;
