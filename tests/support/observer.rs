//! A client of the observer API of Hubble: gRPC over HTTP/2 on a unix socket, with the messages of
//! `flannel_hubble`.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Bytes, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::{net::UnixStream, runtime, time::timeout};

/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends a request of the observer, and passes each answer until `is_enough` or the end.
pub(crate) fn ask<A: Message + Default>(
    socket: &Path,
    method: &str,
    request: &impl Message,
    mut is_enough: impl FnMut(A) -> bool,
) -> Result<()> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let asking = async {
        let stream = TokioIo::new(UnixStream::connect(socket).await?);
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
        tokio::spawn(connection);
        let request = hyper::Request::post(format!("http://localhost/{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::new(Bytes::from(framed(request))))?;
        let response = sender.send_request(request).await?;
        let status = response.headers().get("grpc-status").cloned();
        ensure!(
            status.as_ref().is_none_or(|status| status == "0"),
            "{:?}",
            response.headers()
        );
        let (mut body, mut pending) = (response.into_body(), Vec::new());
        while let Some(frame) = body.frame().await {
            let frame = frame?;
            if let Some(trailers) = frame.trailers_ref() {
                ensure!(
                    trailers
                        .get("grpc-status")
                        .is_some_and(|status| status == "0"),
                    "{trailers:?}"
                );
            }
            pending.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
            while let Some(message) = first_message(&mut pending) {
                if is_enough(A::decode(&*message)?) {
                    return Ok(());
                }
            }
        }
        Ok(())
    };
    runtime.block_on(async {
        timeout(PATIENCE, asking)
            .await
            .context("no end of the answer")?
    })
}

/// A message as gRPC frames it: not compressed, with its length.
fn framed(message: &impl Message) -> Vec<u8> {
    let message = message.encode_to_vec();
    let length = u32::try_from(message.len()).expect("a small message");
    [&[0], &length.to_be_bytes()[..], &message].concat()
}

fn first_message(pending: &mut Vec<u8>) -> Option<Vec<u8>> {
    let (header, rest) = pending.split_first_chunk::<5>()?;
    let length = usize::try_from(u32::from_be_bytes([
        header[1], header[2], header[3], header[4],
    ]))
    .ok()?;
    let message = rest.get(..length)?.to_vec();
    pending.drain(..5 + length);
    Some(message)
}
