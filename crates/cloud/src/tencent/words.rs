//! Tencent's words in the messages of errors.

use crate::error::CloudWords;

/// Tencent's words.
pub(super) const WORDS: CloudWords = CloudWords {
    instance: "an instance (CVM) of Tencent Cloud",
    keys: "give the instance a CAM role, or set AccessKeyID and AccessKeySecret in Backend, or \
        ACCESS_KEY_ID and \
           ACCESS_KEY_SECRET in the environment",
    policy: "the CAM policy of this node's role or user",
    room: "raise the quota of routes in a route table",
};
