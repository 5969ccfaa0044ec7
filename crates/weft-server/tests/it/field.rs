//! Public reports about other servers, and the right behavior: each file of `tests/field` has a
//! configuration, the bytes that a client and an upstream send, and the responses.
//!
//! `WEFT_FIELD=NAME` selects the files whose names have that text. [`report`] describes the files.

mod client;
mod pattern;
mod report;
mod upstream;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, UNIX_EPOCH};

use tempfile::TempDir;

use self::client::Conversation;
use self::report::{Report, Step, Written, read_all};
use self::upstream::start_upstream;
use crate::common::{PATIENCE, Signal, Weft, repository, until, unused_address, weft};

/// Reports that are tested at the same time.
const THREADS: usize = 4;

#[test]
fn reports_of_the_field_have_the_right_outcome() {
    let selected = std::env::var("WEFT_FIELD").unwrap_or_default();
    let mut reports = read_all();
    // Files of `/proc`, whose length is not known.
    let is_linux = cfg!(all(target_os = "linux", not(weft_portable)));
    reports.retain(|report| is_linux || !report.name.ends_with("files-of-proc"));
    reports.retain(|report| report.name.contains(&selected));
    assert!(!reports.is_empty(), "no file has the text {selected:?} in its name");
    let next = Mutex::new(reports.iter());
    let failures = Mutex::new(String::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let Some(report) = next.lock().unwrap().next() else { return };
                    let play = || Stage::set(report).play(report);
                    let outcome = std::panic::catch_unwind(play);
                    if let Err(failure) = outcome.unwrap_or_else(|_| Err("it panicked".into())) {
                        let mut failures = failures.lock().unwrap();
                        writeln!(failures, "{}: {}: {failure}", report.name, report.title).unwrap();
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "of {} reports:\n{failures}", reports.len());
}

/// The folder, upstream and server of a report.
struct Stage {
    folder: TempDir,
    /// Pairs of a placeholder and its value.
    values: Vec<(&'static str, String)>,
    server: Option<Weft>,
}

impl Stage {
    /// Writes the files and starts the upstream, and the server if there is a configuration.
    fn set(report: &Report) -> Stage {
        let folder = tempfile::tempdir().expect("a folder");
        let upstream = start_upstream(report.upstream_responses.clone());
        let mut values = vec![
            ("{upstream}", upstream.to_string()),
            ("{nobody}", unused_address().to_string()),
            ("{folder}", folder.path().display().to_string()),
        ];
        for file in &report.files {
            write_file(folder.path(), file, &values);
        }
        let mut server = None;
        if let Some(configuration) = &report.configuration {
            let path = folder.path().join("weft.toml");
            fs::write(&path, filled(&with_listener(configuration), &values)).unwrap();
            if report.steps.iter().any(|step| !matches!(step, Step::Check { .. })) {
                let weft = Weft::start(weft(["--workers", "1", "--config"]).arg(&path));
                values.push(("{server}", weft.address().to_string()));
                server = Some(weft);
            }
        }
        Stage { folder, values, server }
    }

    /// Performs the steps in order, until one fails.
    fn play(&self, report: &Report) -> Result<(), String> {
        let mut conversation = Conversation::default();
        for step in &report.steps {
            self.perform(step, &mut conversation)?;
        }
        Ok(())
    }

    fn perform(&self, step: &Step, conversation: &mut Conversation) -> Result<(), String> {
        match step {
            Step::Request { bytes, again, half_closed } => {
                if !again {
                    conversation.connect(self.server().address());
                }
                conversation.send(bytes, *half_closed);
            }
            Step::Curl(arguments) => conversation.run_curl(&filled(arguments, &self.values)),
            Step::Response(expected) => {
                conversation.expect_response(&filled(expected, &self.values))?;
            }
            Step::Closed => conversation.expect_end()?,
            Step::Write(file) => write_file(self.folder.path(), file, &self.values),
            Step::Reload => self.reload(),
            Step::Check { status, output } => self.check(*status, output)?,
            Step::AccessLog(lines) => wait_for_lines(lines, || self.server().stdout())?,
            Step::ErrorLog(lines) => wait_for_lines(lines, || self.server().stderr())?,
            Step::Test { file, name } => {
                let source =
                    fs::read_to_string(repository(file)).map_err(|e| format!("{file}: {e}"))?;
                if !source.contains(&format!("fn {name}(")) {
                    return Err(format!("{file} has no test {name}"));
                }
            }
        }
        Ok(())
    }

    fn server(&self) -> &Weft {
        self.server.as_ref().expect("a block `toml`")
    }

    /// Reloads the configuration and waits for the notice.
    fn reload(&self) {
        let notices = || self.server().stderr().matches("reload").count();
        let before = notices();
        self.server().signal(Signal::HUP);
        until("the reload is logged", || notices() > before);
    }

    /// Compares the exit status of `weft check --strict`, and searches its output for texts.
    fn check(&self, status: i32, texts: &str) -> Result<(), String> {
        let path = self.folder.path().join("weft.toml");
        let output = crate::common::run(["check".as_ref(), "--strict".as_ref(), path.as_os_str()]);
        let all = format!("{}{}", output.stdout, output.stderr);
        let missing = texts.lines().find(|text| !all.contains(&filled(text, &self.values)));
        match missing {
            None if output.status == Ok(status) => Ok(()),
            _ => Err(format!("check: {:?}: {all}", output.status)),
        }
    }
}

/// Adds an address with a port that the kernel assigns, unless the configuration has one.
fn with_listener(configuration: &str) -> String {
    match configuration.contains("listen = ") {
        true => configuration.to_owned(),
        false => format!("listen = \"127.0.0.1:0\"\n{configuration}"),
    }
}

/// Replaces placeholders of the test by their values.
fn filled(text: &str, values: &[(&str, String)]) -> String {
    values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
}

fn write_file(folder: &Path, file: &Written, values: &[(&str, String)]) {
    let path = folder.join(&file.path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, filled(&file.contents, values)).unwrap();
    if let Some(seconds) = file.modified {
        let distance = Duration::from_secs(seconds.unsigned_abs());
        let time = match seconds < 0 {
            true => UNIX_EPOCH - distance,
            false => UNIX_EPOCH + distance,
        };
        fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    }
}

/// Waits until each line occurs, as a part of a line of the log.
fn wait_for_lines(lines: &str, log: impl Fn() -> String) -> Result<(), String> {
    let start = std::time::Instant::now();
    loop {
        let text = log();
        let Some(missing) = lines.lines().find(|line| !text.contains(line)) else { return Ok(()) };
        if start.elapsed() > PATIENCE {
            return Err(format!("{missing:?} is not in the log:\n{text}"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
