//! Alibaba's words in the messages of errors.

use crate::error::CloudWords;

/// Alibaba's words.
pub(super) const WORDS: CloudWords = CloudWords {
    instance: "an instance (ECS) of Alibaba Cloud",
    keys: "give the instance a RAM role, or set AccessKeyID and AccessKeySecret in Backend, or \
        ACCESS_KEY_ID and \
           ACCESS_KEY_SECRET in the environment",
    policy: "the RAM policy of this node's role or user",
    room: "raise the quota of custom routes in a route table",
};
