//! Versions, cipher suites, certificates and protocols that are negotiated.

use super::*;

#[test]
fn negotiates_versions_and_cipher_suites() {
    let authority = Authority::new("root");
    let identity = authority.sign(&["a.test"]).identity();
    let (both, _) = serve(with_identity(identity.clone()));
    let newest = TlsSettings { min_version: Version::Tls13, ..with_identity(identity) };
    let (newest, _) = serve(newest);
    for suite in aws_lc_rs::ALL_CIPHER_SUITES {
        let name = suite.suite().as_str().unwrap().replace("TLS13_", "TLS_");
        let is_13 = suite.tls13().is_some();
        let provider =
            CryptoProvider { cipher_suites: vec![*suite], ..aws_lc_rs::default_provider() };
        let version = if is_13 { &TLS13 } else { &TLS12 };
        let config = client_config_with(&authority, provider, &[version], None);
        // The certificate has an ECDSA key.
        let is_supported = !name.contains("_RSA_");
        for (server, expected) in [(&both, is_supported), (&newest, is_13)] {
            let connected = Client::connect(server, &config, "a.test");
            assert_eq!(connected.is_ok(), expected, "{name}");
            if let Ok(mut client) = connected {
                let version = if is_13 { "TLSv1.3" } else { "TLSv1.2" };
                let seen = format!("{version} {name} a.test 0 https");
                assert_eq!(client.get("/").text(), seen);
            }
        }
    }
    stop(both);
    stop(newest);
}

#[test]
fn prefers_aes_128_and_the_cipher_of_clients_without_aes() {
    use rustls::crypto::aws_lc_rs::cipher_suite::*;
    let authority = Authority::new("root");
    let (server, _) = serve(with_identity(authority.sign(&["a.test"]).identity()));
    let (aes_128, aes_256, chacha) =
        (TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256);
    let ecdsa_aes_128 = TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
    let ecdsa_aes_256 = TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384;
    let ecdsa_chacha = TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256;
    // The suites of a client in its order, and the negotiated one.
    let cases = [
        // OpenSSL.
        (vec![aes_256, chacha, aes_128], aes_128),
        // Browsers on a CPU with instructions for AES, and without.
        (vec![aes_128, aes_256, chacha], aes_128),
        (vec![chacha, aes_128, aes_256], chacha),
        (vec![aes_256, chacha], aes_256),
        (vec![ecdsa_aes_256, ecdsa_chacha, ecdsa_aes_128], ecdsa_aes_128),
        (vec![ecdsa_chacha, ecdsa_aes_128], ecdsa_chacha),
    ];
    for (cipher_suites, expected) in cases {
        let version = if expected.tls13().is_some() { &TLS13 } else { &TLS12 };
        let provider = CryptoProvider { cipher_suites, ..aws_lc_rs::default_provider() };
        let config = client_config_with(&authority, provider, &[version], None);
        let client = Client::connect(&server, &config, "a.test").unwrap();
        let suite = client.tls.negotiated_cipher_suite().unwrap().suite();
        assert_eq!(suite, expected.suite(), "{:?}", config.crypto_provider().cipher_suites);
    }
    stop(server);
}

