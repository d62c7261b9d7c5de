//! Mode `fast` does to packets what mode `kernel` does to them: the same comes out, at the same
//! places, and nothing else.

mod bulk;
mod cases;
mod packets;
mod seen;
