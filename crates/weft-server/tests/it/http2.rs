//! HTTP/2 and TLS, tested with external programs. A test without its program is skipped; see
//! `has_tool`.

use std::fs;
use std::process::Command;

use crate::common::external::{
    browse_with, console_lines, curl, first_heading, pattern, run_successfully,
};
use crate::common::{
    Program, ProgramOutput, Weft, has_tool, report_missing_tool, repository, until, weft,
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use tempfile::TempDir;

/// Sizes of the served files; the name of a file is its size.
const SIZES: [usize; 4] = [0, 1_000, 300_000, 20 << 20];

/// A directory to serve, and a certificate for `localhost` signed by a certificate authority.
struct Site(TempDir);

impl Site {
    fn new() -> Site {
        let site = Site(tempfile::tempdir().unwrap());
        fs::create_dir(site.path("site")).unwrap();
        for size in SIZES {
            fs::write(site.path(&format!("site/{size}")), pattern(size)).unwrap();
        }
        fs::write(site.path("site/404.html"), "<h1>Nothing</h1>\n").unwrap();
        fs::create_dir(site.path("site/folder")).unwrap();
        fs::write(site.path("site/folder/index.html"), "<h1>Folder</h1>\n".repeat(1_000)).unwrap();

        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, "the authority of these tests");
        let key = KeyPair::generate().unwrap();
        fs::write(site.path("ca"), params.self_signed(&key).unwrap().pem()).unwrap();
        let issuer = Issuer::new(params, key);

        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().unwrap();
        fs::write(site.path("crt"), params.signed_by(&key, &issuer).unwrap().pem()).unwrap();
        fs::write(site.path("key"), key.serialize_pem()).unwrap();
        site
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn serve(&self, more: &[&str]) -> Weft {
        self.serve_folder(&self.path("site"), more)
    }

    /// Serves a directory on a plaintext and a TLS listener.
    fn serve_folder(&self, folder: &str, more: &[&str]) -> Weft {
        let (crt, key) = (self.path("crt"), self.path("key"));
        let mut command = weft([folder, "--listen", "127.0.0.1:0", "--tls-listen", "127.0.0.1:0"]);
        Weft::start(command.args(["--tls-cert", &crt, "--tls-key", &key]).args(more))
    }

    /// Returns the command for `curl`, which trusts the certificate authority.
    fn curl(&self) -> Command {
        let mut command = curl();
        command.args(["--ipv4", "--cacert", &self.path("ca")]);
        command
    }
}

/// Returns a TLS URL with the host name of the certificate.
fn named_url(server: &Weft, target: &str) -> String {
    format!("https://localhost:{}{target}", server.tls_address().port())
}

/// Returns a TLS URL with the IP address, for clients that do not verify the certificate.
fn tls_url(server: &Weft, target: &str) -> String {
    format!("https://{}{target}", server.tls_address())
}

// -- curl

#[test]
fn curl_negotiates_http_versions() {
    if !has_tool("curl") {
        return;
    }
    let site = Site::new();
    let server = site.serve(&[]);
    let (plain, secure) = (server.url("/1000"), named_url(&server, "/1000"));
    let by_address = tls_url(&server, "/1000");
    let other_name = format!("https://other.test:{}/1000", server.tls_address().port());
    let resolve = format!("other.test:{}:127.0.0.1", server.tls_address().port());
    // `Err` is the exit status of curl: 35 for a failed handshake, 60 for an untrusted certificate.
    for (options, url, expected) in [
        (&[][..], &secure, Ok("2 200 1000")),
        (&["--tls-max", "1.2"], &secure, Ok("2 200 1000")),
        (&["--http2-prior-knowledge"], &secure, Ok("2 200 1000")),
        (&["--http1.1"], &secure, Ok("1.1 200 1000")),
        (&["--http1.0"], &secure, Ok("1.1 200 1000")),
        (&["--no-alpn"], &secure, Ok("1.1 200 1000")),
        (&["--tls-max", "1.1", "--ciphers", "ALL:@SECLEVEL=0"], &secure, Err(35)),
        (&[], &by_address, Err(60)),
        (&["--resolve", &resolve], &other_name, Err(60)),
        (&[], &plain, Ok("1.1 200 1000")),
        (&["--http2-prior-knowledge"], &plain, Ok("2 200 1000")),
        // `Upgrade: h2c` is ignored: RFC 9113 §3.1 makes it obsolete.
        (&["--http2"], &plain, Ok("1.1 200 1000")),
    ] {
        let mut command = site.curl();
        command.args(["--write-out", "%{http_version} %{http_code} %{size_download}"]);
        command.args(["--output", "/dev/null"]).args(options).arg(url);
        let output = Program::start(&mut command).wait_with_output();
        let result = output.status.map(|status| match status {
            0 => Ok(&*output.stdout),
            status => Err(status),
        });
        assert_eq!(result, Ok(expected), "{options:?} {url}: {}", output.stderr);
    }
    // A response to HTTP/1.0 has version 1.1; the log contains the version of the request.
    let log = server.stop().stdout;
    for (version, times) in [("2.0", 4), ("1.1", 4), ("1.0", 1)] {
        let line = format!("\"GET /1000 HTTP/{version}\" 200 1000 ");
        assert_eq!(log.matches(&line).count(), times, "{version}: {log}");
    }
}

/// Only the framing of a response depends on the HTTP version.
#[test]
fn curl_receives_the_same_response_over_each_version() {
    if !has_tool("curl") {
        return;
    }
    let site = Site::new();
    // Clocks of several workers would disagree on whether a file has settled.
    let server = site.serve(&["--workers", "1"]);
    let (plain, secure) = (server.url(""), named_url(&server, ""));
    let etag = |target| {
        let head = run_successfully(curl().args(["--head", &format!("{plain}{target}")])).stdout;
        let line = head.lines().find_map(|line| line.strip_prefix("etag: "));
        line.expect("an entity tag").to_owned()
    };
    // The entity tag of a file that has just changed is weak.
    for target in ["/0", "/1000", "/20971520", "/folder/"] {
        until(&format!("{target} has a strong tag"), || etag(target).starts_with('"'));
    }
    let etag = format!("If-None-Match: {}", etag("/1000"));
    for (target, options, status) in [
        ("/1000", &[][..], "200"),
        ("/1000", &["--head"], "200"),
        ("/0", &[], "200"),
        ("/1000", &["--range", "0-9"], "206"),
        ("/1000", &["--range", "-1"], "206"),
        ("/20971520", &["--range", "10000000-19999999"], "206"),
        ("/20971520", &[], "200"),
        ("/20971520", &["--head"], "200"),
        ("/1000", &["--range", "1000-"], "416"),
        ("/1000", &["--header", &etag], "304"),
        ("/1000", &["--header", "If-None-Match: \"x\""], "200"),
        ("/1000", &["--header", "If-Match: \"x\""], "412"),
        ("/1000", &["--header", "If-Modified-Since: Fri, 31 Dec 2100 00:00:00 GMT"], "304"),
        ("/nothing", &[], "404"),
        ("/nothing", &["--head"], "404"),
        ("/folder", &[], "301"),
        ("/folder/", &["--header", "Accept-Encoding: gzip"], "200"),
        ("/folder/", &["--header", "Accept-Encoding: gzip", "--head"], "200"),
        ("/1000", &["--data", "a=b"], "405"),
    ] {
        let get = |option: &str, version: &str, url: &str| {
            let (head, body) = (site.path("head"), site.path("body"));
            let mut command = site.curl();
            command.args([option, "--dump-header", &head, "--output", &body]).args(options);
            command.args(["--write-out", "%{http_version}", &format!("{url}{target}")]);
            let case = format!("{option} {url}{target} {options:?}");
            assert_eq!(run_successfully(&mut command).stdout, version, "{case}");
            let head = fs::read_to_string(head).unwrap();
            let (first, fields) = head.split_once("\r\n").expect("a status line");
            assert_eq!(first.split(' ').nth(1), Some(status), "{case}");
            let is_compared = |line: &&str| {
                !["alt-svc: ", "date: ", "connection: "].iter().any(|n| line.starts_with(n))
            };
            let mut fields: Vec<_> =
                fields.lines().filter(is_compared).map(str::to_owned).collect();
            fields.sort();
            // Without a body, curl creates no file.
            let mut bytes = fs::read(&body).unwrap_or_default();
            let _ = fs::remove_file(&body);
            if options.contains(&"--head") {
                // With --head, curl writes the head to the output file.
                assert!(bytes.ends_with(b"\r\n\r\n"), "{case}: unexpected body");
                bytes.clear();
            }
            (fields, bytes)
        };
        let expected = get("--http1.1", "1.1", &plain);
        for (option, version, url) in [
            ("--http1.1", "1.1", &secure),
            ("--http2", "2", &secure),
            ("--http2-prior-knowledge", "2", &plain),
        ] {
            let (fields, body) = get(option, version, url);
            assert_eq!(fields, expected.0, "{option} {url}{target} {options:?}");
            assert!(body == expected.1, "{option} {url}{target} {options:?}: different body");
        }
    }
    server.stop();
}

#[test]
fn curl_downloads_50_files_in_parallel_on_one_connection() {
    if !has_tool("curl") {
        return;
    }
    let site = Site::new();
    let copies = site.path("copies");
    fs::create_dir(&copies).unwrap();
    let size = |number: usize| 20_000 * number + 1;
    for number in 0..50 {
        fs::write(site.path(&format!("site/file-{number}")), pattern(size(number))).unwrap();
    }
    let server = site.serve(&[]);
    // Only with TLS: without TLS, curl of Debian 12 does not share a connection, with any server.
    let mut command = site.curl();
    command.args(["--parallel", "--parallel-max", "50"]);
    command.args(["--write-out", "%{http_version} %{http_code} %{num_connects}\n"]);
    command.args(["--output", &format!("{copies}/#1"), &named_url(&server, "/file-[0-49]")]);
    let stdout = run_successfully(&mut command).stdout;
    assert_eq!(stdout.lines().count(), 50, "{stdout}");
    assert_eq!(stdout.matches("2 200 0\n").count(), 49, "{stdout}");
    assert_eq!(stdout.matches("2 200 1\n").count(), 1, "{stdout}");
    for number in 0..50 {
        let copy = fs::read(format!("{copies}/{number}")).unwrap();
        assert!(copy == pattern(size(number)), "{number}: unexpected contents");
    }
    server.stop();
}

// -- nghttp and h2load, of nghttp2

/// The response is sent before the request is complete, followed by RST_STREAM with NO_ERROR to
/// stop the upload (RFC 9113 §8.1).
#[test]
fn nghttp_receives_the_response_to_a_rejected_upload() {
    if !has_tool("nghttp") {
        return;
    }
    let site = Site::new();
    let server = site.serve(&[]);
    for url in [server.url("/1000"), tls_url(&server, "/1000")] {
        let mut command = Command::new("nghttp");
        command.args(["-v", "--null-out", "--no-verify-peer"]);
        let transcript =
            run_successfully(command.args(["--data", &site.path("site/20971520"), &url])).stdout;
        let (head, rest) = transcript.split_once(":status: 405").expect("a status");
        assert!(!head.contains("recv RST_STREAM"), "{transcript}");
        let (_, reset) = rest.split_once("recv RST_STREAM").expect("a reset");
        let code = reset.lines().nth(1).expect("its code");
        assert!(code.contains("NO_ERROR"), "{transcript}");
    }
    server.stop();
}

#[test]
fn h2load_20_000_requests_over_each_protocol() {
    if !has_tool("h2load") {
        return;
    }
    let site = Site::new();
    let server = site.serve(&[]);
    let (plain, secure) = (server.url("/1000"), tls_url(&server, "/1000"));
    for (options, url, protocol) in [
        (&[][..], &plain, "h2c"),
        (&[], &secure, "h2"),
        (&["--h1"], &secure, "http/1.1"),
        (&["--no-tls-proto=http/1.1"], &plain, "http/1.1"),
    ] {
        let mut command = Command::new("h2load");
        command.args(["-n", "20000", "-c", "100", "-m", "32"]).args(options).arg(url);
        let output = run_successfully(&mut command);
        for line in [
            &format!("Application protocol: {protocol}"),
            "requests: 20000 total, 20000 started, 20000 done, 20000 succeeded, 0 failed, 0 errored, 0 timeout",
            "status codes: 20000 2xx, 0 3xx, 0 4xx, 0 5xx",
        ] {
            assert!(output.stdout.lines().any(|found| found == line), "{line}: {}", output.stdout);
        }
        assert!(output.stdout.contains("(20000000) data"), "{url}: {}", output.stdout);
    }
    let log = server.stop().stdout;
    for version in ["2.0", "1.1"] {
        let line = format!(" \"GET /1000 HTTP/{version}\" 200 1000 \"-\" ");
        assert_eq!(log.lines().filter(|found| found.contains(&line)).count(), 40_000, "{version}");
    }
    assert_eq!(log.lines().count(), 80_000);
}

// -- chromium

#[test]
fn chromium_loads_the_site_over_http2() {
    if !has_tool("chromium") {
        return;
    }
    let site = Site::new();
    let server = site.serve_folder(repository("site").to_str().unwrap(), &[]);
    let page = fs::read_to_string(repository("site/index.html")).unwrap();
    let output = browse_with(&["--ignore-certificate-errors"], &tls_url(&server, "/"));
    assert!(output.stdout.contains(first_heading(&page)), "{}", output.stdout);
    assert_eq!(console_lines(&output), [""; 0]);
    let log = server.stop().stdout;
    for file in ["/", "/style.css", "/weave.svg"] {
        assert!(log.contains(&format!("\"GET {file} HTTP/2.0\" 200 ")), "{file}: {log}");
    }
    assert!(log.lines().all(|line| line.contains(" HTTP/2.0\" 200 ")), "{log}");
}

/// Checks the protocol reported by the Performance API of the browser.
#[test]
fn chromium_reports_the_negotiated_protocol() {
    if !has_tool("chromium") {
        return;
    }
    let site = Site::new();
    let page = "<h1>none</h1><script>document.querySelector('h1').textContent = \
        performance.getEntriesByType('navigation')[0].nextHopProtocol</script>";
    fs::write(site.path("site/index.html"), page).unwrap();
    let server = site.serve(&[]);
    for (options, url, expected) in [
        (&["--ignore-certificate-errors"][..], tls_url(&server, "/"), "<h1>h2"),
        (
            &["--ignore-certificate-errors", "--disable-http2"],
            tls_url(&server, "/"),
            "<h1>http/1.1",
        ),
        (&[], server.url("/"), "<h1>http/1.1"),
    ] {
        let output = browse_with(options, &url);
        assert_eq!(first_heading(&output.stdout), expected, "{options:?} {url}");
        assert_eq!(console_lines(&output), [""; 0], "{options:?} {url}");
    }
    server.stop();
}

// -- httpx, the HTTP client of Python

/// Returns a Python interpreter with httpx and h2: the one in the `PATH`, or the system interpreter
/// with the packages of the distribution.
fn python() -> Option<&'static str> {
    let found = ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        let output = Command::new(python).args(["-c", "import httpx, h2"]).output();
        output.is_ok_and(|output| output.status.success())
    });
    if found.is_none() {
        report_missing_tool("httpx with h2, for python3,");
    }
    found
}