#[test]
fn accepts_only_these_of_all_openssl_cipher_suites() {
    if !has_tool("openssl") {
        return;
    }
    let authority = Authority::new("root");
    let folder = tempfile::tempdir().unwrap();
    let [key, crt] = ["rsa.key", "rsa.crt"].map(|name| folder.path().join(name));
    let (succeeded, _) = openssl(&[
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=a.test",
        "-days",
        "2",
        "-addext",
        "subjectAltName=DNS:a.test",
        "-keyout",
        key.to_str().unwrap(),
        "-out",
        crt.to_str().unwrap(),
    ]);
    assert!(succeeded);
    let identities = vec![authority.sign(&["a.test"]).identity(), Identity::files(crt, key)];
    let (server, _) = serve(TlsSettings { identities, ..TlsSettings::default() });
    let address = server.addresses()[0].address().unwrap().to_string();
    let (_, list) = openssl(&["ciphers", "-s", "-v", "ALL:COMPLEMENTOFALL:@SECLEVEL=0"]);
    let old = list.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    });
    let old: Vec<_> = old.filter(|(_, version)| version != "TLSv1.3").collect();
    assert!(old.len() > 50, "{list}");
    // In parallel, because each attempt is a process.
    let accepted: Vec<String> = std::thread::scope(|scope| {
        let parts = old.chunks(old.len().div_ceil(4));
        let tasks = parts.map(|part| {
            let address = &address;
            scope.spawn(move || {
                let accepts = |name: &&String| {
                    let suite = format!("{name}:@SECLEVEL=0");
                    openssl(&[
                        "s_client",
                        "-connect",
                        address,
                        "-servername",
                        "a.test",
                        "-max_protocol",
                        "TLSv1.2",
                        "-cipher",
                        &suite,
                    ])
                    .0
                };
                part.iter().map(|(name, _)| name).filter(accepts).cloned().collect::<Vec<_>>()
            })
        });
        let tasks: Vec<_> = tasks.collect();
        tasks.into_iter().flat_map(|task| task.join().unwrap()).collect()
    });
    let mut accepted = accepted;
    accepted.sort();
    assert_eq!(
        accepted,
        [
            "ECDHE-ECDSA-AES128-GCM-SHA256",
            "ECDHE-ECDSA-AES256-GCM-SHA384",
            "ECDHE-ECDSA-CHACHA20-POLY1305",
            "ECDHE-RSA-AES128-GCM-SHA256",
            "ECDHE-RSA-AES256-GCM-SHA384",
            "ECDHE-RSA-CHACHA20-POLY1305",
        ]
    );
    for (option, is_accepted) in
        [("-tls1", false), ("-tls1_1", false), ("-tls1_2", true), ("-tls1_3", true)]
    {
        let (connected, _) =
            openssl(&["s_client", "-connect", &address, option, "-cipher", "ALL:@SECLEVEL=0"]);
        assert_eq!(connected, is_accepted, "{option}");
    }
    stop(server);
}

#[test]
fn selects_certificate_by_server_name() {
    let authority = Authority::new("root");
    let [first, second, third] = [&["a.test"][..], &["b2.test", "*.b.test"], &["x.b.test"]]
        .map(|names| authority.sign(names));
    let identities = [&first, &second, &third].map(Signed::identity).to_vec();
    let (server, _) = serve(TlsSettings { identities, ..TlsSettings::default() });
    for (name, expected) in [
        ("a.test", Some(&first)),
        ("A.Test", Some(&first)),
        ("b2.test", Some(&second)),
        ("y.b.test", Some(&second)),
        ("x.b.test", Some(&third)),
        // The first certificate is sent, and the client rejects it.
        ("z.y.b.test", None),
        ("b.test", None),
        ("c.test", None),
        ("127.0.0.1", None),
    ] {
        let client = Client::connect(&server, &client_config(&authority), name);
        match (client, expected) {
            (Ok(client), Some(expected)) => {
                let received = &client.tls.peer_certificates().unwrap()[0];
                assert_eq!(*received, expected.der(), "{name}");
            }
            (Err(error), None) => {
                assert!(error.to_string().contains("not valid for name"), "{error}")
            }
            (client, _) => panic!("{name}: {:?}", client.map(|_| ())),
        }
    }
    stop(server);
}

#[test]
fn named_identities_change_while_the_server_runs() {
    let authority = Authority::new("root");
    let named = NamedIdentities::default();
    let (server, errors) =
        serve(TlsSettings { named_identities: Some(named.clone()), ..Default::default() });
    for versions in [&[&TLS13][..], &[&TLS12]] {
        let provider = aws_lc_rs::default_provider();
        let mut config = client_config_with(&authority, provider, versions, None);
        config.resumption = Resumption::disabled();
        let served = |name: &str| match Client::connect(&server, &config, name) {
            Ok(client) => Ok(client.tls.peer_certificates().unwrap()[0].clone()),
            Err(error) => Err(error.to_string()),
        };
        let refused = Err("received fatal alert: UnrecognisedName".to_owned());
        assert_eq!(served("a.test"), refused);
        let reported = errors.recv_timeout(TEST_TIMEOUT).unwrap();
        let reason = "there is no certificate for a.test".to_owned();
        assert_eq!(reported, (ErrorKind::NoCertificate, reason));
        let [first, second, wildcard] =
            [&["a.test"][..], &["a.test"], &["*.b.test"]].map(|names| authority.sign(names));
        named.insert("A.test", &first.identity()).unwrap();
        named.insert("*.b.test", &wildcard.identity()).unwrap();
        assert_eq!(served("a.test"), Ok(first.der()));
        assert_eq!(served("x.b.test"), Ok(wildcard.der()));
        assert_eq!(served("x.y.b.test"), refused);
        named.insert("a.test", &second.identity()).unwrap();
        assert_eq!(served("A.test"), Ok(second.der()));
        // A client that connects to an address sends no name.
        assert_eq!(served("127.0.0.1"), refused);
        let mut address = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        address.not_after = (SystemTime::now() + Duration::from_secs(86_400)).into();
        let key = KeyPair::generate().unwrap();
        let certificate = address.signed_by(&key, &authority.issuer).unwrap();
        let identity = Identity::pem(certificate.pem(), key.serialize_pem());
        named.insert("127.0.0.1", &identity).unwrap();
        assert_eq!(served("127.0.0.1").as_ref(), Ok(certificate.der()));
        ["a.test", "*.b.test", "127.0.0.1"].into_iter().for_each(|name| named.remove(name));
        assert_eq!(served("a.test"), refused);
        while errors.try_recv().is_ok() {}
    }
    stop(server);
}

