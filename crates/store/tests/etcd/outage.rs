//! Servers that are absent, frozen, restarted, wiped, or ask for a password.

use flannel_store::{
    LeaseAttrs, LeaseKey, StoreEvent, SubnetManager as _,
    etcd::{Credentials, EtcdManager, EtcdOptions, TlsFiles},
    wait_for_config, wait_for_lease,
};
use nix::sys::signal::Signal;
use tokio::{sync::mpsc, time::timeout};

use crate::support::{
    BRISK, CONFIG, Cluster, Data, Etcd, PATIENCE, Proxy, attrs, follow, next, publish, request,
    until, until_in_sync,
};

#[tokio::test]
async fn an_etcd_that_comes_later_is_waited_for() {
    let ports = crate::support::free_ports();
    let options = EtcdOptions {
        tls: TlsFiles::default(),
        endpoints: vec![format!("http://127.0.0.1:{}", ports[0])],
        prefix: "/later".to_owned(),
        credentials: None,
        lease_ttl: crate::support::DAY,
        renew_margin: crate::support::DAY / 24,
    };
    let mut manager = EtcdManager::new(&options, BRISK);
    let error = manager
        .network_config()
        .await
        .expect_err("nobody is there")
        .to_string();
    assert!(
        error.contains(&options.endpoints[0]) && error.contains("refused"),
        "{error}"
    );
    let node = tokio::spawn(async move {
        let config = wait_for_config(&mut manager, |_| ())
            .await
            .expect("a usable configuration");
        let wanted = flannel_store::LeaseRequest {
            config,
            ..request(1)
        };
        wait_for_lease(&mut manager, &wanted, async |_, _| true).await
    });
    let Some(etcd) = Etcd::start_on("later", ports).await else {
        return node.abort();
    };
    let mut client = etcd.client().await;
    // First something to wait out.
    client
        .put("/later/config", r#"{"Network":"#, None)
        .await
        .expect("put");
    client
        .put("/later/config", CONFIG, None)
        .await
        .expect("put");
    let own = timeout(PATIENCE, node)
        .await
        .expect("in time")
        .expect("no panic")
        .expect("a lease");
    assert!(
        client
            .get(format!("/later/subnets/{}", own.key), None)
            .await
            .expect("get")
            .count()
            == 1
    );
}

#[tokio::test]
async fn an_absent_configuration_is_named() {
    let Some(cluster) = Cluster::shared("no_config").await else {
        return;
    };
    let error = cluster
        .manager()
        .network_config()
        .await
        .expect_err("there is none")
        .to_string();
    assert_eq!(
        error,
        "etcd has no key /test/no_config/config; write the network configuration there, with the \
         v3 API"
    );
    cluster
        .client
        .clone()
        .put("/test/no_config/config", CONFIG, None)
        .await
        .expect("put");
    assert_eq!(
        cluster
            .manager()
            .network_config()
            .await
            .expect("a configuration"),
        CONFIG
    );
}

#[tokio::test]
async fn a_frozen_and_a_restarted_server_cost_nothing() {
    let Some(cluster) = Cluster::alone("frozen").await else {
        return;
    };
    let (own, mut events) = follow(cluster.manager(), request(1)).await;
    until_in_sync(&mut events).await;
    for freeze in [true, false] {
        if freeze {
            cluster.etcd.signal(Signal::SIGSTOP);
        } else {
            cluster.etcd.stop();
        }
        until(&mut events, |event| {
            matches!(event, StoreEvent::OutOfSync { .. }).then_some(())
        })
        .await;
        if freeze {
            cluster.etcd.signal(Signal::SIGCONT);
        } else {
            cluster.etcd.restart(Data::Kept).await;
        }
        until(&mut events, |event| {
            matches!(event, StoreEvent::Resumed).then_some(())
        })
        .await;
        let name = if freeze {
            "10.5.201.0-24"
        } else {
            "10.5.202.0-24"
        };
        cluster
            .etcd
            .client()
            .await
            .put(cluster.key(name), attrs(2).to_json(), None)
            .await
            .expect("put");
        until(&mut events, |event| match event {
            StoreEvent::Put(entry) if *entry.name == *name => Some(()),
            StoreEvent::InSync { .. } | StoreEvent::OwnLeaseLost { .. } => panic!("{event:?}"),
            _ => None,
        })
        .await;
    }
    assert!(
        cluster
            .etcd
            .client()
            .await
            .get(cluster.key(own), None)
            .await
            .expect("get")
            .count()
            == 1
    );
}

#[tokio::test]
async fn a_wiped_store_is_noticed_and_our_lease_written_again() {
    let Some(cluster) = Cluster::alone("wiped").await else {
        return;
    };
    cluster.put("10.5.201.0-24", &attrs(2).to_json()).await;
    let (own, mut events) = follow(cluster.manager(), request(1)).await;
    until_in_sync(&mut events).await;
    cluster.etcd.stop();
    until(&mut events, |event| {
        matches!(event, StoreEvent::OutOfSync { .. }).then_some(())
    })
    .await;
    cluster.etcd.restart(Data::Wiped).await;
    assert_eq!(until_in_sync(&mut events).await, [""; 0]);
    until(&mut events, |event| {
        matches!(event, StoreEvent::OwnLeaseLost { .. }).then_some(())
    })
    .await;
    until(&mut events, |event| {
        matches!(event, StoreEvent::OwnLease(lease) if lease.key == own).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_store_restored_from_a_backup_is_followed_from_there() {
    let Some(cluster) = Cluster::alone("restored").await else {
        return;
    };
    let (own, mut events) = follow(cluster.manager(), request(1)).await;
    until_in_sync(&mut events).await;
    cluster.etcd.stop();
    cluster.etcd.back_up();
    cluster.etcd.restart(Data::Kept).await;
    until(&mut events, |event| {
        matches!(event, StoreEvent::Resumed).then_some(())
    })
    .await;
    // After this write the node's knowledge is newer than the backup, its own lease included.
    cluster
        .etcd
        .client()
        .await
        .delete(cluster.key(own), None)
        .await
        .expect("delete");
    until(&mut events, |event| {
        matches!(event, StoreEvent::OwnLease(_)).then_some(())
    })
    .await;
    cluster.etcd.stop();
    until(&mut events, |event| {
        matches!(event, StoreEvent::OutOfSync { .. }).then_some(())
    })
    .await;
    cluster.etcd.restart(Data::BackedUp).await;
    assert_eq!(until_in_sync(&mut events).await, [own.to_string()]);
    let held = until(&mut events, |event| match event {
        StoreEvent::OwnLease(own) => Some(own.key),
        StoreEvent::OwnLeaseLost { .. } => panic!("{event:?}"),
        _ => None,
    });
    assert_eq!(held.await, own);
    cluster
        .etcd
        .client()
        .await
        .put(cluster.key(own), attrs(1).to_json(), None)
        .await
        .expect("put");
    until(&mut events, |event| match event {
        StoreEvent::OwnLease(own) => own.expires_at.is_none().then_some(()),
        _ => None,
    })
    .await;
}

#[tokio::test]
async fn user_and_password_are_used_and_never_shown() {
    let Some(cluster) = Cluster::alone("password").await else {
        return;
    };
    let mut client = cluster.client.clone();
    client
        .user_add("root", "hunter2", None)
        .await
        .expect("a user");
    client.role_add("root").await.expect("a role");
    client
        .user_grant_role("root", "root")
        .await
        .expect("a grant");
    client.auth_enable().await.expect("authentication");
    let manager = |password: Option<&str>| {
        let with = |password: &str| Credentials {
            username: "root".to_owned(),
            password: password.into(),
        };
        EtcdManager::new(
            &EtcdOptions {
                credentials: password.map(with),
                ..cluster.options()
            },
            BRISK,
        )
    };
    for wrong in [None, Some("swordfish")] {
        let error = manager(wrong)
            .acquire(&request(1))
            .await
            .expect_err("no access")
            .to_string();
        assert!(
            error.contains("refuses") && !error.contains("swordfish"),
            "{error}"
        );
    }
    let (_, mut events) = follow(manager(Some("hunter2")), request(1)).await;
    until_in_sync(&mut events).await;
}

/// Waits until the store is back and our lease is written with these attributes; it must not be
/// lost.
async fn until_written(
    cluster: &Cluster,
    own: LeaseKey,
    events: &mut mpsc::Receiver<StoreEvent>,
    attrs: &LeaseAttrs,
) {
    let (mut back, mut written) = (false, false);
    while !(back && written) {
        match next(events).await {
            StoreEvent::Resumed | StoreEvent::InSync { .. } => back = true,
            StoreEvent::OwnLease(_) => {
                let kv = cluster.get(own).await.expect("the key");
                written = kv.value_str().expect("text") == attrs.to_json();
            }
            StoreEvent::OwnLeaseLost { key, cause } => panic!("{key} is lost: {cause:?}"),
            _ => {}
        }
    }
}

#[tokio::test]
async fn what_changed_during_an_outage_is_published_when_it_ends() {
    let Some(cluster) = Cluster::shared("changed_meanwhile").await else {
        return;
    };
    let proxy = Proxy::to(&cluster.etcd.endpoint()).await;
    let manager = EtcdManager::new(&cluster.options_at(&proxy.endpoint()), BRISK);
    let (own, mut events, publish) = publish(manager, request(1)).await;
    until_in_sync(&mut events).await;
    let until_cut = async |events: &mut mpsc::Receiver<StoreEvent>| {
        proxy.cut();
        until(events, |event| {
            matches!(event, StoreEvent::OutOfSync { .. }).then_some(())
        })
        .await;
    };
    until_cut(&mut events).await;
    publish.send_replace(attrs(2));
    // One of these is the attempt to publish: the task that reconnects is the one that publishes.
    proxy.until_refused(3).await;
    proxy.restore();
    until_written(&cluster, own, &mut events, &attrs(2)).await;

    // The lease is written with our former attributes during the outage. It is still ours, because
    // the store does not hold the new ones yet.
    until_cut(&mut events).await;
    cluster.put(&own.to_string(), &attrs(2).to_json()).await;
    publish.send_replace(attrs(3));
    proxy.restore();
    until_written(&cluster, own, &mut events, &attrs(3)).await;
}
