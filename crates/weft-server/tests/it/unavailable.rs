//! Sites that cannot be opened: their routes respond with 503, their names get no TLS handshake,
//! and the others are served.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::common::{
    Client, HAS_CONTROL_SOCKET, Program, ProgramOutput, Signal, Weft, has_tool, until, weft,
};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use tempfile::TempDir;

struct Site(TempDir);

impl Site {
    fn new() -> Site {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("www")).unwrap();
        fs::write(folder.path().join("www/a.txt"), "A\n").unwrap();
        Site(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, config: &str) {
        fs::write(self.path("w.toml"), config).unwrap();
    }

    /// Writes the files `NAME.crt` and `NAME.key` of a certificate for a name.
    fn write_certificate(&self, name: &str) {
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        self.write_params(name, params);
    }

    fn write_params(&self, name: &str, params: CertificateParams) {
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
        fs::write(self.path(&format!("{name}.crt")), certificate.pem()).unwrap();
    }

    fn serve(&self) -> Weft {
        let mut command = weft(["--config", "w.toml", "--no-log"]);
        Weft::start(command.current_dir(self.0.path()))
    }

    fn run(&self, arguments: &[&str]) -> ProgramOutput {
        Program::start(weft(arguments).current_dir(self.0.path())).wait_with_output()
    }
}

fn get(server: &Weft, target: &str) -> u16 {
    server.client().get(target).status
}

fn text_of(server: &Weft, target: &str) -> String {
    let response = Client::tcp(server.status_address()).get(target);
    String::from_utf8(response.body).unwrap()
}

const HEAD: &str = "listen = [\"127.0.0.1:0\"]\nstatus.listen = [\"127.0.0.1:0\"]\nstatus.hosts = [\"a\"]\n[hosts.\"*\"]\n\
                    \"/\" = \"-> www\"\n";

#[test]
fn missing_folder_and_password_file_stop_no_other_route() {
    let site = Site::new();
    let routes = "\"/gone/\" = \"-> gone\"\n\
                  \"/secret/\" = { files = \"www\", basic_auth = \"users\" }\n";
    site.write(&format!("{HEAD}{routes}"));
    let folder = "w.toml:6:12: cannot serve gone: No such file or directory (os error 2)";
    let users = "w.toml:7:14: cannot read users: No such file or directory (os error 2)";
    // The check fails, and so does a start with `strict_start`.
    for (head, arguments) in
        [("", ["check", "w.toml"]), ("strict_start = true\n", ["-c", "w.toml"])]
    {
        site.write(&format!("{head}{HEAD}{routes}"));
        let output = site.run(&arguments);
        let line = |text: &str| match head.is_empty() {
            true => format!("weft: {text}\n"),
            false => format!("weft: {text}\n")
                .replace("toml:7:", "toml:8:")
                .replace("toml:6:", "toml:7:"),
        };
        assert_eq!(output.status, Ok(1));
        assert_eq!(output.stderr, line(folder) + &line(users));
    }
    site.write(&format!("{HEAD}{routes}"));
    let server = site.serve();
    // The route with passwords does not serve its files without them.
    let statuses = ["/a.txt", "/gone/a.txt", "/secret/a.txt"].map(|path| get(&server, path));
    assert_eq!(statuses, [200, 503, 503]);
    for (reason, route) in [(folder, "/gone/"), (users, "/secret/")] {
        let line = format!(
            "weft: {reason}; the route {route} of the host * responds with 503 until a reload\n"
        );
        until("the reason is logged", || server.stderr().contains(&line));
        let metric = format!("weft_route_unavailable{{host=\"*\",route=\"{route}\"}} 1\n");
        assert!(text_of(&server, "/metrics").contains(&metric), "{metric}");
        assert!(text_of(&server, "/status.json").contains(reason), "{reason}");
    }
    // A reload opens what is there by now.
    fs::create_dir(site.path("gone")).unwrap();
    fs::write(site.path("gone/a.txt"), "B\n").unwrap();
    fs::write(site.path("users"), "").unwrap();
    let statuses = || ["/a.txt", "/gone/a.txt", "/secret/a.txt"].map(|path| get(&server, path));
    if HAS_CONTROL_SOCKET {
        let output = site.run(&["reload", "--pid", &server.id().to_string()]);
        assert_eq!((output.status, &*output.stderr), (Ok(0), ""));
    } else {
        server.signal(Signal::HUP);
        until("the folder is open", || statuses()[1] == 200);
    }
    assert_eq!(statuses(), [200, 200, 401]);
    assert!(!text_of(&server, "/metrics").contains("weft_route_unavailable"));
    // And closes what is no longer there.
    fs::remove_dir_all(site.path("gone")).unwrap();
    if HAS_CONTROL_SOCKET {
        assert_eq!(site.run(&["reload", "--pid", &server.id().to_string()]).status, Ok(3));
    } else {
        server.signal(Signal::HUP);
        until("the route is closed", || statuses()[1] == 503);
    }
    assert_eq!(statuses(), [200, 503, 401]);
}

