//! Answers in the server's words.

use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::{Response, body::Bytes};
use serde_json::{Value, json};

/// A body that is whole, or a stream that may break.
pub(crate) type Body = UnsyncBoxBody<Bytes, std::io::Error>;

pub(super) fn whole(text: String) -> Body {
    Full::new(Bytes::from(text))
        .map_err(|never| match never {})
        .boxed_unsync()
}

pub(super) fn ok(object: &Value) -> Response<Body> {
    Response::new(whole(object.to_string()))
}

pub(super) fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    })
}

pub(super) fn failure(code: u16, reason: &str, message: &str) -> Response<Body> {
    let mut response = ok(&status(code, reason, message));
    *response.status_mut() = code.try_into().expect("a status code");
    response
}
