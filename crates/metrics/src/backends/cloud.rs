//! Metrics of the routes in the cloud.

use flannel_status::{ChangeCounts, CloudStatus, RequestCounts};

use crate::{
    catalogue as metric,
    page::{Page, number},
};

/// Writes what became of the routes and of requests; nothing with another backend.
pub(crate) fn write(page: &mut Page, status: Option<&CloudStatus>) {
    let Some(CloudStatus {
        present,
        requests,
        changes,
        ..
    }) = status
    else {
        return;
    };
    page.boolean(metric::CLOUD_ROUTE_PRESENT, *present);
    let RequestCounts {
        done,
        refused,
        throttled,
        failed,
    } = *requests;
    let outcomes = [
        ("done", done),
        ("refused", refused),
        ("throttled", throttled),
        ("failed", failed),
    ];
    page.list(
        metric::CLOUD_REQUESTS,
        outcomes.map(|(outcome, count)| ([outcome], number(count))),
    );
    let ChangeCounts {
        created,
        replaced,
        deleted,
    } = *changes;
    let changes = [
        ("created", created),
        ("replaced", replaced),
        ("deleted", deleted),
    ];
    page.list(
        metric::CLOUD_CHANGES,
        changes.map(|(change, count)| ([change], number(count))),
    );
}