#[test]
fn start_fails_if_no_route_can_be_served() {
    let site = Site::new();
    site.write("[hosts.a]\n\"/\" = \"-> gone\"\n[hosts.b]\n\"/\" = \"-> away\"\n");
    let output = site.run(&["--config", "w.toml"]);
    let expected = "weft: w.toml:2:7: cannot serve gone: No such file or directory (os error 2)\n\
                    weft: w.toml:4:7: cannot serve away: No such file or directory (os error 2)\n";
    assert_eq!((output.status, &*output.stderr), (Ok(1), expected));
}

/// Requests a page of a host over TLS. Returns the status, or the error of curl: 35 if the
/// handshake failed.
fn status_over_tls(server: &Weft, name: &str) -> Result<String, i32> {
    let port = server.tls_address().port();
    let output = Command::new("curl")
        .args(["-sSk", "--max-time", "30", "-o", "/dev/null", "-w", "%{http_code}", "--resolve"])
        .args([format!("{name}:{port}:127.0.0.1"), format!("https://{name}:{port}/a.txt")])
        .output()
        .expect("curl runs");
    match output.status.code() {
        Some(0) => Ok(String::from_utf8(output.stdout).unwrap()),
        code => Err(code.expect("curl is not killed by a signal")),
    }
}

#[test]
fn broken_certificate_stops_no_other_name() {
    if !has_tool("curl") {
        return;
    }
    let site = Site::new();
    ["a.test", "b.test", "c.test"].iter().for_each(|name| site.write_certificate(name));
    let pair = |name| format!("{{ cert = \"{name}.crt\", key = \"{name}.key\" }}");
    let pairs = ["a.test", "b.test", "c.test"].map(pair).join(", ");
    let config = format!("{HEAD}[tls]\nlisten = [\"127.0.0.1:0\"]\ncertificates = [{pairs}]\n");
    site.write(&config);
    let certificate = fs::read(site.path("b.test.crt")).unwrap();
    fs::write(site.path("b.test.crt"), "no PEM").unwrap();
    let server = site.serve();
    let names = ["a.test", "b.test", "c.test", "d.test"];
    let statuses = || names.map(|name| status_over_tls(&server, name));
    let served = || Ok("200".to_owned());
    // The unknown name may be one of the broken certificate.
    assert_eq!(statuses(), [served(), Err(35), served(), Err(35)]);
    until("the certificate is named", || {
        server.stderr().contains("b.test.crt contains no certificate; the other certificates are")
    });
    let metric = "weft_certificate_reload_failed{file=\"b.test.crt\"} 1\n";
    let metrics = text_of(&server, "/metrics");
    assert!(metrics.contains(metric), "{metrics}");
    // The certificate expires at the beginning of the year 4096.
    let expiry =
        "weft_certificate_expiry_seconds{name=\"c.test\",file=\"c.test.crt\"} 67090118400\n";
    assert!(metrics.contains(expiry), "{metrics}");
    // It is loaded without a reload, and the first certificate serves unknown names again.
    fs::write(site.path("b.test.crt"), &certificate).unwrap();
    until("the certificate is loaded", || statuses()[1] == served());
    assert_eq!(statuses(), [served(), served(), served(), served()]);
    // A reload of the configuration keeps the loaded one if the file breaks again.
    fs::write(site.path("b.test.crt"), "no PEM").unwrap();
    let output = site.run(&["reload", "--pid", &server.id().to_string()]);
    assert_eq!(output.status, Ok(3), "{}", output.stderr);
    assert_eq!(statuses(), [served(), served(), served(), served()]);
    // With `strict_start`, it fails.
    site.write(&format!("strict_start = true\n{config}"));
    let output = site.run(&["reload", "--pid", &server.id().to_string()]);
    assert_eq!(output.status, Ok(1), "{}", output.stderr);
    // Without the first certificate, there is none for clients without a name either.
    fs::write(site.path("b.test.crt"), &certificate).unwrap();
    fs::write(site.path("a.test.crt"), "no PEM").unwrap();
    site.write(&config);
    server.stop();
    let server = site.serve();
    assert_eq!(status_over_tls(&server, "b.test"), served());
    assert_eq!(status_over_tls(&server, "a.test"), Err(35));
    assert_eq!(status_over_tls(&server, "127.0.0.1"), Err(35));
    // Broken alone, it fails the start.
    site.write(&config.replace(&pairs, &pair("a.test")));
    assert_eq!(site.run(&["--config", "w.toml"]).status, Ok(1));
}

