//! Certificates that are reloaded.

use super::*;

#[test]
fn changed_client_auth_closes_established_connections() {
    let [ours, theirs] = ["ours", "theirs"].map(Authority::new);
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca");
    fs::write(&ca, &ours.pem).unwrap();
    let identity = ours.sign(&["a.test"]).identity();
    let tls = |client_auth| {
        Tls::new(TlsSettings {
            client_auth,
            check_files_every: Duration::from_millis(10),
            ..with_identity(identity.clone())
        })
    };
    let of_file = || ClientAuth::Required(Roots::file(&ca));
    let without = client_config(&ours);
    let client = ours.sign(&["client"]);
    let with =
        client_config_with(&ours, aws_lc_rs::default_provider(), &[&TLS13, &TLS12], Some(&client));
    type Change<'a> = Box<dyn Fn(&Tls) + 'a>;
    let changes: [(&str, _, _, bool, Change<'_>); 4] = [
        (
            "the same",
            ClientAuth::None,
            &without,
            true,
            Box::new(|shared| {
                shared.renew(tls(ClientAuth::None).unwrap());
            }),
        ),
        (
            "none to required",
            ClientAuth::None,
            &without,
            false,
            Box::new(|shared| {
                shared.renew(tls(of_file()).unwrap());
            }),
        ),
        (
            "required to none",
            of_file(),
            &with,
            false,
            Box::new(|shared| {
                shared.renew(tls(ClientAuth::None).unwrap());
            }),
        ),
        (
            "another authority in the file",
            of_file(),
            &with,
            false,
            Box::new(|_| {
                fs::write(&ca, &theirs.pem).unwrap();
            }),
        ),
    ];
    for (case, before, config, stays_open, change) in changes {
        check_change(case, &tls(before).unwrap(), config, stays_open, &change);
    }
}

/// Opens connections that are idle, busy and without a request, changes the settings, and checks
/// that the connections stay open, or that each of them ends after its response.
fn check_change(
    case: &str,
    shared: &Tls,
    config: &ClientConfig,
    stays_open: bool,
    change: &dyn Fn(&Tls),
) {
    let hour = Duration::from_secs(3_600);
    let settings = Settings { idle_timeout: hour, head_timeout: hour, ..Settings::default() };
    let (server, _) = serve_with(shared, settings);
    let mut clients: Vec<Client> =
        (0..3).map(|_| Client::connect(&server, config, "a.test").unwrap()).collect();
    let mut http2 = config.clone();
    http2.alpn_protocols = vec![b"h2".to_vec()];
    let mut h2 = Client::connect(&server, &http2, "a.test").unwrap();
    h2.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
    // Only a server that has sent SETTINGS owes a GOAWAY.
    while h2.received.is_empty() {
        assert!(h2.receive().unwrap(), "{case}");
    }
    let [idle, busy, silent] = &mut clients[..] else { unreachable!() };
    assert_eq!(idle.get("/").status, 200);
    busy.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc");
    // The response streams the request body, so that its head proves that it has begun.
    while busy.received.is_empty() {
        assert!(busy.receive().unwrap(), "{case}");
    }
    change(shared);
    if stays_open {
        assert_eq!(idle.get("/").status, 200, "{case}");
        assert_eq!(silent.get("/").status, 200, "{case}");
    } else {
        assert!(idle.response().is_err(), "{case}: the idle connection is open");
        assert!(silent.response().is_err(), "{case}: the connection without a request is open");
        while let Ok(true) = h2.receive() {}
        let goaway = b"\0\0\x08\x07\0\0\0\0\0";
        assert!(h2.received.windows(9).any(|bytes| bytes == goaway), "{case}: no GOAWAY");
    }
    // A request in progress completes.
    busy.send("def");
    assert_eq!(busy.response().unwrap().text(), "abcdef", "{case}");
    if stays_open {
        assert_eq!(busy.get("/").status, 200, "{case}");
    } else {
        assert!(busy.response().is_err(), "{case}: the connection is open after the response");
    }
    stop(server);
}

#[test]
fn tls_1_2_renegotiation_is_refused() {
    if !has_tool("openssl") {
        return;
    }
    let authority = Authority::new("root");
    let (server, _) = serve(with_identity(authority.sign(&["a.test"]).identity()));
    let address = server.addresses()[0].address().unwrap().to_string();
    let mut command = std::process::Command::new("timeout");
    let piped = std::process::Stdio::piped;
    let client = command
        .args(["30", "openssl", "s_client", "-connect", &address, "-tls1_2"])
        .stdin(piped())
        .stdout(piped())
        .stderr(piped());
    let mut client = client.spawn().unwrap();
    let mut stdin = client.stdin.take().unwrap();
    // `R` renegotiates.
    stdin.write_all(b"R\n").unwrap();
    let output = client.wait_with_output().unwrap();
    drop(stdin);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("no renegotiation"), "{stderr}");
    stop(server);
}

