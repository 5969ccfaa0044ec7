//! Resumption of sessions.

use super::*;

#[test]
fn resumes_sessions_with_the_same_ticket_keys_and_client_auth() {
    let authority = Authority::new("root");
    let identity = authority.sign(&["a.test"]).identity();
    let folder = tempfile::tempdir().unwrap();
    let [keys, rotated, others] =
        ["keys", "rotated", "others"].map(|name| folder.path().join(name));
    fs::write(&keys, [1; 48]).unwrap();
    fs::write(&rotated, [[2; 48], [1; 48]].concat()).unwrap();
    fs::write(&others, [3; 48]).unwrap();
    let settings = |keys: Option<&Path>, client_auth| TlsSettings {
        ticket_keys: keys.map(Path::to_owned),
        client_auth,
        ..with_identity(identity.clone())
    };
    let optional = || ClientAuth::Optional(Roots::pem(authority.pem.as_str()));
    let (first, _) = serve(settings(Some(&keys), ClientAuth::None));
    for (case, second, resumed) in [
        ("the same keys", settings(Some(&keys), ClientAuth::None), true),
        ("a newer key first", settings(Some(&rotated), ClientAuth::None), true),
        ("other keys", settings(Some(&others), ClientAuth::None), false),
        ("random keys", settings(None, ClientAuth::None), false),
        ("another client_auth", settings(Some(&keys), optional()), false),
    ] {
        let (second, _) = serve(second);
        assert_resumption(&authority, [(&first, false), (&first, true), (&second, resumed)], case);
        stop(second);
    }
    stop(first);
}

/// Connects to servers in turn, with each version of TLS, and compares which sessions are resumed.
#[track_caller]
fn assert_resumption(authority: &Authority, servers: [(&ServerHandle, bool); 3], case: &str) {
    for version in [&TLS12, &TLS13] {
        let provider = aws_lc_rs::default_provider();
        let mut config = client_config_with(authority, provider, &[version], None);
        config.resumption = Resumption::in_memory_sessions(8);
        for (server, expected) in servers {
            let mut client = Client::connect(server, &config, "a.test").unwrap();
            assert_eq!(client.get("/").status, 200);
            let kind = client.tls.handshake_kind().unwrap();
            assert_eq!(kind == HandshakeKind::Resumed, expected, "{case}, {version:?}");
        }
    }
}

#[test]
fn resumes_sessions_of_servers_with_the_same_secret() {
    let authority = Authority::new("root");
    let identity = authority.sign(&["a.test"]).identity();
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    fs::write(&keys, [1; 48]).unwrap();
    let settings = |secrets: &[u8], keys: Option<&Path>| TlsSettings {
        ticket_secrets: secrets.iter().map(|byte| TicketSecret::new([*byte; 32])).collect(),
        ticket_keys: keys.map(Path::to_owned),
        ..with_identity(identity.clone())
    };
    let (first, _) = serve(settings(&[1], None));
    for (case, second, resumed) in [
        ("the same secret", settings(&[1], None), true),
        ("a newer secret first", settings(&[2, 1], None), true),
        ("another secret", settings(&[2], None), false),
        ("no secret", settings(&[], None), false),
        ("keys in a file, which take precedence", settings(&[1], Some(&keys)), false),
    ] {
        let (second, _) = serve(second);
        assert_resumption(&authority, [(&first, false), (&first, true), (&second, resumed)], case);
        stop(second);
    }
    stop(first);
}

/// Returns clients for each version of TLS that resume sessions and have a certificate that is
/// valid until `end`.
fn resuming_clients(authority: &Authority, end: SystemTime) -> [ClientConfig; 2] {
    let signed = authority.sign_until(&["client"], end);
    [&TLS12, &TLS13].map(|version| {
        let provider = aws_lc_rs::default_provider();
        let mut config = client_config_with(authority, provider, &[version], Some(&signed));
        config.resumption = Resumption::in_memory_sessions(8);
        config
    })
}

#[test]
fn expired_client_certificate_is_rejected_with_a_ticket() {
    let authority = Authority::new("root");
    let identity = authority.sign(&["a.test"]).identity();
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    fs::write(&keys, [1; 48]).unwrap();
    let roots = || Roots::pem(authority.pem.as_str());
    for (case, client_auth, ticket_keys) in [
        ("required", ClientAuth::Required(roots()), None),
        ("optional", ClientAuth::Optional(roots()), Some(keys)),
    ] {
        let settings = TlsSettings { client_auth, ticket_keys, ..with_identity(identity.clone()) };
        let (server, _) = serve(settings);
        // A busy machine may need longer for the handshakes than the certificate is valid.
        let validities = (1..).map(|exponent| Duration::from_secs(1 << exponent));
        let (end, configs) = validities
            .map(|validity| SystemTime::now() + validity)
            .map(|end| (end, resuming_clients(&authority, end)))
            .find(|(end, configs)| {
                let kinds: Vec<_> =
                    [0, 0, 1, 1].map(|i| handshake_kind(&server, &configs[i])).into();
                assert!(!kinds.contains(&Some(HandshakeKind::Resumed)), "{case}");
                let is_in_time = SystemTime::now() < *end;
                assert!(!is_in_time || !kinds.contains(&None), "{case}: the certificate is valid");
                is_in_time
            })
            .expect("an endless sequence");
        // A certificate is valid up to and including the last second.
        until("the certificate has expired", || SystemTime::now() > end + Duration::from_secs(1));
        for config in &configs {
            for number in 0..3 {
                assert_eq!(handshake_kind(&server, config), None, "{case}, attempt {number}");
            }
        }
        stop(server);
    }
}
