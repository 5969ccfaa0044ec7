//! One run of a script, from start to exit: its input, its output and its timeouts.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;
use weft::client_limit::ClientPermit;
use weft_upstream::gateway_error::GatewayError;
use weft_upstream::script::stderr;
use weft_upstream::script::{HeadForm, ScriptHead, ScriptHeadParser};
use weft_upstream::task::AbortOnDrop;

use super::settings::CgiSettings;
use super::timeout::OutputTimeout;
use super::upload::{self, IncompleteBody, Input, Progress};
use crate::base::process_group::Process;
use crate::base::sys::OwnedFd;

/// Maximum size of a read, in bytes: the capacity of a pipe.
const MAX_READ_BYTES: usize = 64 << 10;

/// Maximum size of a read before the end of the head, in bytes. It bounds the part of the body that
/// is read without a reservation of memory.
const HEAD_READ_BYTES: usize = 8 << 10;

/// Time that the response waits for the script to exit after the end of its output. Most scripts
/// exit at once; a script that runs longer does not delay the client.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Time that standard error is still read after the script has exited or was sent SIGTERM: a child
/// of the script may keep the pipe open.
const STDERR_TIMEOUT: Duration = Duration::from_secs(2);

/// Running script. Dropping it terminates the script, unless it was [detached](Run::detach).
pub(super) struct Run {
    process: Process,
    /// `None` after end of file.
    stdout: Option<pipe::Receiver>,
    /// Maximum size of the next read, in bytes.
    max_read_bytes: usize,
    /// Start of the body, read together with the head.
    buffered: Bytes,
    upload: Option<Upload>,
    /// Pipe of an incomplete request body. It stays open until the script was sent SIGTERM, so that
    /// the script does not take the partial body for the complete one.
    _open_stdin: Option<pipe::Sender>,
    stderr: Option<AbortOnDrop>,
    output_timeout: OutputTimeout,
    /// Name of the script in the log.
    script: Arc<str>,
    body_timeout: Duration,
}

struct Upload {
    incomplete: oneshot::Receiver<IncompleteBody>,
    _task: AbortOnDrop,
}

impl Run {
    pub(super) async fn start(
        mut command: Command,
        input: Input,
        permit: ClientPermit,
        script: Arc<str>,
        settings: &CgiSettings,
    ) -> Result<Run, GatewayError> {
        let (stdin, body) = match input {
            Input::Empty => (Stdio::null(), None),
            Input::Body(body) => (Stdio::piped(), Some(body)),
        };
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = Process::start(command, Some(permit)).await;
        let (process, pipes) = started.map_err(GatewayError::from_spawn_error)?;
        let progress = Arc::<Progress>::default();
        let mut upload = None;
        if let (Some(body), Some(stdin)) = (body, pipes.stdin) {
            let stdin = pipe::Sender::from_owned_fd(OwnedFd::from(stdin))?;
            let (sender, incomplete) = oneshot::channel();
            let task = AbortOnDrop::spawn(upload::send(body, stdin, progress.clone(), sender));
            upload = Some(Upload { incomplete, _task: task });
        }
        let mut stderr = None;
        if let Some(pipe) = pipes.stderr {
            let pipe = pipe::Receiver::from_owned_fd(OwnedFd::from(pipe))?;
            let script = script.clone();
            let forward = async move { stderr::forward(&script, pipe).await };
            stderr = Some(AbortOnDrop::spawn(forward));
        }
        let stdout = pipes.stdout.map(|stdout| pipe::Receiver::from_owned_fd(stdout.into()));
        Ok(Run {
            process,
            stdout: stdout.transpose()?,
            max_read_bytes: HEAD_READ_BYTES,
            buffered: Bytes::new(),
            upload,
            _open_stdin: None,
            stderr,
            output_timeout: OutputTimeout::new(settings.timeout, progress),
            script,
            body_timeout: settings.body_timeout,
        })
    }

    /// Reads the head of the response, which may have up to `max_bytes` bytes.
    pub(super) async fn read_head(&mut self, max_bytes: usize) -> Result<ScriptHead, GatewayError> {
        let mut parser = ScriptHeadParser::new(HeadForm::Cgi, max_bytes);
        let mut output = Vec::new();
        loop {
            let parsed = parser.parse(&output).map_err(GatewayError::BadResponse)?;
            if let Some((head, end)) = parsed {
                self.buffered = output.split_off(end).into();
                self.max_read_bytes = MAX_READ_BYTES;
                self.output_timeout.set(self.body_timeout);
                return Ok(head);
            }
            match poll_fn(|cx| self.poll_output(cx)).await? {
                chunk if chunk.is_empty() => return Err(self.incomplete_head().await),
                chunk => output.extend_from_slice(&chunk),
            }
        }
    }

