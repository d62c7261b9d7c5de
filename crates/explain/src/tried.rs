//! The verdict of a program on a packet. Pure.

use flannel_common::abi::{
    program::Program,
    reason::{Reason, Verdict},
};

/// The verdict of a program on the packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// The program.
    pub program: Program,
    /// The device on which the packet meets it.
    pub device: String,
    /// True if the program is on that device; otherwise the packet does not meet it.
    pub attached: bool,
    /// The reasons for the verdict.
    pub reasons: Vec<Reason>,
    /// True if the attached program is of another build than the one that was tried.
    pub other_build: bool,
}

impl Tried {
    /// Returns the verdict of the last reason that does not pass the packet; `Pass` if there is
    /// none.
    pub fn verdict(&self) -> Verdict {
        let fates = self.reasons.iter().map(|reason| reason.verdict());
        fates.fold(Verdict::Pass, |worst, fate| {
            if fate == Verdict::Pass { worst } else { fate }
        })
    }
}
