//! Our own lease: chosen, acquired, claimed from its holder, published, renewed.

pub(super) mod acquire;
pub(super) mod choose;
pub(super) mod claim;
pub(super) mod held;
pub(super) mod publish;
pub(super) mod question;
pub(super) mod renewal;
pub(super) mod term;