#[test]
fn certificates_that_expire_soon_are_reported() {
    const DAY: Duration = Duration::from_secs(86_400);
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let in_days = |days: u32| date_time_ymd(1970, 1, 1) + since_1970 + days * DAY + DAY / 24;
    for (not_after, expected) in [
        (date_time_ymd(2001, 1, 1), Some("a.test.crt has expired: 2001-01-01T00:00:00Z")),
        (in_days(5), Some("a.test.crt expires in 5 days: ")),
        (in_days(80), None),
    ] {
        let site = Site::new();
        let mut params = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
        params.not_before = not_after - 90 * DAY;
        params.not_after = not_after;
        site.write_params("a.test", params);
        site.write(&format!(
            "{HEAD}[tls]\nlisten = [\"127.0.0.1:0\"]\n\
             certificates = [{{ cert = \"a.test.crt\", key = \"a.test.key\" }}]\n"
        ));
        let checked = site.run(&["check", "w.toml"]);
        assert_eq!(checked.status, Ok(if expected.is_some() { 3 } else { 0 }), "{not_after}");
        assert!(checked.stderr.contains(expected.unwrap_or_default()), "{}", checked.stderr);
        let server = site.serve();
        if let Some(expected) = expected {
            until("the warning is logged", || server.stderr().contains(expected));
        }
        server.stop();
    }
}

// -- the delay of a stop

#[test]
fn shutdown_delay_keeps_serving_while_the_server_is_not_ready() {
    let site = Site::new();
    site.write(&format!("shutdown_delay = \"5m\"\n{HEAD}"));
    let server = site.serve();
    let ready = || Client::tcp(server.status_address()).get("/ready");
    assert_eq!(ready().status, 200);
    server.signal(Signal::TERM);
    until("the server is not ready", || ready().status == 503);
    assert_eq!(ready().body, b"stopping\n");
    // New connections are accepted.
    assert_eq!(get(&server, "/a.txt"), 200);
    if HAS_CONTROL_SOCKET {
        let pid = server.id();
        let reload = site.run(&["reload", "--pid", &pid.to_string()]);
        let refusal =
            format!("weft: cannot reload the server with the PID {pid}: it is stopping\n");
        assert_eq!((reload.status, reload.stderr), (Ok(1), refusal));
    }
    // The second signal ends the delay.
    let output = server.stop();
    let stop = "weft: SIGTERM: the server stops in 5m (`shutdown_delay`); then requests in \
                progress have 10s\n\
                weft: a second signal ends `shutdown_delay`\n\
                weft: the server has stopped\n";
    assert!(output.stderr.ends_with(stop), "{}", output.stderr);
}

#[test]
fn shutdown_delay_ends_by_itself() {
    let site = Site::new();
    site.write(&format!("shutdown_delay = \"200ms\"\n{HEAD}"));
    let output = site.serve().stop();
    assert!(!output.stderr.contains("a second signal"), "{}", output.stderr);
    assert!(output.stderr.ends_with("weft: the server has stopped\n"), "{}", output.stderr);
}
