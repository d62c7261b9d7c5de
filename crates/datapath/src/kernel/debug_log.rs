//! The log of a debug object: what its programs say, handed on to ours. A release object has no
//! such map.

use std::time::Duration;

use aya::Ebpf;
use aya_log::EbpfLogger;
use tokio::time::interval;

use crate::DatapathError;

/// Between looks into the ring buffer, which holds 128 KiB.
const PERIOD: Duration = Duration::from_millis(50);

/// The log of the programs that were just loaded.
pub struct DebugLog(EbpfLogger<&'static dyn log::Log>);

impl DebugLog {
    /// Takes the log out of a loaded object, if it is a debug one.
    pub(crate) fn of(ebpf: &mut Ebpf) -> Result<Option<Self>, DatapathError> {
        match EbpfLogger::init(ebpf) {
            Ok(logger) => Ok(Some(Self(logger))),
            Err(aya_log::Error::MapNotFound) => Ok(None),
            Err(source) => Err(DatapathError::Log { source }),
        }
    }

    /// Forwards what the programs say, for ever.
    pub async fn forward(mut self) {
        let mut ticks = interval(PERIOD);
        loop {
            ticks.tick().await;
            self.0.flush();
        }
    }
}
