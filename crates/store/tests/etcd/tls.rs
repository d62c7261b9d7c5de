//! Etcd by TLS, with certificates made for the test.

use std::fs;

use flannel_store::{
    SubnetManager as _,
    etcd::{ClientFiles, EtcdManager, EtcdOptions, TlsFiles},
};

use crate::support::{Authority, BRISK, Cluster, DAY, Etcd, Pair, Server, request};

/// A server by TLS. It asks clients for certificates if `mutual`.
struct Tls {
    server: Server,
    endpoint: String,
    ours: Authority,
    others: Authority,
    client: Pair,
}

impl Tls {
    async fn start(test: &str, mutual: bool) -> Option<Self> {
        let scratch = tempfile::tempdir().expect("a directory");
        let (ours, others) = (
            Authority::new(scratch.path(), "ours"),
            Authority::new(scratch.path(), "others"),
        );
        let (server, client) = (ours.issue("server"), ours.issue("client"));
        let ca = ours.file();
        let [certificate, key, ca] =
            [&server.certificate, &server.key, &ca].map(|path| path.to_str().expect("UTF-8"));
        let mut arguments = vec!["--cert-file", certificate, "--key-file", key];
        if mutual {
            arguments.extend(["--client-cert-auth", "--trusted-ca-file", ca]);
        }
        let (server, endpoint) = Etcd::start_tls(test, scratch, &arguments).await?;
        Some(Self {
            server,
            endpoint,
            ours,
            others,
            client,
        })
    }

    fn options(&self, tls: TlsFiles) -> EtcdOptions {
        EtcdOptions {
            endpoints: vec![self.endpoint.clone()],
            tls,
            prefix: "/tls".to_owned(),
            credentials: None,
            lease_ttl: DAY,
            renew_margin: DAY / 24,
        }
    }

    /// The first words of a conversation: the error, or what there is.
    async fn talk(&self, tls: TlsFiles) -> Result<String, String> {
        let mut manager = EtcdManager::new(&self.options(tls), BRISK);
        manager
            .network_config()
            .await
            .map_err(|error| error.to_string())
    }
}

fn client(pair: &Pair) -> ClientFiles {
    ClientFiles {
        certificate: pair.certificate.clone(),
        key: pair.key.clone(),
    }
}

fn ca(authority: &Authority) -> TlsFiles {
    TlsFiles {
        ca: Some(authority.file()),
        client: None,
    }
}

#[tokio::test]
async fn a_ca_alone_is_enough_where_no_client_certificate_is_asked_for() {
    let Some(tls) = Tls::start("tls", false).await else {
        return;
    };
    let manager = EtcdManager::new(&tls.options(ca(&tls.ours)), BRISK);
    let (own, mut events) = crate::support::follow(manager, request(1)).await;
    crate::support::until_in_sync(&mut events).await;
    let mut plain = tls.server.client().await;
    let kept = plain
        .get(format!("/tls/subnets/{own}"), None)
        .await
        .expect("an answer");
    assert_eq!(kept.kvs().len(), 1);
}

#[tokio::test]
async fn a_server_of_another_authority_is_refused() {
    let Some(tls) = Tls::start("tls_other", false).await else {
        return;
    };
    for (files, name) in [
        (ca(&tls.others), "another CA"),
        (TlsFiles::default(), "the system's roots"),
    ] {
        let error = tls.talk(files).await.expect_err(name);
        assert!(
            error.contains("UnknownIssuer") || error.contains("roots"),
            "{name}: {error}"
        );
        assert!(
            error.contains("the certificates of both sides"),
            "{name}: {error}"
        );
    }
}

#[tokio::test]
async fn a_server_that_asks_for_a_client_certificate_gets_ours() {
    let Some(tls) = Tls::start("tls_mutual", true).await else {
        return;
    };
    tls.talk(ca(&tls.ours))
        .await
        .expect_err("no client certificate");
    let stranger = TlsFiles {
        client: Some(client(&tls.others.issue("stranger"))),
        ..ca(&tls.ours)
    };
    tls.talk(stranger)
        .await
        .expect_err("a client of another authority");

    let files = TlsFiles {
        client: Some(client(&tls.client)),
        ..ca(&tls.ours)
    };
    files.check().await.expect("files that fit");
    let error = tls.talk(files).await.expect_err("no configuration yet");
    assert!(error.starts_with("etcd has no key /tls/config"), "{error}");
}

