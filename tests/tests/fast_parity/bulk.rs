//! Large amounts of data: every byte arrives as it was sent, both ways at once, over a cable with offloads and over one
//! without, and by far most packets are replayed.
