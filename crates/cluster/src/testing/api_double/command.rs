//! Commands in pods, over a WebSocket as API servers speak it.

use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async,
    tungstenite::{
        Message,
        handshake::server::{ErrorResponse, Request, Response},
    },
};

use super::PATIENCE;

/// The channels of a command's output and of its end.
const STDOUT: u8 = 1;
const END: u8 = 3;

/// The answer of a pod to a command.
#[derive(Clone, Debug)]
pub enum PodAnswer {
    /// This output.
    Output(String),
    /// These lines, one at each interval, and then this.
    Lines(Vec<String>, Duration, Box<Self>),
    /// The connection ends without a status.
    Breaks,
    /// None: the container lacks the program.
    NoProgram,
    /// None.
    Hangs,
    /// The API server refuses the command.
    Forbidden,
}

/// The node and the words of a command, of the end of its path with the query.
pub(super) fn words(target: &str) -> (&str, Vec<String>) {
    let node = target.split('/').next().unwrap_or_default();
    let query = target.split_once('?').map_or("", |(_, query)| query);
    let words = query
        .split('&')
        .filter_map(|pair| pair.strip_prefix("command="));
    (
        node,
        words
            .map(|word| word.replace("%3D", "=").replace("%3A", ":"))
            .collect(),
    )
}

/// Runs a command.
#[expect(clippy::result_large_err, reason = "the trait of the crate")]
pub(super) async fn run(stream: TcpStream, answer: Option<PodAnswer>) {
    let upgrade = |request: &Request, mut response: Response| -> Result<Response, ErrorResponse> {
        if matches!(answer, None | Some(PodAnswer::Forbidden)) {
            let mut refusal = ErrorResponse::new(Some("forbidden".to_owned()));
            *refusal.status_mut() = http::StatusCode::FORBIDDEN;
            return Err(refusal);
        }
        let protocols = request
            .headers()
            .get("sec-websocket-protocol")
            .expect("protocols")
            .to_str()
            .expect("text");
        let first = protocols
            .split(',')
            .next()
            .unwrap_or_default()
            .trim()
            .parse()
            .expect("a protocol");
        response
            .headers_mut()
            .insert("sec-websocket-protocol", first);
        Ok(response)
    };
    let Ok(mut socket) = accept_hdr_async(stream, upgrade).await else {
        return;
    };
    let mut answer = answer;
    while let Some(PodAnswer::Lines(lines, interval, then)) = answer {
        for line in lines {
            send(&mut socket, STDOUT, &format!("{line}\n")).await;
            sleep(interval).await;
        }
        answer = Some(*then);
    }
    match answer {
        Some(PodAnswer::Output(text)) => {
            send(&mut socket, STDOUT, &text).await;
            end(&mut socket, json!({ "metadata": {}, "status": "Success" })).await;
        }
        Some(PodAnswer::Breaks) => return,
        Some(PodAnswer::NoProgram) => {
            let message = "exec: \"flannel-agent\": executable file not found in $PATH";
            let failure = json!({
                "metadata": {},
                "status": "Failure",
                "reason": "InternalError",
                "message": message,
            });
            end(&mut socket, failure).await;
        }
        Some(PodAnswer::Lines(..) | PodAnswer::Hangs | PodAnswer::Forbidden) | None => {}
    }
    // Until the client has gone.
    let _ = timeout(PATIENCE, async {
        while socket.next().await.is_some_and(|message| message.is_ok()) {}
    })
    .await;
}

/// The end of a command.
async fn end(socket: &mut WebSocketStream<TcpStream>, status: Value) {
    send(socket, END, &status.to_string()).await;
    let _ = socket.close(None).await;
}

async fn send(socket: &mut WebSocketStream<TcpStream>, channel: u8, text: &str) {
    let mut message = vec![channel];
    message.extend(text.as_bytes());
    let _ = socket.send(Message::binary(message)).await;
}