#[test]
fn reloads_changed_files() {
    let authority = Authority::new("root");
    let [first, second, third] = [1, 2, 3].map(|_| authority.sign(&["a.test"]));
    let folder = tempfile::tempdir().unwrap();
    first.write(folder.path());
    let tls = Tls::new(TlsSettings {
        check_files_every: Duration::from_millis(10),
        ..with_identity(in_folder(&folder))
    });
    let tls = tls.unwrap();
    let (server, errors) = serve_with(&tls, Settings::default());
    let config = client_config(&authority);
    let served_certificate = || {
        let client = Client::connect(&server, &config, "a.test").unwrap();
        client.tls.peer_certificates().unwrap()[0].clone().into_owned()
    };
    assert_eq!(served_certificate(), first.der());
    let mut old = Client::connect(&server, &config, "a.test").unwrap();

    // The certificate is replaced first and its key later: the mismatch is reported once, and the
    // old identity stays in use.
    fs::write(folder.path().join("crt"), &second.certificate).unwrap();
    let (kind, reason) = errors.recv_timeout(TEST_TIMEOUT).unwrap();
    assert_eq!(kind, ErrorKind::InvalidSetting);
    assert!(reason.contains("does not belong to the certificate in"), "{reason}");
    assert_eq!(served_certificate(), first.der());
    assert!(tls.reload().is_err());
    fs::write(folder.path().join("key"), &second.key).unwrap();
    until("the new certificate is served", || served_certificate() == second.der());
    assert_eq!(old.get("/").status, 200, "open connections are not affected");

    // By symbolic links into another directory, as tools do that replace both files atomically.
    let swapped = folder.path().join("swapped");
    fs::create_dir(&swapped).unwrap();
    third.write(&swapped);
    for name in ["key", "crt"] {
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(swapped.join(name), &link).unwrap();
        fs::rename(link, folder.path().join(name)).unwrap();
    }
    until("the third certificate is served", || served_certificate() == third.der());
    stop(server);
}

/// A file that cannot be used keeps its former contents, and all others are loaded.
#[test]
fn unusable_file_does_not_hold_back_others() {
    let authority = Authority::new("root");
    let names = ["a.test", "b.test", "c.test"];
    let folders = names.map(|_| tempfile::tempdir().unwrap());
    let sign_all = || names.map(|name| authority.sign(&[name]));
    let (first, second, third) = (sign_all(), sign_all(), sign_all());
    let write = |index: usize, signed: &Signed| signed.write(folders[index].path());
    (0..3).for_each(|index| write(index, &first[index]));
    let tickets = folders[0].path().join("tickets");
    fs::write(&tickets, [1; 48]).unwrap();
    let tls = Tls::new(TlsSettings {
        identities: folders.iter().map(in_folder).collect(),
        ticket_keys: Some(tickets.clone()),
        check_files_every: Duration::from_millis(10),
        ..TlsSettings::default()
    });
    let tls = tls.unwrap();
    let (server, errors) = serve_with(&tls, Settings::default());
    let config = client_config(&authority);
    let served = |name: &str| {
        let client = Client::connect(&server, &config, name).unwrap();
        client.tls.peer_certificates().unwrap()[0].clone().into_owned()
    };
    let failed = |paths: &[&Path]| {
        let failures = tls.reload_failures();
        let files: Vec<_> = failures.iter().map(|failure| &*failure.file).collect();
        assert_eq!(files, paths);
    };
    failed(&[]);

    let broken = folders[1].path().join("crt");
    fs::write(&broken, "x").unwrap();
    write(2, &second[2]);
    until("the other certificate is served", || served("c.test") == second[2].der());
    assert_eq!(["a.test", "b.test"].map(served), [first[0].der(), first[1].der()]);
    let (kind, reason) = errors.recv_timeout(TEST_TIMEOUT).unwrap();
    assert_eq!(kind, ErrorKind::InvalidSetting);
    assert!(reason.contains(&format!("{} contains no certificate", broken.display())), "{reason}");
    failed(&[&broken]);

    // Keys of tickets, too.
    fs::write(&tickets, [1; 47]).unwrap();
    write(0, &second[0]);
    until("the default certificate is served", || served("a.test") == second[0].der());
    failed(&[&broken, &tickets]);

    fs::write(&tickets, [1; 48]).unwrap();
    write(1, &third[1]);
    until("the repaired certificate is served", || served("b.test") == third[1].der());
    until("nothing has failed", || tls.reload_failures().is_empty());
    stop(server);
}

