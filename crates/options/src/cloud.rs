//! Routes of clouds.

use std::time::Duration;

use clap::Args;

use super::check::Checks;

/// Flags of the routes in a cloud.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Cloud routes")]
pub(super) struct CloudFlags {
    /// Seconds between two looks at the route tables of the cloud, with a backend whose packets a
    /// cloud routes; each is a request to its API, and a route that others removed is missing until
    /// then
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60,
        allow_negative_numbers = true
    )]
    cloud_route_interval: i64,
}

impl CloudFlags {
    pub(super) fn check(&self, checks: &mut Checks) -> Duration {
        let seconds = u64::try_from(self.cloud_route_interval).unwrap_or(0);
        if !(1..=3600).contains(&seconds) {
            checks.refuse(
                "cloud-route-interval",
                self.cloud_route_interval,
                "1 to 3600 seconds",
            );
        }
        Duration::from_secs(seconds)
    }
}
