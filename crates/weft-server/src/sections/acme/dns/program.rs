//! Changes of the DNS by a program of the operator.
//!
//! The program has two arguments, the name and the value of a TXT record. The variable
//! `WEFT_DNS_CHANGE` of its environment is `add` or `remove`. No shell is involved. If the program
//! exits without an error, the servers of the zone have the change.

use std::future::poll_fn;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::timeout;

use super::Change;
use crate::base::process_group::Process;
use crate::base::sys::{OwnedFd, read_from_pipe};

/// Time limit for a run.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Maximum size of the text of an error, in bytes; the rest is discarded.
const MAX_ERROR_BYTES: usize = 1_024;

/// Runs a program. Its process group is killed after `time_limit`.
///
/// # Errors
/// If the program fails: the reason is its standard error.
pub(super) async fn run(
    program: &Path,
    change: Change,
    arguments: [&str; 2],
    time_limit: Duration,
) -> Result<(), String> {
    let path = program.display();
    // A name alone would be searched for in `PATH`.
    let absolute = std::path::absolute(program).map_err(|error| error.to_string())?;
    let mut command = Command::new(absolute);
    let change = match change {
        Change::Add => "add",
        Change::Remove => "remove",
    };
    command.args(arguments).env("WEFT_DNS_CHANGE", change);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut error = Vec::new();
    match timeout(time_limit, run_to_exit(command, &mut error)).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => {
            let text = String::from_utf8_lossy(&error).replace(char::is_control, " ");
            Err(format!("{path} failed ({status}): {}", text.trim()))
        }
        Ok(Err(error)) => Err(format!("cannot run {path}: {error}")),
        Err(_) => Err(format!("{path} did not exit within {} s", time_limit.as_secs_f32())),
    }
}

/// Runs a program and stores the beginning of its standard error. Returns when the program exits,
/// even if a child of it still has the pipe.
async fn run_to_exit(command: Command, error: &mut Vec<u8>) -> std::io::Result<ExitStatus> {
    let (mut process, pipes) = Process::start(command, None).await?;
    let pipe = pipes.stderr.ok_or(std::io::ErrorKind::BrokenPipe)?;
    let mut pipe = pipe::Receiver::from_owned_fd(OwnedFd::from(pipe))?;
    let mut buffer = [0; 1_024];
    let mut append = |bytes: &[u8]| {
        let room = MAX_ERROR_BYTES - error.len();
        error.extend_from_slice(&bytes[..bytes.len().min(room)]);
    };
    let mut is_open = true;
    let status = loop {
        tokio::select! {
            status = poll_fn(|cx| process.poll_exit(cx)) => break status?,
            read = pipe.read(&mut buffer), if is_open => match read {
                Ok(read @ 1..) => append(&buffer[..read]),
                Ok(0) | Err(_) => is_open = false,
            }
        }
    };
    // The program may have written more before its exit than was read. The event loop may not have
    // seen it yet, so that the pipe, which does not block, is read without it. The number of reads
    // is bounded, because a child may write without end.
    for _ in 0..MAX_ERROR_BYTES {
        let Ok(read @ 1..) = read_from_pipe(&pipe, &mut buffer) else { break };
        append(&buffer[..read]);
    }
    Ok(status)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    fn script(folder: &Path, text: &str) -> PathBuf {
        let path = folder.join("dns");
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        path
    }

    fn run_script(text: &str, time_limit: Duration) -> (Result<(), String>, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = script(folder.path(), text);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let arguments = ["_acme-challenge.example.org", "$(x) 'y\"\n"];
        let result = runtime.block_on(async {
            loop {
                let result = run(&path, Change::Remove, arguments, time_limit).await;
                // A process that another test starts may still have the file open for writing.
                match &result {
                    Err(reason) if reason.contains("Text file busy") => {}
                    _ => break result,
                }
            }
        });
        let result = result.map_err(|reason| reason.replace(path.to_str().unwrap(), "PROGRAM"));
        (result, fs::read_to_string(folder.path().join("dns.out")).unwrap_or_default())
    }

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn passes_name_value_and_change_without_a_shell() {
        let (result, output) =
            run_script(r#"printf '%s|' "$@" "$WEFT_DNS_CHANGE" > "$0.out""#, LIMIT);
        assert_eq!(result, Ok(()));
        assert_eq!(output, "_acme-challenge.example.org|$(x) 'y\"\n|remove|");
    }

    #[test]
    fn reports_the_begin_of_standard_error() {
        let long = "PROGRAM failed (exit status: 3): ".to_owned() + &"x".repeat(MAX_ERROR_BYTES);
        for (text, expected) in [
            ("echo no such zone >&2; exit 1", "PROGRAM failed (exit status: 1): no such zone"),
            ("echo ignored; kill -9 $$", "PROGRAM failed (signal: 9 (SIGKILL)):"),
            ("head -c 100000 /dev/zero | tr '\\0' x >&2; exit 3", &long),
            // A child with the pipe is not waited for.
            ("sleep 100 & echo failed >&2; exit 1", "PROGRAM failed (exit status: 1): failed"),
        ] {
            let reason = run_script(text, LIMIT).0.unwrap_err();
            assert_eq!(reason.trim_end(), expected, "{text}");
        }
    }

    #[test]
    fn kills_a_program_after_the_time_limit() {
        let (result, _) = run_script("sleep 100", Duration::from_millis(100));
        assert_eq!(result, Err("PROGRAM did not exit within 0.1 s".to_owned()));
    }

    #[test]
    fn reports_a_missing_program() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let run = run(Path::new("/nonexistent"), Change::Add, ["a", "b"], LIMIT);
        let reason = runtime.block_on(run).unwrap_err();
        assert!(reason.starts_with("cannot run /nonexistent: No such file"), "{reason}");
    }
}
