//! CGI (RFC 3875): a process for each request, which reads the body and writes the response.
//!
//! # The way of a request
//!
//! 1. `script` finds the file that the path leads to, and what is left of the path.
//! 2. `places` lets it run, or wait, as there are so many processes at a time and no more.
//! 3. `environment` says what the script is told. No word of the request becomes an argument of
//!    a command line (§4.4 is a "may"), and no shell is between us and the script.
//! 4. `process` starts it in a group of its own, `upload` writes the request's body into its
//!    standard input, `complaints` passes its standard error on to the log.
//! 5. `run` waits for the head of the response, which `head` understands. `output` is the body as
//!    it comes. Without either the client gets a page (`failure`).
//! 6. When the client leaves or a `clock` runs out, the group is ended.

mod clock;
mod complaints;
mod environment;
mod failure;
mod head;
mod output;
mod places;
mod process;
mod run;
mod script;
mod settings;
mod task;
mod upload;

use std::ffi::OsString;
use std::io;
use std::process::Command;
use std::sync::Arc;

use tokio::task::spawn_blocking;
use weft::{Application, Body, Method, Request, Response, StatusCode};

use self::failure::Failure;
use self::output::Output;
use self::places::Places;
use self::run::Run;
use self::script::{Absent, Root, Script};
pub(crate) use self::settings::{Settings, Variable};
use self::upload::Input;

/// Where programs are looked for if nobody says.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// An application that runs scripts. Its clones share their number of processes.
#[derive(Clone)]
pub(crate) struct Cgi(Arc<Shared>);

struct Shared {
    settings: Settings,
    root: Root,
    /// Where scripts find programs.
    path: OsString,
    /// What whoever runs the server has set for them, or passes on.
    environment: Vec<(String, OsString)>,
    places: Places,
}

impl Cgi {
    /// # Errors
    /// If there is no such folder or file.
    pub(crate) fn new(settings: Settings) -> io::Result<Cgi> {
        let root = Root::open(&settings.root, settings.index.clone())?;
        let path = std::env::var_os("PATH").unwrap_or_else(|| USUAL_PATH.into());
        let variable = |Variable { name, value }: &Variable| {
            let value = value.as_ref().map(OsString::from).or_else(|| std::env::var_os(name));
            value.map(|value| (name.clone(), value))
        };
        let environment = settings.environment.iter().filter_map(variable).collect();
        let places = Places::new(&settings);
        Ok(Cgi(Arc::new(Shared { settings, root, path, environment, places })))
    }

    async fn answer(&self, mut request: Request) -> Response {
        if *request.method() == Method::CONNECT {
            // RFC 9110 §9.3.6: that is for a proxy.
            return StatusCode::NOT_IMPLEMENTED.into();
        }
        let script = match self.find(&request).await {
            Ok(script) => script,
            Err(absent) => return self.give_up(None, Failure::Absent(absent)),
        };
        match self.run(&mut request, &script).await {
            Ok(response) => response,
            Err(failure) => self.give_up(Some(&script), failure),
        }
    }

    async fn find(&self, request: &Request) -> Result<Script, Absent> {
        let (shared, path) = (self.0.clone(), request.path().to_owned());
        let found = spawn_blocking(move || shared.root.find(&path)).await;
        found.unwrap_or_else(|error| Err(Absent::Io(io::Error::other(error))))
    }

    fn give_up(&self, script: Option<&Script>, failure: Failure) -> Response {
        if let Some(reason) = failure.reason() {
            let file = script.map_or(&self.0.settings.root, |script| &script.file);
            complaints::tell(&file.to_string_lossy(), reason);
        }
        failure.into_response()
    }

    /// Runs a script until there is the head of its response.
    async fn run(&self, request: &mut Request, script: &Script) -> Result<Response, Failure> {
        let Shared { settings, places, .. } = &*self.0;
        let place = places.take().await?;
        let (input, length) = Input::of(request, settings).await?;
        let command = self.command(request, script, length);
        let name = script.file.to_string_lossy().into();
        let mut run = Run::start(command, input, place, name, settings).await?;
        let head = run.head(settings.max_head_bytes).await?;
        let response = if !head.has_body() {
            run.leave();
            Response::new(head.status)
        } else if *request.method() != Method::HEAD {
            Response::body(Body::from_http_body(Output::new(run, head.length)))
        } else {
            run.leave();
            match head.length {
                Some(_) => Response::new(head.status),
                None => Response::body(Body::from_http_body(Output::unsaid())),
            }
        };
        Ok(head.onto(response))
    }

    fn command(&self, request: &Request, script: &Script, length: Option<u64>) -> Command {
        let mut command = Command::new(&script.file);
        command.env_clear();
        command.env("PATH", &self.0.path);
        command.envs(environment::of(request, script, length));
        command.envs(self.0.environment.iter().map(|(name, value)| (name, value)));
        if let Some(folder) = script.file.parent() {
            command.current_dir(folder);
        }
        command
    }
}

impl Application for Cgi {
    fn call(&self, request: Request) -> impl Future<Output = Response> {
        self.answer(request)
    }
}