#[test]
fn named_identities_precede_the_others() {
    let authority = Authority::new("root");
    let [other, named] =
        [&["a.test", "b.test"], &["a.test", "c.test"]].map(|it| authority.sign(it));
    let identities = NamedIdentities::default();
    identities.insert("a.test", &named.identity()).unwrap();
    let settings = with_identity(other.identity());
    let (server, _errors) = serve(TlsSettings { named_identities: Some(identities), ..settings });
    let config = client_config(&authority);
    let served = |name: &str| {
        let client = Client::connect(&server, &config, name).unwrap();
        client.tls.peer_certificates().unwrap()[0].clone()
    };
    assert_eq!(served("a.test"), named.der());
    assert_eq!(served("b.test"), other.der());
    // A resumed session and one more round trip for the key exchange take the same path.
    assert_eq!(handshake_kind(&server, &config), Some(HandshakeKind::Full));
    assert_eq!(handshake_kind(&server, &config), Some(HandshakeKind::Resumed));
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups.retain(|group| group.name() == rustls::NamedGroup::secp384r1);
    let config = client_config_with(&authority, provider, &[&TLS13], None);
    assert!(Client::connect(&server, &config, "a.test").is_ok());
    stop(server);
}

/// Obtains identities for `*.slow.test` when the test permits it.
struct SlowSource {
    permits: Arc<tokio::sync::Semaphore>,
    identities: Arc<std::sync::OnceLock<(NamedIdentities, Identity)>>,
    /// Number of handshakes that wait.
    waiting: Arc<AtomicUsize>,
}

