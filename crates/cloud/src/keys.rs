//! The keys of requests: those of the network configuration or the environment, or of the
//! instance's role, which are renewed before they end. They are never printed.

use flannel_host::secret::Secret;
use flannel_store::config::AccessKeys;
use jiff::{SignedDuration, Timestamp};

use super::{
    error::{CloudError, CloudWords},
    instance_metadata::InstanceMetadata,
    variable::variable,
};

/// Keys that end sooner are read again.
const LEFT: SignedDuration = SignedDuration::from_mins(4);

/// The keys of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApiKeys {
    pub(super) id: String,
    pub(super) secret: Secret,
    /// The token of a role.
    pub(super) token: Option<Secret>,
}

/// The role of an instance, as the metadata of its cloud has it.
#[derive(Debug)]
pub(super) struct RoleItem {
    /// The item with the names of roles.
    pub(super) roles: &'static str,
    /// Reads the keys of a role and their end. The error quotes nothing.
    pub(super) read: fn(&str) -> Result<(ApiKeys, Timestamp), String>,
    /// The words of the cloud.
    pub(super) words: &'static CloudWords,
}

/// The source of keys.
#[derive(Debug)]
pub(super) enum KeySource {
    /// The configuration or the environment.
    Fixed(ApiKeys),
    /// The role of the instance.
    Role(Box<RoleKeys>),
}

/// The keys of a role as last read, with their end.
#[derive(Debug)]
pub(super) struct RoleKeys {
    metadata: InstanceMetadata,
    item: &'static RoleItem,
    last: Option<(ApiKeys, Timestamp)>,
}

impl KeySource {
    /// The source that counts: the configuration before the environment before the role.
    pub(super) fn new(
        configured: Option<&AccessKeys>,
        metadata: InstanceMetadata,
        item: &'static RoleItem,
    ) -> Self {
        let fixed = |id: String, secret: Secret| {
            Self::Fixed(ApiKeys {
                id,
                secret,
                token: None,
            })
        };
        let of_environment = || variable("ACCESS_KEY_ID").zip(variable("ACCESS_KEY_SECRET"));
        match (configured, of_environment()) {
            (Some(AccessKeys { id, secret }), _) => fixed(id.clone(), secret.clone()),
            (None, Some((id, secret))) => fixed(id, secret.as_str().into()),
            (None, None) => Self::Role(Box::new(RoleKeys {
                metadata,
                item,
                last: None,
            })),
        }
    }

    /// Returns usable keys.
    pub(super) async fn current(&mut self) -> Result<ApiKeys, CloudError> {
        match self {
            Self::Fixed(keys) => Ok(keys.clone()),
            Self::Role(role) => role.current().await,
        }
    }

    /// Reads them again for the next request: they were refused.
    pub(super) fn forget(&mut self) {
        if let Self::Role(role) = self {
            role.last = None;
        }
    }
}

impl RoleKeys {
    async fn current(&mut self) -> Result<ApiKeys, CloudError> {
        if let Some((keys, end)) = &self.last
            && *end > Timestamp::now() + LEFT
        {
            return Ok(keys.clone());
        }
        let read = self.read().await?;
        Ok(self.last.insert(read).0.clone())
    }

    async fn read(&self) -> Result<(ApiKeys, Timestamp), CloudError> {
        let RoleItem { roles, read, words } = self.item;
        let names = self.metadata.item(roles).await?.unwrap_or_default();
        let Some(role) = names.lines().next() else {
            return Err(CloudError::NoCredentials(words));
        };
        let text = self.metadata.required(&format!("{roles}{role}")).await?;
        read(&text).map_err(|problem| CloudError::RoleCredentials {
            owner: format!("the role {role}"),
            problem,
        })
    }
}
