//! The verbs of [`SubnetManager`] for etcd.

use flannel_host::error_chain::chain;
use tokio::sync::{mpsc, watch};
use tracing::warn;

use super::{error::EtcdError, manager::EtcdManager, source::EtcdSource};
use crate::{
    AcquireError, LeaseAttrs, LeaseRequest, NodeMemory, OwnLease, Precedence, StoreCounts,
    StoreEvent, SubnetManager, memory::Recorded, watcher::Watcher,
};

impl SubnetManager for EtcdManager {
    type Error = EtcdError;

    const PRECEDENCE: Precedence = Precedence::FirstRenewed;

    async fn network_config(&mut self) -> Result<String, EtcdError> {
        let key = self.keys.config().to_owned();
        let asked = key.as_str();
        let answer = self
            .client
            .call("reading the network configuration", |mut etcd| async move {
                etcd.get(asked, None).await
            })
            .await?;
        let Some(kv) = answer.kvs().first() else {
            return Err(EtcdError::NoConfig { key });
        };
        String::from_utf8(kv.value().to_vec()).map_err(|_binary| EtcdError::BinaryConfig { key })
    }

    fn count_with(&mut self, counts: StoreCounts) {
        self.counts = counts;
    }

    fn remember_in(&mut self, memory: NodeMemory) {
        self.recorded = memory.read().unwrap_or_else(|error| {
            warn!("the record of our lease is not known: {}", chain(&error));
            Recorded::Nothing
        });
        if self.recorded == Recorded::OfAnotherMachine {
            warn!("the state directory is a copy of another machine's: its lease is not ours");
        }
        self.memory = Some(memory);
    }

    async fn acquire(
        &mut self,
        request: &LeaseRequest,
    ) -> Result<OwnLease, AcquireError<EtcdError>> {
        self.acquire_lease(request).await
    }

    async fn run(
        self,
        request: LeaseRequest,
        attrs: watch::Receiver<LeaseAttrs>,
        events: mpsc::Sender<StoreEvent>,
    ) {
        let counts = self.counts.clone();
        Watcher::new(EtcdSource::new(self, request), counts, attrs, events)
            .run()
            .await;
    }
}