#[tokio::test]
async fn renewed_files_are_read_for_the_next_connection() {
    let Some(tls) = Tls::start("tls_renewed", true).await else {
        return;
    };
    let wrong = tls.others.issue("renewed");
    let mut manager = EtcdManager::new(
        &tls.options(TlsFiles {
            client: Some(client(&wrong)),
            ..ca(&tls.ours)
        }),
        BRISK,
    );
    manager
        .network_config()
        .await
        .expect_err("the wrong certificate");
    fs::copy(&tls.client.certificate, &wrong.certificate).expect("copied");
    fs::copy(&tls.client.key, &wrong.key).expect("copied");
    let error = manager
        .network_config()
        .await
        .expect_err("no configuration yet")
        .to_string();
    assert!(error.starts_with("etcd has no key"), "{error}");
}

/// A FIFO without a writer hangs in open(2), as a file does whose server is away.
#[tokio::test]
async fn a_file_that_hangs_is_named_and_not_the_server() {
    let scratch = tempfile::tempdir().expect("a directory");
    let path = scratch.path().join("ca.pem");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o600)).expect("a FIFO");
    let options = EtcdOptions {
        endpoints: vec!["https://127.0.0.1:1".to_owned()],
        tls: TlsFiles {
            ca: Some(path.clone()),
            client: None,
        },
        prefix: "/tls".to_owned(),
        credentials: None,
        lease_ttl: DAY,
        renew_margin: DAY / 24,
    };
    let error = EtcdManager::new(&options, BRISK)
        .network_config()
        .await
        .expect_err("no file")
        .to_string();
    assert!(
        error.contains("--etcd-cafile") && error.contains("cannot be read in time"),
        "{error}"
    );
    // The thread that waits for the file ends.
    drop(
        fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .expect("a writer"),
    );
}

#[tokio::test]
async fn files_do_nothing_for_an_endpoint_without_tls() {
    let Some(cluster) = Cluster::shared("tls_dropped").await else {
        return;
    };
    let tls = TlsFiles {
        ca: Some("/nonexistent/ca.pem".into()),
        client: None,
    };
    let options = EtcdOptions {
        tls,
        ..cluster.options()
    };
    assert!(!options.uses_tls());
    EtcdManager::new(&options, BRISK)
        .acquire(&request(1))
        .await
        .expect("a lease");
}

async fn refusal(files: TlsFiles) -> String {
    files.check().await.expect_err("unfit files").to_string()
}

#[tokio::test]
async fn files_that_do_not_fit_are_named() {
    let scratch = tempfile::tempdir().expect("a directory");
    let authority = Authority::new(scratch.path(), "ca");
    let (one, two) = (authority.issue("one"), authority.issue("two"));
    let empty = scratch.path().join("empty.pem");
    fs::write(&empty, "hello\n").expect("written");
    let absent = scratch.path().join("absent.pem");

    let unreadable = refusal(TlsFiles {
        ca: Some(absent.clone()),
        client: None,
    })
    .await;
    let expected = format!(
        "cannot read --etcd-cafile={}: No such file",
        absent.display()
    );
    assert!(unreadable.starts_with(&expected), "{unreadable}");
    let no_pem = refusal(TlsFiles {
        ca: Some(empty.clone()),
        client: None,
    })
    .await;
    assert_eq!(
        no_pem,
        format!(
            "--etcd-cafile={} holds no certificate in PEM form",
            empty.display()
        )
    );
    let swapped = ClientFiles {
        certificate: one.certificate.clone(),
        key: one.certificate.clone(),
    };
    let swapped = refusal(TlsFiles {
        client: Some(swapped),
        ..ca(&authority)
    })
    .await;
    assert!(
        swapped.contains("--etcd-keyfile=") && swapped.contains("no unencrypted private key"),
        "{swapped}"
    );
    let mixed = ClientFiles {
        certificate: one.certificate,
        key: two.key,
    };
    let mixed = refusal(TlsFiles {
        client: Some(mixed),
        ..ca(&authority)
    })
    .await;
    assert!(
        mixed.contains("one.pem") && mixed.contains("two.key") && mixed.contains("cannot be used"),
        "{mixed}"
    );
}
