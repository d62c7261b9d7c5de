//! Amazon's words in the messages of errors.

use crate::error::CloudWords;

/// Amazon's words.
pub(super) const WORDS: CloudWords = CloudWords {
    instance: "an instance of EC2 with metadata of version 2",
    keys: "give the instance a role (an instance profile), or set AWS_ACCESS_KEY_ID and \
        AWS_SECRET_ACCESS_KEY",
    policy: "the IAM policy of this node's role or user",
    room: "raise the quota \"Routes per route table\" of the VPC, which is 1000 at most",
};
