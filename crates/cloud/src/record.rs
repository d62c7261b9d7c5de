//! The record of the routes that this node has in the cloud, so that `cleanup` and the next agent
//! know them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use flannel_host::file::{self, FileError, failed};
use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

/// The file in the state directory.
const FILE: &str = "cloud-routes.json";

/// A cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CloudKind {
    /// Amazon's.
    Aws,
    /// Google's.
    Gce,
    /// Tencent's.
    Tencent,
    /// Alibaba's.
    Ali,
}

impl CloudKind {
    /// Its name in the status and on record.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Aws => "aws",
            Self::Gce => "gce",
            Self::Tencent => "tencent",
            Self::Ali => "ali",
        }
    }
}

/// A route to this node in a table of the cloud.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct RecordedRoute {
    /// The cloud.
    pub(super) cloud: CloudKind,
    /// The region of the table; with gce, the project of the network.
    pub(super) region: String,
    /// The table; with gce, the network.
    pub(super) table: String,
    /// The subnet that it led to.
    pub(super) destination: Ipv4Net,
    /// The interface, instance or address it led to.
    pub(super) target: String,
}

/// The record of one state directory.
#[derive(Clone, Debug)]
pub(super) struct Record {
    path: PathBuf,
    routes: Vec<RecordedRoute>,
}

impl Record {
    /// Reads it. One that cannot be understood is logged, and counts as empty.
    pub(super) fn load(state_dir: &Path) -> Result<Self, FileError> {
        let path = path(state_dir);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self {
                    path,
                    routes: Vec::new(),
                });
            }
            text => text.map_err(failed("read", &path))?,
        };
        let routes = serde_json::from_slice(&text).unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "not a record of routes; it counts as \
                empty");
            Vec::new()
        });
        Ok(Self { path, routes })
    }

    pub(super) fn routes(&self) -> &[RecordedRoute] {
        &self.routes
    }

    /// Adds a route, in place of one with the same table and destination.
    pub(super) fn add(&mut self, route: RecordedRoute) -> Result<(), FileError> {
        if self.routes.contains(&route) {
            return Ok(());
        }
        self.routes
            .retain(|other| !is_same(other, &route.table, route.destination));
        self.routes.push(route);
        self.write()
    }

    /// Takes a route off it. The file goes with the last one.
    pub(super) fn remove(&mut self, table: &str, destination: Ipv4Net) -> Result<(), FileError> {
        let before = self.routes.len();
        self.routes
            .retain(|route| !is_same(route, table, destination));
        if self.routes.len() == before {
            Ok(())
        } else {
            self.write()
        }
    }

    fn write(&self) -> Result<(), FileError> {
        if self.routes.is_empty() {
            return fs::remove_file(&self.path).map_err(failed("remove", &self.path));
        }
        let text =
            serde_json::to_string(&self.routes).expect("texts and prefixes always serialise");
        file::replace(&self.path, text.as_bytes(), 0o600)
    }
}

fn is_same(route: &RecordedRoute, table: &str, destination: Ipv4Net) -> bool {
    route.table == table && route.destination == destination
}

fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_found_again_and_the_file_goes_with_the_last() {
        let scratch = tempfile::tempdir().expect("a directory");
        let load = || Record::load(scratch.path()).expect("readable");
        let route = |table: &str, target: &str| RecordedRoute {
            cloud: CloudKind::Aws,
            region: "eu-central-1".to_owned(),
            table: table.to_owned(),
            destination: "10.5.7.0/24".parse().expect("a prefix"),
            target: target.to_owned(),
        };
        let mut record = load();
        assert_eq!(record.routes(), []);
        record.add(route("rtb-1", "eni-1")).expect("written");
        record.add(route("rtb-2", "eni-1")).expect("written");
        record.add(route("rtb-1", "eni-2")).expect("written");
        assert_eq!(
            load().routes(),
            [route("rtb-2", "eni-1"), route("rtb-1", "eni-2")]
        );
        for table in ["rtb-3", "rtb-1", "rtb-2"] {
            load()
                .remove(table, route("", "").destination)
                .expect("removed");
        }
        assert!(!path(scratch.path()).exists());
        fs::write(path(scratch.path()), "{").expect("a file");
        assert_eq!(load().routes(), []);
    }
}
