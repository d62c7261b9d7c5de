//! etcd and the lease in it.

use std::time::Duration;

use clap::{Args, ValueHint};
use flannel_host::secret::Secret;
use flannel_store::etcd::{ClientFiles, Credentials, EtcdOptions, TlsFiles};

use super::{
    check::{Checks, OptionMistake},
    warning::OptionWarning,
};

/// Flannel's lease lifetime in minutes; the renew margin is written on this scale.
const DAY_MINUTES: i64 = 1440;

/// Flags of the way to etcd.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "etcd")]
#[expect(clippy::struct_field_names, reason = "the flags have these names")]
pub struct EtcdAccess {
    /// Comma-separated list of etcd endpoints; one is used until it fails, then the next
    #[arg(
        long,
        value_name = "URL,...",
        default_value = "http://127.0.0.1:4001,http://127.0.0.1:2379"
    )]
    etcd_endpoints: String,
    /// Our keys in etcd are PATH/config and PATH/subnets/...
    #[arg(long, value_name = "PATH", default_value = "/coreos.com/network")]
    etcd_prefix: String,
    /// CA certificates for https endpoints, PEM; a client certificate is not required [default: the
    /// system's roots]
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        default_value = "",
        hide_default_value = true,
    )]
    etcd_cafile: String,
    /// Our certificate for https endpoints, PEM; with its key or not at all. Read again for every
    /// new connection; ignored with http endpoints
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        default_value = "",
        hide_default_value = true,
    )]
    etcd_certfile: String,
    /// The key of --etcd-certfile, PEM
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        default_value = "",
        hide_default_value = true,
    )]
    etcd_keyfile: String,
    /// User name for etcd; if only one of name and password is set, the agent warns and connects
    /// without credentials
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    etcd_username: String,
    /// Password for etcd; prefer `FLANNELD_ETCD_PASSWORD`, which other users cannot read. Never
    /// logged
    #[arg(
        long,
        value_name = "PASSWORD",
        default_value = "",
        hide_default_value = true
    )]
    etcd_password: Secret,
}

/// Flags of the store, unless it is Kubernetes, and of the lease in it.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "etcd")]
pub(super) struct EtcdFlags {
    #[command(flatten)]
    access: EtcdAccess,
    /// Minutes before the end of a lease of a day at which it is renewed, 1 to 1439
    #[arg(
        long,
        value_name = "MINUTES",
        default_value_t = 60,
        allow_negative_numbers = true
    )]
    subnet_lease_renew_margin: i64,
    /// Lifetime of the subnet lease in seconds; the margin is scaled to it
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 86_400,
        hide = true,
        allow_negative_numbers = true
    )]
    subnet_lease_ttl: i64,
}

impl EtcdFlags {
    pub(super) fn check(&self, checks: &mut Checks) -> EtcdOptions {
        let (lease_ttl, renew_margin) = self.lease_times(checks);
        EtcdOptions {
            lease_ttl,
            renew_margin,
            ..self.access.check(checks)
        }
    }

    /// Returns the flags that have no effect, or not with all of these endpoints.
    pub(super) fn warnings(&self, endpoints: &[String]) -> Vec<OptionWarning> {
        self.access.warnings(endpoints)
    }

    /// Lifetime and margin. The margin keeps its proportion to a day whatever the lifetime is.
    fn lease_times(&self, checks: &mut Checks) -> (Duration, Duration) {
        let (margin, ttl) = (self.subnet_lease_renew_margin, self.subnet_lease_ttl);
        if !(1..DAY_MINUTES).contains(&margin) {
            checks.refuse("subnet-lease-renew-margin", margin, "1 to 1439 minutes");
        }
        let Some(seconds) = u32::try_from(ttl).ok().filter(|seconds| *seconds > 0) else {
            checks.refuse("subnet-lease-ttl", ttl, "1 to 4294967295 seconds");
            return (Duration::ZERO, Duration::ZERO);
        };
        let ttl = Duration::from_secs(seconds.into());
        let in_minutes = |minutes: i64| u32::try_from(minutes.clamp(1, DAY_MINUTES)).unwrap_or(1);
        (ttl, ttl * in_minutes(margin) / in_minutes(DAY_MINUTES))
    }
}

