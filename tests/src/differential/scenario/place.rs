//! Nodes and pods of the lab.

/// A node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The node of the clients.
    A,
    /// The other one.
    B,
}

impl Side {
    /// Both.
    pub const ALL: [Self; 2] = [Self::A, Self::B];

    /// Its place in an array of both.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// A pod of the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// On node A; the client of every flow.
    Near,
    /// On node A, too.
    Beside,
    /// On node B.
    Far,
    /// On node B, too.
    Other,
}

impl Place {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Near, Self::Beside, Self::Far, Self::Other];

    /// Its place in an array of all.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Its node.
    pub const fn side(self) -> Side {
        match self {
            Self::Near | Self::Beside => Side::A,
            Self::Far | Self::Other => Side::B,
        }
    }
}
