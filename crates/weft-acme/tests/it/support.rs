//! Helpers shared by the tests.

use std::io::Write;
use std::time::{Duration, Instant};

use weft::server::ServerHandle;
use weft::{Application, BoxApplication, Server};

/// Upper bound on waiting for an expected event. Long enough never to expire on a busy machine.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Creates a server for an application, which is boxed: the compiler would translate the whole
/// server again for each type of application.
pub fn boxed_server(app: impl Application + Clone + Send + 'static) -> Server<BoxApplication> {
    Server::new(BoxApplication::new(app))
}

/// Stops a server with a grace period of 100 ms.
pub fn stop(server: ServerHandle) {
    server.shutdown(Duration::from_millis(100));
}

/// Polls `condition` every 5 ms until it returns true; panics after `TEST_TIMEOUT`.
#[track_caller]
pub fn until(description: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < TEST_TIMEOUT, "timed out: {description}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns true if the external program `name` is in `PATH`. Otherwise the test is reported as
/// skipped and passes; with `WEFT_REQUIRE_TOOLS=1` in the environment it fails.
#[track_caller]
pub fn has_tool(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_installed = std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    if !is_installed {
        let required = std::env::var_os("WEFT_REQUIRE_TOOLS").is_some_and(|value| value == "1");
        assert!(!required, "{name} is not installed, and WEFT_REQUIRE_TOOLS=1");
        // The test harness captures the output of `print!` and `eprintln!` in tests that pass.
        let line = format!("SKIPPED: {name} is not installed\n");
        std::io::stderr().write_all(line.as_bytes()).expect("stderr is writable");
    }
    is_installed
}