#[test]
fn errors_name_the_unusable_file() {
    let authority = Authority::new("root");
    let [one, other] = [1, 2].map(|_| authority.sign(&["a.test"]));
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("crt"), &one.certificate).unwrap();
    fs::write(path("key"), &one.key).unwrap();
    fs::write(path("other"), &other.key).unwrap();
    fs::write(path("empty"), "").unwrap();
    fs::write(
        path("encrypted"),
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    )
    .unwrap();
    fs::write(path("cut"), &one.key[..80]).unwrap();
    fs::write(path("47"), [0; 47]).unwrap();
    let files = |crt: &str, key: &str| with_identity(Identity::files(path(crt), path(key)));
    let roots = ClientAuth::Required(Roots::file(path("empty")));
    for (settings, expected) in [
        (TlsSettings::default(), "TLS requires a certificate"),
        (files("crt", "key"), ""),
        (files("crt", "other"), "the key in ?/other does not belong to the certificate in ?/crt"),
        (files("missing", "key"), "cannot read ?/missing"),
        (files("crt", "missing"), "cannot read ?/missing"),
        (files("empty", "key"), "?/empty contains no certificate"),
        (files("key", "key"), "?/key contains no certificate"),
        (files("crt", "crt"), "?/crt contains no private key"),
        (files("crt", "cut"), "?/cut is not valid PEM"),
        (files("crt", "encrypted"), "the key in ?/encrypted is encrypted"),
        (
            TlsSettings { ticket_keys: Some(path("47")), ..files("crt", "key") },
            "?/47 has 47 bytes, and keys of session tickets have 48 each",
        ),
        (
            TlsSettings { client_auth: roots, ..files("crt", "key") },
            "?/empty contains no certificate",
        ),
    ] {
        let expected = expected.replace('?', folder.path().to_str().unwrap());
        let error = Tls::new(settings).err().map(|error| (error.kind(), error.to_string()));
        match error {
            None => assert_eq!(expected, ""),
            Some((kind, reason)) => {
                assert_eq!(kind, ErrorKind::InvalidSetting);
                assert!(
                    !expected.is_empty() && reason.contains(&expected),
                    "{reason}, not {expected}"
                );
            }
        }
    }
}

/// An identity that cannot be used is left out if another one can be. Its name may be any without a
/// certificate, so that only the names of the others are served.
#[test]
fn missing_identity_is_left_out_and_loaded_later() {
    let authority = Authority::new("root");
    let names = ["a.test", "b.test"];
    let folders = names.map(|_| tempfile::tempdir().unwrap());
    let signed = names.map(|name| authority.sign(&[name]));
    signed[0].write(folders[0].path());
    let settings = |require_all| TlsSettings {
        identities: folders.iter().map(in_folder).collect(),
        require_all,
        check_files_every: Duration::from_millis(10),
        ..TlsSettings::default()
    };
    assert!(Tls::new(settings(true)).is_err());
    let tls = Tls::new(settings(false)).unwrap();
    let failed: Vec<_> = tls.reload_failures().into_iter().map(|failure| failure.file).collect();
    assert_eq!(failed, [folders[1].path().join("crt")]);
    let used: Vec<_> = tls.certificates().into_iter().flat_map(|used| used.names).collect();
    assert_eq!(used, ["a.test"]);
    let (server, _errors) = serve_with(&tls, Settings::default());
    let config = client_config(&authority);
    let is_served = |name| Client::connect(&server, &config, name).is_ok();
    assert_eq!(names.map(is_served), [true, false]);
    signed[1].write(folders[1].path());
    until("the identity is loaded", || is_served("b.test"));
    assert!(tls.reload_failures().is_empty());
    // Other settings keep an identity whose files have become unusable, and new ones do not.
    fs::write(folders[1].path().join("crt"), "x").unwrap();
    let newer = tls.with_settings(settings(true)).unwrap();
    assert_eq!((newer.certificates().len(), newer.reload_failures().len()), (2, 1));
    assert!(Tls::new(settings(true)).is_err());
    stop(server);
}
