//! A network between a node and its etcd that can be cut.

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    time::timeout,
};

use super::PATIENCE;

pub(crate) struct Proxy {
    port: u16,
    up: watch::Sender<bool>,
    refused: watch::Receiver<u32>,
}

impl Proxy {
    /// Forwards connections to an `http://host:port` endpoint.
    pub(crate) async fn to(endpoint: &str) -> Self {
        let target = endpoint.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (up, is_up) = watch::channel(true);
        let (refusals, refused) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if *is_up.borrow() {
                    tokio::spawn(forward(stream, target.clone(), is_up.clone()));
                } else {
                    refusals.send_modify(|count| *count += 1);
                }
            }
        });
        Self { port, up, refused }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Breaks all connections, and new ones at once, until forwarding is switched on again.
    pub(crate) fn cut(&self) {
        self.up.send_replace(false);
    }

    /// Waits until the cut proxy has refused `more` further connections.
    pub(crate) async fn until_refused(&self, more: u32) {
        let mut refused = self.refused.clone();
        let before = *refused.borrow_and_update();
        let enough = refused.wait_for(|count| *count >= before + more);
        timeout(PATIENCE, enough)
            .await
            .expect("connections in time")
            .expect("a running proxy");
    }

    pub(crate) fn restore(&self) {
        self.up.send_replace(true);
    }
}

async fn forward(mut near: TcpStream, target: String, mut up: watch::Receiver<bool>) {
    let Ok(mut far) = TcpStream::connect(target).await else {
        return;
    };
    tokio::select! {
        _ = copy_bidirectional(&mut near, &mut far) => {}
        _ = up.wait_for(|up| !up) => {}
    }
}
