//! Jumps of the clock, by a library that adds an offset to it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::failing::Renewing;
use super::scripted::Fault;
use crate::common::external::run_successfully;
use crate::common::until;

/// Adds the seconds in a file to the time of day. All other clocks stay as they are.
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = syscall(SYS_clock_gettime, clock, time);
    if (result != 0 || clock != CLOCK_REALTIME) return result;
    char text[32] = {0};
    int file = open(getenv("CLOCK_OFFSET"), O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        if (read(file, text, sizeof text - 1) > 0) time->tv_sec += atol(text);
        close(file);
    }
    return 0;
}
"#;

const DAY: i64 = 86_400;

/// Ticks of the processor's time that a server may use in a second without a request: a tenth.
const MAX_TICKS_PER_SECOND: u64 = 10;

fn build_library(folder: &Path) -> std::path::PathBuf {
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    fs::write(&source, LIBRARY).unwrap();
    run_successfully(Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]));
    library
}

/// The authority's certificates are valid for 90 days and renewed after 60.
#[test]
fn renewals_are_by_the_time_of_day() {
    let folder = tempfile::tempdir().unwrap();
    let (library, offset) = (build_library(folder.path()), folder.path().join("offset"));
    let set_offset = |seconds: i64| {
        let new = folder.path().join("new");
        fs::write(&new, seconds.to_string()).unwrap();
        fs::rename(&new, &offset).unwrap();
    };
    set_offset(0);
    let variables = [("LD_PRELOAD", &*library), ("CLOCK_OFFSET", &*offset)];
    let server = Renewing::start_with(Fault::NinetyDays, "60s", &variables);
    let issued = || server.authority.issued().len();
    let renewed = || server.weft.stderr().matches("was issued by").count();
    until("the first certificate is issued", || renewed() == 1);
    for (jump, expected) in [
        // A laptop that was suspended. The authority's clock has not jumped: each certificate is
        // due at once, and the next order has a pause.
        (70 * DAY, 2),
        // The pause, as it is stored, is too far away then.
        (66 * DAY, 3),
        // Before the validity.
        (-DAY, 3),
        // Some seconds, as by NTP.
        (-DAY - 5, 3),
    ] {
        set_offset(jump);
        until(&format!("{expected} orders after a jump to {jump} s"), || renewed() == expected);
        assert_idle(server.weft.id(), jump);
        assert_eq!(issued(), expected, "{jump}: {}", server.weft.stderr());
    }
    assert!(server.is_served("root.pem"), "{}", server.weft.stderr());
    server.weft.stop();
}

/// Asserts that a server uses little of the processor.
fn assert_idle(process: u32, jump: i64) {
    let ticks = || {
        let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        let (_, fields) = text.rsplit_once(')').unwrap();
        let fields: Vec<u64> = fields.split(' ').filter_map(|field| field.parse().ok()).collect();
        // utime and stime: numbers 10 and 11 behind the name and the state.
        fields[10] + fields[11]
    };
    let before = ticks();
    std::thread::sleep(Duration::from_secs(1));
    let used = ticks() - before;
    assert!(used <= MAX_TICKS_PER_SECOND, "{used} ticks after a jump to {jump} s");
}