/// A handshake that waits.
struct Waiting(Arc<AtomicUsize>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl IdentitySource for SlowSource {
    fn obtain(&self, name: &str, client: Option<std::net::IpAddr>) -> Option<ObtainIdentity> {
        assert_eq!(client, Some([127, 0, 0, 1].into()));
        let name = Some(name.to_owned()).filter(|name| name.ends_with(".slow.test"))?;
        let (permits, identities) = (self.permits.clone(), self.identities.clone());
        self.waiting.fetch_add(1, Relaxed);
        let waiting = Waiting(self.waiting.clone());
        Some(Box::pin(async move {
            let _waiting = waiting;
            permits.acquire_owned().await.unwrap().forget();
            let (named, identity) = identities.get().unwrap();
            match &*name {
                "a.slow.test" => named.insert(&name, identity).map_err(|error| error.to_string()),
                // The source ends without an identity.
                "none.slow.test" => Ok(()),
                _ => Err(format!("no certificate for {name} on purpose")),
            }
        }))
    }
}

#[test]
fn handshakes_wait_for_identities_that_are_obtained() {
    let authority = Authority::new("root");
    let permits = Arc::new(tokio::sync::Semaphore::new(0));
    let identities = Arc::new(std::sync::OnceLock::new());
    let waiting = Arc::new(AtomicUsize::new(0));
    let source = SlowSource {
        permits: permits.clone(),
        identities: identities.clone(),
        waiting: waiting.clone(),
    };
    let named = NamedIdentities::with_source(source);
    let signed = authority.sign(&["a.slow.test"]);
    let known = authority.sign(&["known.test"]);
    named.insert("known.test", &known.identity()).unwrap();
    identities.set((named.clone(), signed.identity())).ok().unwrap();
    let tls = TlsSettings { named_identities: Some(named), ..Default::default() };
    let tls = Tls::new(tls).unwrap();
    let (server, errors) = serve_with(&tls, Settings::default());
    let config = client_config(&authority);
    let connect = |name: &'static str| Client::connect(&server, &config, name);
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| connect("a.slow.test").map(|mut it| it.get("/"))))
            .collect();
        // Meanwhile other handshakes continue on the same worker.
        assert_eq!(connect("known.test").unwrap().get("/").status, 200);
        assert!(waiting.iter().all(|client| !client.is_finished()));
        permits.add_permits(8);
        for client in waiting {
            assert_eq!(client.join().unwrap().unwrap().status, 200);
        }
    });
    assert_eq!(connect("a.slow.test").unwrap().get("/").status, 200, "without another permit");
    permits.add_permits(2);
    for (name, reason) in [
        ("other.test", "there is no certificate for other.test"),
        ("b.slow.test", "no certificate for b.slow.test on purpose"),
        ("none.slow.test", "there is no certificate for none.slow.test"),
    ] {
        assert!(connect(name).is_err(), "{name}");
        let reported = errors.recv_timeout(TEST_TIMEOUT).unwrap();
        assert_eq!(reported, (ErrorKind::NoCertificate, reason.to_owned()));
    }
    // A client that has left waits no longer; one that stays does.
    permits.forget_permits(8);
    let hello = |name: &str| {
        let mut session =
            ClientConnection::new(Arc::new(config.clone()), name.to_owned().try_into().unwrap())
                .unwrap();
        let mut stream = super::connect(&server);
        session.write_tls(&mut stream).unwrap();
        stream
    };
    let [left, stays] = ["b.slow.test", "c.slow.test"].map(hello);
    until("both wait", || waiting.load(Relaxed) == 2);
    drop(left);
    until("one has left", || waiting.load(Relaxed) == 1);
    let reported = errors.recv_timeout(TEST_TIMEOUT).unwrap();
    assert_eq!(reported.0, ErrorKind::Disconnected);
    permits.add_permits(1);
    let reported = errors.recv_timeout(TEST_TIMEOUT).unwrap();
    let reason = "no certificate for c.slow.test on purpose".to_owned();
    assert_eq!(reported, (ErrorKind::NoCertificate, reason));
    drop(stays);
    stop(server);
    let settings = Settings { head_timeout: 2 * SHORT_TIMEOUT, ..Settings::default() };
    let (server, errors) = serve_with(&tls, settings);
    // A handshake that began late has found the certificate of the others, and used no permit.
    permits.forget_permits(8);
    assert!(Client::connect(&server, &config, "late.slow.test").is_err());
    let reason = "the certificate was not obtained within `head_timeout`".to_owned();
    let reported = errors.recv_timeout(TEST_TIMEOUT).unwrap();
    assert_eq!(reported, (ErrorKind::NoCertificate, reason));
    stop(server);
}

#[test]
fn client_authentication_modes() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let server_identity = ours.sign(&["a.test"]).identity();
    let (trusted, untrusted) = (ours.sign(&["client"]), theirs.sign(&["client"]));
    let roots = || Roots::pem(ours.pem.as_str());
    for (auth, without, with_trusted, with_untrusted) in [
        (ClientAuth::None, Some("0"), Some("0"), Some("0")),
        (ClientAuth::Optional(roots()), Some("0"), Some("1"), None),
        (ClientAuth::Required(roots()), None, Some("1"), None),
    ] {
        let case = format!("{auth:?}");
        let settings = TlsSettings { client_auth: auth, ..with_identity(server_identity.clone()) };
        let (server, errors) = serve(settings);
        for version in [&TLS12, &TLS13] {
            for (identity, expected) in [
                (None, without),
                (Some(&trusted), with_trusted),
                (Some(&untrusted), with_untrusted),
            ] {
                let provider = aws_lc_rs::default_provider();
                let config = client_config_with(&ours, provider, &[version], identity);
                // In TLS 1.3 the client receives the alert only after its handshake is complete.
                let seen = Client::connect(&server, &config, "a.test").and_then(|mut client| {
                    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                    client.response()
                });
                let seen = seen.ok().map(|seen| seen.text().split(' ').nth(3).unwrap().to_owned());
                assert_eq!(seen.as_deref(), expected, "{case} {version:?}");
                if expected.is_none() {
                    let (kind, _) = errors.recv_timeout(TEST_TIMEOUT).unwrap();
                    assert_eq!((kind, kind.fault()), (ErrorKind::TlsFailed, Fault::Peer));
                }
            }
        }
        stop(server);
    }
}
