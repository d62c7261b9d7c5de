//! The routes in the cloud as `status` prints them. Pure.

use flannel_status::CloudStatus;

/// The route and its tables.
pub(crate) fn summary(status: &CloudStatus) -> String {
    let CloudStatus {
        destination,
        target,
        tables,
        present,
        ..
    } = status;
    let target = target
        .as_deref()
        .unwrap_or("an interface that is not known yet");
    let tables = if tables.is_empty() {
        "tables that are not known yet".to_owned()
    } else {
        tables.join(", ")
    };
    let missing = if *present { "" } else { ", missing" };
    format!("{destination} to {target} in {tables}{missing}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_route_is_seen() {
        let mut status = CloudStatus {
            destination: "10.5.7.0/24".to_owned(),
            ..CloudStatus::default()
        };
        let unknown = "10.5.7.0/24 to an interface that is not known yet in tables that are not \
            known yet, missing";
        assert_eq!(summary(&status), unknown);
        status.target = Some("eni-1".to_owned());
        status.tables = vec!["rtb-1".to_owned(), "rtb-2".to_owned()];
        status.present = true;
        assert_eq!(summary(&status), "10.5.7.0/24 to eni-1 in rtb-1, rtb-2");
    }
}
