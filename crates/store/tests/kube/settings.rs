//! Tests of settings by annotation of our Node: at the start, and while the agent runs.

use flannel_store::wait_for_hints;

use crate::support::{Cluster, follow, next};

#[tokio::test]
async fn settings_are_read_at_the_start_and_their_changes_are_reported() {
    for cluster in Cluster::each("settings").await {
        let annotations = [("node-mtu", "1400"), ("node-guard-inner", "maybe")];
        cluster.add("own", Some("10.5.1.0/24"), &annotations).await;
        let mut manager = cluster.manager("own");
        let settings = wait_for_hints(&mut manager, |_| ()).await.settings;
        assert_eq!((settings.mtu(), settings.mode()), (Some(1400), None));
        let refused = settings
            .0
            .iter()
            .find(|setting| setting.value.is_err())
            .expect("one is refused");
        assert_eq!(
            refused.to_string(),
            format!("{}=\"maybe\"", cluster.annotation("node-guard-inner"))
        );
        assert!(
            refused
                .refusal()
                .is_some_and(|refusal| refusal.contains("--guard-inner applies")),
            "{refused:?}"
        );

        let mut events = follow(manager).await;
        assert_eq!(next(&mut events).await, "=", "they are known");
        cluster
            .annotate("own", "node-datapath", Some("kernel"))
            .await;
        assert_eq!(
            next(&mut events).await,
            "settings mtu=\"1400\" datapath=\"kernel\" inner=\"maybe\" refused"
        );
        cluster.annotate("own", "node-guard-inner", None).await;
        assert_eq!(
            next(&mut events).await,
            "settings mtu=\"1400\" datapath=\"kernel\""
        );
        // Neither an annotation of another purpose nor a setting of another node is reported.
        cluster.annotate("own", "unrelated", Some("kernel")).await;
        cluster
            .add("peer2", Some("10.5.2.0/24"), &[("node-datapath", "encap")])
            .await;
        cluster.annotate("own", "node-mtu", Some("")).await;
        assert_eq!(next(&mut events).await, "settings datapath=\"kernel\"");
    }
}