#[test]
fn httpx_downloads_files_ranges_and_30_concurrent_streams() {
    let Some(python) = python() else { return };
    let site = Site::new();
    let server = site.serve(&[]);
    let mut command = Command::new(python);
    command.args([
        "-c",
        include_str!("../http2/client.py"),
        &named_url(&server, ""),
        &site.path("ca"),
    ]);
    assert_eq!(run_successfully(&mut command).stdout, "all as expected\n");
    // 10 single and 30 concurrent requests are logged; the client without the certificate authority
    // sends no request.
    let log = server.stop().stdout;
    assert_eq!(log.matches(" HTTP/2.0\" ").count(), 40, "{log}");
    assert_eq!(log.lines().count(), 40, "{log}");
}

// -- openssl

/// Sends these bytes with `openssl s_client` and returns its report.
fn s_client(site: &Site, server: &Weft, options: &[&str], bytes: &str) -> ProgramOutput {
    let input = site.path("input");
    fs::write(&input, bytes).unwrap();
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &server.tls_address().to_string()]);
    command.args(["-servername", "localhost", "-CAfile", &site.path("ca"), "-ign_eof"]);
    Program::start_with_stdin(command.args(options), fs::File::open(input).unwrap())
        .wait_with_output()
}

const LAST_REQUEST: &str = "HEAD /1000 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