    /// Determines the reason that the output ended before the head was complete.
    async fn incomplete_head(&mut self) -> GatewayError {
        match poll_fn(|cx| self.poll_exit(cx)).await {
            Err(failure) => failure,
            Ok(()) => GatewayError::BadResponse("it ended without a head".to_owned()),
        }
    }

    /// Reads the next bytes of the output; empty at its end. Does not
    /// [restart the timeout](Run::restart_timeout): the timeout applies to a head as a whole.
    pub(super) fn poll_output(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Bytes, GatewayError>> {
        self.poll_request_body(cx)?;
        if !self.buffered.is_empty() {
            let length = self.buffered.len().min(self.max_read_bytes);
            return Poll::Ready(Ok(self.buffered.split_to(length)));
        }
        let Some(stdout) = &mut self.stdout else { return Poll::Ready(Ok(Bytes::new())) };
        // Most scripts write small pieces, and a script that is waited for needs no buffer.
        let mut buffer = BytesMut::with_capacity(self.max_read_bytes);
        match pin!(stdout.read_buf(&mut buffer)).poll(cx) {
            Poll::Ready(Ok(length)) => {
                let is_large = length > buffer.capacity() / 2;
                let chunk =
                    if is_large { buffer.freeze() } else { Bytes::copy_from_slice(&buffer) };
                if chunk.is_empty() {
                    self.stdout = None;
                    // Progress of the request body no longer extends the timeout.
                    self.output_timeout = OutputTimeout::new(EXIT_TIMEOUT, Arc::default());
                }
                Poll::Ready(Ok(chunk))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            Poll::Pending => {
                let reason = "it took too long and was ended";
                self.output_timeout.poll_elapsed(cx).map(|()| Err(GatewayError::Timeout(reason)))
            }
        }
    }

    /// Waits up to `EXIT_TIMEOUT` for a script that has closed its output to exit.
    pub(super) fn poll_exit(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), GatewayError>> {
        match self.process.poll_exit(cx) {
            Poll::Ready(status) => Poll::Ready(self.check_status(status?)),
            Poll::Pending => self.output_timeout.poll_elapsed(cx).map(Ok),
        }
    }

    fn check_status(&self, status: ExitStatus) -> Result<(), GatewayError> {
        match status.code() {
            // The output of a script that was terminated by a signal may be incomplete.
            None => {
                let reason = format!("it was ended by a signal ({status})");
                return Err(GatewayError::BadResponse(reason));
            }
            Some(0) => {}
            Some(code) => self.warn(format_args!("it ended with status {code}")),
        }
        Ok(())
    }

    /// Fails if the client has not sent the complete request body.
    fn poll_request_body(&mut self, cx: &mut Context<'_>) -> Result<(), GatewayError> {
        if let Some(upload) = &mut self.upload
            && let Poll::Ready(result) = Pin::new(&mut upload.incomplete).poll(cx)
        {
            self.upload = None;
            if let Ok(IncompleteBody { error, stdin }) = result {
                self._open_stdin = Some(stdin);
                return Err(GatewayError::Client(error));
            }
        }
        Ok(())
    }

    /// Limits the next read of output.
    pub(super) fn limit_read(&mut self, bytes: usize) {
        self.max_read_bytes = bytes.min(MAX_READ_BYTES);
    }

    /// Number of bytes of the body that were read and not returned.
    pub(super) fn buffered_bytes(&self) -> usize {
        self.buffered.len()
    }

    /// Restarts the timeout for the next output.
    pub(super) fn restart_timeout(&mut self) {
        self.output_timeout.restart();
    }

    /// Logs a warning about the script.
    pub(super) fn warn(&self, text: impl fmt::Display) {
        stderr::warn(&self.script, text);
    }

    /// Discards further output and lets the script run until it exits on its own, for up to
    /// `body_timeout`.
    pub(super) fn detach(mut self) {
        if self.process.is_reaped() {
            return;
        }
        let limit = self.body_timeout;
        tokio::spawn(async move {
            let exit = async {
                while let Ok(chunk) = poll_fn(|cx| self.poll_output(cx)).await {
                    if chunk.is_empty() {
                        break;
                    }
                }
                self.output_timeout.set(Duration::MAX);
                let exited = poll_fn(|cx| self.poll_exit(cx)).await;
                if let Err(error) = exited {
                    self.warn(error.reason());
                }
            };
            if timeout(limit, exit).await.is_err() {
                self.warn("it went on for too long behind its response and was ended");
            }
        });
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let stderr = self.stderr.take();
        if let (Some(stderr), Ok(runtime)) = (stderr, Handle::try_current()) {
            // The last lines often give the reason of a failure.
            runtime.spawn(stderr.join_within(STDERR_TIMEOUT));
        }
    }
}
