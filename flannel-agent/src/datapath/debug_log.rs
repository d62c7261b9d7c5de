//! The log of a debug object: what its programs say, handed on to ours. A release object has no such map.

use std::time::Duration;

use aya::programs::SchedClassifier;
use aya_log::EbpfLogger;
use tokio::time::interval;

use crate::datapath::{DatapathError, PinRoot, load::PROGRAMS};

/// Between looks into the ring buffer, which holds 128 KiB.
const PERIOD: Duration = Duration::from_millis(50);

/// Forwards until the runtime ends, if the pinned programs are those of a debug object. Call inside a Tokio runtime.
pub fn forward(pins: &PinRoot) -> Result<bool, DatapathError> {
    let program = PROGRAMS[0];
    let failed = |source| DatapathError::Program { program: program.name(), source: Box::new(source) };
    let pinned = SchedClassifier::from_pin(pins.program(program)).map_err(failed)?;
    let id = pinned.info().map_err(failed)?.id();
    match EbpfLogger::init_from_id(id) {
        Ok(logger) => {
            tokio::spawn(pump(logger));
            Ok(true)
        }
        Err(aya_log::Error::MapNotFound) => Ok(false),
        Err(source) => Err(DatapathError::Log { source }),
    }
}

async fn pump(mut logger: EbpfLogger<&'static dyn log::Log>) {
    let mut ticks = interval(PERIOD);
    loop {
        ticks.tick().await;
        logger.flush();
    }
}