impl EtcdAccess {
    /// The names of its flags; each has a variable, as all flags of the agent.
    pub const FLAGS: [&str; 7] = [
        "etcd-endpoints",
        "etcd-prefix",
        "etcd-cafile",
        "etcd-certfile",
        "etcd-keyfile",
        "etcd-username",
        "etcd-password",
    ];

    /// The options for a command that takes no lease; else the mistakes.
    pub fn options(&self) -> Result<EtcdOptions, Vec<OptionMistake>> {
        let mut checks = Checks::default();
        let options = self.check(&mut checks);
        if checks.mistakes.is_empty() {
            Ok(options)
        } else {
            Err(checks.mistakes)
        }
    }

    fn check(&self, checks: &mut Checks) -> EtcdOptions {
        EtcdOptions {
            endpoints: self.endpoints(checks),
            tls: self.tls(),
            prefix: self.etcd_prefix.clone(),
            credentials: self.credentials(),
            lease_ttl: Duration::ZERO,
            renew_margin: Duration::ZERO,
        }
    }

    /// Returns the flags that have no effect, or not with all of these endpoints.
    fn warnings(&self, endpoints: &[String]) -> Vec<OptionWarning> {
        let half_user = self.etcd_username.is_empty() != self.etcd_password.reveal().is_empty();
        let half_client = self.etcd_certfile.is_empty() != self.etcd_keyfile.is_empty();
        let named = [&self.etcd_cafile, &self.etcd_certfile, &self.etcd_keyfile]
            .iter()
            .any(|path| !path.is_empty());
        let plain = named
            && endpoints
                .iter()
                .any(|endpoint| endpoint.starts_with("http://"));
        let warnings = [
            (half_user, OptionWarning::HalfCredentials),
            (half_client, OptionWarning::HalfClientCertificate),
            (plain, OptionWarning::PlainEndpoints),
        ];
        warnings
            .into_iter()
            .filter_map(|(applies, warning)| applies.then_some(warning))
            .collect()
    }

    fn credentials(&self) -> Option<Credentials> {
        let both = !self.etcd_username.is_empty() && !self.etcd_password.reveal().is_empty();
        both.then(|| Credentials {
            username: self.etcd_username.clone(),
            password: self.etcd_password.clone(),
        })
    }

    /// The files of TLS. One of certificate and key without the other is none, as in flanneld.
    fn tls(&self) -> TlsFiles {
        let file = |path: &str| (!path.is_empty()).then(|| path.into());
        let pair = file(&self.etcd_certfile).zip(file(&self.etcd_keyfile));
        TlsFiles {
            ca: file(&self.etcd_cafile),
            client: pair.map(|(certificate, key)| ClientFiles { certificate, key }),
        }
    }

    /// A password may have a comma, so user information is looked for before the list is split.
    fn endpoints(&self, checks: &mut Checks) -> Vec<String> {
        const REMEDY: &str = "use --etcd-username and FLANNELD_ETCD_PASSWORD, or --etcd-password";
        if self.etcd_endpoints.contains('@') {
            checks.mistakes.push(OptionMistake::UserInfo {
                flag: "etcd-endpoints",
                remedy: REMEDY,
            });
            return Vec::new();
        }
        self.etcd_endpoints
            .split(',')
            .filter_map(|text| endpoint(text.trim(), checks))
            .collect()
    }
}

fn endpoint(text: &str, checks: &mut Checks) -> Option<String> {
    match text.split_once("://").unwrap_or(("http", text)) {
        (scheme @ ("http" | "https"), host)
            if !host.is_empty() && !host.contains(char::is_whitespace) =>
        {
            Some(format!("{scheme}://{}", host.trim_end_matches('/')))
        }
        _ => {
            checks.refuse(
                "etcd-endpoints",
                text,
                "http://host:port or https://host:port, comma-separated",
            );
            None
        }
    }
}
