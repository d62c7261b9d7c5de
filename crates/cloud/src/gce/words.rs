//! Google's words in the messages of errors.

use crate::error::CloudWords;

/// Google's words.
pub(super) const WORDS: CloudWords = CloudWords {
    instance: "an instance of Compute Engine",
    keys: "give the instance a service account",
    policy: "the service account of this instance",
    room: "raise the quota \"Static routes per VPC network\"",
};
