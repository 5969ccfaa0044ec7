//! One run of a script, from its start to its end: what it reads, what it writes, how long it
//! may take.

use std::fmt;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::clock::Clock;
use super::complaints;
use super::failure::Failure;
use super::head::{self, Head};
use super::places::Place;
use super::process::Process;
use super::settings::Settings;
use super::task::Task;
use super::upload::{self, Cut, Input, Progress};

/// How much is read at a time: what a pipe holds.
const BUFFER_BYTES: usize = 64 << 10;

/// How long a script may take from the end of its output to its own. It mostly comes at once; who
/// goes on longer does so without keeping the client waiting.
const FAREWELL: Duration = Duration::from_secs(1);

/// How long its complaints are still read when it is gone, or was asked to go: a child that it
/// left behind may keep the pipe open.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A script that runs. It is ended with the value, unless it is [left](Run::leave) to itself.
pub(super) struct Run {
    process: Process,
    /// `None` after its end.
    stdout: Option<pipe::Receiver>,
    buffer: Box<[u8]>,
    /// What came together with the head.
    came: Bytes,
    upload: Option<Upload>,
    /// What the rest of a body would have gone into that the client did not send. It closes after
    /// the script was asked to end, which does not take a part for the whole.
    _stdin: Option<pipe::Sender>,
    complaints: Option<Task>,
    clock: Clock,
    /// What it is called in the log.
    script: Arc<str>,
    body_timeout: Duration,
}

struct Upload {
    cut: oneshot::Receiver<Cut>,
    _task: Task,
}

impl Run {
    pub(super) async fn start(
        mut command: Command,
        input: Input,
        place: Place,
        script: Arc<str>,
        settings: &Settings,
    ) -> Result<Run, Failure> {
        let (stdin, body) = match input {
            Input::Empty => (Stdio::null(), None),
            Input::Spooled(file) => (file.into(), None),
            Input::Streamed(body) => (Stdio::piped(), Some(body)),
        };
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = Process::start(command, place).await;
        let (process, pipes) = started.map_err(Failure::NotStarted)?;
        let progress = Arc::<Progress>::default();
        let mut upload = None;
        if let (Some(body), Some(stdin)) = (body, pipes.stdin) {
            let stdin = pipe::Sender::from_owned_fd(OwnedFd::from(stdin))?;
            let (cut, receiver) = oneshot::channel();
            let task = Task::spawn(upload::send(body, stdin, progress.clone(), cut));
            upload = Some(Upload { cut: receiver, _task: task });
        }
        let mut complaints = None;
        if let Some(stderr) = pipes.stderr {
            let stderr = pipe::Receiver::from_owned_fd(OwnedFd::from(stderr))?;
            let script = script.clone();
            let pass_on = async move { complaints::pass_on(&script, stderr).await };
            complaints = Some(Task::spawn(pass_on));
        }
        let stdout = pipes.stdout.map(|stdout| pipe::Receiver::from_owned_fd(stdout.into()));
        Ok(Run {
            process,
            stdout: stdout.transpose()?,
            buffer: vec![0; BUFFER_BYTES].into(),
            came: Bytes::new(),
            upload,
            _stdin: None,
            complaints,
            clock: Clock::new(settings.timeout, progress),
            script,
            body_timeout: settings.body_timeout,
        })
    }

    /// The head of the response, which has so many bytes at most.
    pub(super) async fn head(&mut self, most_bytes: usize) -> Result<Head, Failure> {
        let mut came = Vec::new();
        loop {
            let parsed = head::parse(&came, most_bytes).map_err(Failure::BadHead)?;
            if let Some((head, end)) = parsed {
                self.came = came.split_off(end).into();
                self.clock.set(self.body_timeout);
                return Ok(head);
            }
            match poll_fn(|cx| self.poll_output(cx)).await? {
                piece if piece.is_empty() => return Err(self.ended_early().await),
                piece => came.extend_from_slice(&piece),
            }
        }
    }

    /// Why there is no head at the end of the output.
    async fn ended_early(&mut self) -> Failure {
        match poll_fn(|cx| self.poll_end(cx)).await {
            Err(failure) => failure,
            Ok(()) => Failure::NoHead,
        }
    }

    /// The next bytes of the output; none at its end. The clock runs on, unless it is said that
    /// the script [was heard](Run::was_heard): a head has to come in time as a whole.
    pub(super) fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Failure>> {
        self.poll_cut(cx)?;
        if !self.came.is_empty() {
            return Poll::Ready(Ok(std::mem::take(&mut self.came)));
        }
        let Some(stdout) = &mut self.stdout else { return Poll::Ready(Ok(Bytes::new())) };
        let mut buffer = ReadBuf::new(&mut self.buffer);
        match Pin::new(stdout).poll_read(cx, &mut buffer) {
            Poll::Ready(Ok(())) => {
                let piece = Bytes::copy_from_slice(buffer.filled());
                if piece.is_empty() {
                    self.stdout = None;
                    // Whatever the client still sends.
                    self.clock = Clock::new(FAREWELL, Arc::default());
                }
                Poll::Ready(Ok(piece))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            Poll::Pending => self.clock.poll_expired(cx).map(|()| Err(Failure::TooSlow)),
        }
    }

    /// Waits a little for the end of a script that has closed its output.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        match self.process.poll_end(cx) {
            Poll::Ready(status) => Poll::Ready(self.ended(status?)),
            Poll::Pending => self.clock.poll_expired(cx).map(Ok),
        }
    }

    fn ended(&self, status: ExitStatus) -> Result<(), Failure> {
        match status.code() {
            // What is ended by a signal may have had more to say.
            None => return Err(Failure::Killed(status)),
            Some(0) => {}
            Some(code) => self.tell(format_args!("it ended with status {code}")),
        }
        Ok(())
    }

    /// Fails if the client has not sent all of its body.
    fn poll_cut(&mut self, cx: &mut Context<'_>) -> Result<(), Failure> {
        if let Some(upload) = &mut self.upload
            && let Poll::Ready(cut) = Pin::new(&mut upload.cut).poll(cx)
        {
            self.upload = None;
            if let Ok(Cut { error, stdin }) = cut {
                self._stdin = Some(stdin);
                return Err(Failure::Client(error));
            }
        }
        Ok(())
    }

    /// The next wait begins anew.
    pub(super) fn was_heard(&mut self) {
        self.clock.stop();
    }

    /// Tells whoever runs the server.
    pub(super) fn tell(&self, text: impl fmt::Display) {
        complaints::tell(&self.script, text);
    }

    /// Nobody needs more of its output, but it may come to its own end.
    pub(super) fn leave(mut self) {
        if self.process.has_ended() {
            return;
        }
        let patience = self.body_timeout;
        tokio::spawn(async move {
            let end = async {
                while let Ok(piece) = poll_fn(|cx| self.poll_output(cx)).await {
                    if piece.is_empty() {
                        break;
                    }
                }
                self.clock.set(Duration::MAX);
                let ended = poll_fn(|cx| self.poll_end(cx)).await;
                if let Some(reason) = ended.err().and_then(|failure| failure.reason()) {
                    self.tell(reason);
                }
            };
            if timeout(patience, end).await.is_err() {
                self.tell("it went on for too long behind its response and was ended");
            }
        });
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let complaints = self.complaints.take();
        if let (Some(complaints), Ok(runtime)) = (complaints, Handle::try_current()) {
            // Its last words are often the best.
            runtime.spawn(complaints.end_within(LAST_WORDS));
        }
    }
}
