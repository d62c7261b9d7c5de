//! The routes in the cloud as `status` prints them. Pure.

use flannel_status::CloudStatus;

use super::count;

/// The route and its tables.
pub(super) fn summary(status: &CloudStatus) -> String {
    let CloudStatus { destination, target, tables, present, .. } = status;
    let target = target.as_deref().unwrap_or("an interface that is not known yet");
    let tables = if tables.is_empty() { "tables that are not known yet".to_owned() } else { tables.join(", ") };
    let missing = if *present { "" } else { ", missing" };
    format!("{destination} to {target} in {tables}{missing}")
}

/// True if there is a problem.
pub(super) fn has_problem(status: &CloudStatus) -> bool {
    status.error.is_some() || !status.present
}

/// The reason why the routes cannot be kept, and the note on the instance's own check.
pub(super) fn problems(status: &CloudStatus) -> impl Iterator<Item = String> {
    let tries = count(status.attempts, "try", "tries");
    let error = status.error.iter().map(move |error| format!("routes of the cloud cannot be kept ({tries}): {error}"));
    let check = status.source_check.iter();
    error.chain(check.map(|reason| format!("the check of source and destination may drop packets of pods: {reason}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_route_is_seen_and_an_error_is_a_problem() {
        let mut status = CloudStatus { destination: "10.5.7.0/24".to_owned(), ..CloudStatus::default() };
        let unknown = "10.5.7.0/24 to an interface that is not known yet in tables that are not known yet, missing";
        assert_eq!((summary(&status).as_str(), has_problem(&status)), (unknown, true));
        status.target = Some("eni-1".to_owned());
        status.tables = vec!["rtb-1".to_owned(), "rtb-2".to_owned()];
        status.present = true;
        assert_eq!((summary(&status).as_str(), has_problem(&status)), ("10.5.7.0/24 to eni-1 in rtb-1, rtb-2", false));
        assert_eq!(problems(&status).count(), 0);
        status.error = Some("full".to_owned());
        status.attempts = 2;
        status.source_check = Some("not allowed".to_owned());
        let expected = [
            "routes of the cloud cannot be kept (2 tries): full",
            "the check of source and destination may drop packets of pods: not allowed",
        ];
        assert!(has_problem(&status) && problems(&status).eq(expected));
    }
}
