//! The requests to the API of Compute Engine. Pure.

use http::Method;

/// The requests that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GceAction {
    ListRoutes,
    GetRoute,
    InsertRoute,
    DeleteRoute,
    GetOperation,
    GetInstance,
}

impl GceAction {
    /// The method of the API.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::ListRoutes => "routes.list",
            Self::GetRoute => "routes.get",
            Self::InsertRoute => "routes.insert",
            Self::DeleteRoute => "routes.delete",
            Self::GetOperation => "globalOperations.get",
            Self::GetInstance => "instances.get",
        }
    }

    /// The permissions that it needs, for an answer that names none.
    pub(super) const fn permission(self) -> &'static str {
        match self {
            Self::ListRoutes => "compute.routes.list",
            Self::GetRoute => "compute.routes.get",
            Self::InsertRoute => "compute.routes.create and compute.networks.updatePolicy",
            Self::DeleteRoute => "compute.routes.delete and compute.networks.updatePolicy",
            Self::GetOperation => "compute.globalOperations.get",
            Self::GetInstance => "compute.instances.get",
        }
    }

    pub(super) const fn method(self) -> Method {
        match self {
            Self::ListRoutes | Self::GetRoute | Self::GetOperation | Self::GetInstance => {
                Method::GET
            }
            Self::InsertRoute => Method::POST,
            Self::DeleteRoute => Method::DELETE,
        }
    }
}
