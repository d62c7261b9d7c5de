//! Packets: access to the skb and its bytes, parameters of the address families, segmentation.
//! Nothing here knows of peers, flows or modes.

pub(crate) mod family;
pub(crate) mod load_buf;
pub(crate) mod segmentation;
pub(crate) mod skb;