#[test]
fn openssl_resumes_sessions_even_after_a_restart() {
    if !has_tool("openssl") {
        return;
    }
    let site = Site::new();
    let (tickets, session) = (site.path("tickets"), site.path("session"));
    fs::write(&tickets, [7; 48]).unwrap();
    for (version, name) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let first = site.serve(&["--tls-tickets", &tickets]);
        let (new, reused) = (format!("New, {name}, "), format!("Reused, {name}, "));
        let output = s_client(&site, &first, &[version, "-sess_out", &session], LAST_REQUEST);
        assert!(output.stdout.contains(&new), "{version}: {}", output.stdout);
        assert!(output.stdout.contains("Verify return code: 0 (ok)"), "{}", output.stdout);
        assert!(output.stdout.contains("HTTP/1.1 200 OK"), "{}", output.stdout);
        let resume = || [version, "-sess_in", &session];
        let output = s_client(&site, &first, &resume(), LAST_REQUEST);
        assert!(output.stdout.contains(&reused), "{version}: {}", output.stdout);
        assert!(output.stdout.contains("HTTP/1.1 200 OK"), "{}", output.stdout);
        first.stop();
        for (arguments, expected) in [(&["--tls-tickets", &*tickets][..], &reused), (&[], &new)] {
            let second = site.serve(arguments);
            let output = s_client(&site, &second, &resume(), LAST_REQUEST);
            assert!(output.stdout.contains(expected), "{version} {arguments:?}: {}", output.stdout);
            second.stop();
        }
    }
}

#[test]
fn openssl_cannot_renegotiate_nor_send_early_data() {
    if !has_tool("openssl") {
        return;
    }
    let site = Site::new();
    let server = site.serve(&[]);
    for (options, bytes, expected) in [
        // The client requests a renegotiation: HTTP/2 forbids it (RFC 9113 §9.2.1), and several
        // attacks used it.
        (&["-tls1_2", "-no_ign_eof"][..], "R\n", "no renegotiation"),
        (&["-tls1_2"], LAST_REQUEST, "Secure Renegotiation IS supported"),
        (&["-tls1_2"], LAST_REQUEST, "Extended master secret: yes"),
        // An attacker could replay a request in early data (RFC 8446 §8).
        (&["-tls1_3"], LAST_REQUEST, "Max Early Data: 0"),
    ] {
        let output = s_client(&site, &server, options, bytes);
        let transcript = format!("{}{}", output.stdout, output.stderr);
        assert!(transcript.contains(expected), "{options:?}: {expected}? {transcript}");
    }
    server.stop();
}
