//! CGI (RFC 3875): a process per request, which reads the request body and writes the response.
//!
//! # Processing of a request
//!
//! 1. `apps/script` resolves the path to a file and the rest of the path.
//! 2. `upload` receives the request body (`apps/spool`), so that a slow client occupies no process.
//! 3. A `ClientLimit` bounds the number of concurrent processes, in total and per client; further
//!    requests queue.
//! 4. `apps/script` sets the meta-variables. No part of the request becomes a command-line argument
//!    (§4.4 makes that optional), and no shell is involved.
//! 5. `base/process_group` starts the script in a process group of its own, `upload` writes the
//!    request body to its standard input, and `apps/stderr` copies its standard error to the log.
//! 6. `run` waits for the head of the response (`apps/script`). `output` reads the body, as
//!    fast as the script writes it (`apps/spool`). If a step fails, the client gets an error page
//!    (`apps/gateway`).
//! 7. When the client disconnects or a timeout (`timeout`) expires, the process group is
//!    terminated.

mod form;
mod output;
mod run;
mod settings;
mod timeout;
mod upload;

use std::ffi::OsString;
use std::io;
use std::process::Command;
use std::sync::Arc;

use bytes::Bytes;
use weft::client_limit::{Client, ClientLimit, ClientLimitSettings};
use weft::{Application, Body, Method, Request, Response, StatusCode};
use weft_upstream::gateway_error::{GatewayError, method_not_allowed};
use weft_upstream::script::stderr;
use weft_upstream::script::{self, Credentials, Script, ScriptHead, ScriptVariable, VariableRules};
use weft_upstream::spool::{BufferSpace, Spool};

use self::output::Output;
use self::run::Run;
pub(crate) use self::settings::CgiSettings;
use self::upload::Input;
use crate::apps::script::{LookupError, Root};
use crate::apps::script_patterns::ScriptPatterns;
use crate::base::script_files::ScriptRule;
use crate::base::sys::text_of_bytes;

/// `PATH` of scripts if the server has none.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Application that runs CGI scripts. Clones share the limit on processes.
#[derive(Clone)]
pub(crate) struct Cgi(Arc<Shared>);

struct Shared {
    settings: CgiSettings,
    root: Arc<Root>,
    /// `PATH` of scripts.
    path: OsString,
    /// Configured variables: set explicitly, or copied from the server's environment.
    environment: Vec<(String, OsString)>,
    /// Limit on concurrent processes, shared by all workers.
    limit: ClientLimit,
    buffer_space: Arc<BufferSpace>,
}

impl Cgi {
    /// Creates an application that stores buffered bodies in `buffer_space`.
    ///
    /// # Errors
    /// Fails if the directory or file does not exist.
    pub(crate) fn new(settings: CgiSettings, buffer_space: Arc<BufferSpace>) -> io::Result<Cgi> {
        let patterns = settings.scripts.as_deref().map(ScriptPatterns::new).transpose();
        let patterns = patterns.map_err(io::Error::other)?;
        let root = Root::open(&settings.root, settings.index.clone(), ScriptRule::Executable)?;
        let root = Arc::new(root.with_patterns(patterns));
        let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
        let environment = ScriptVariable::resolve(&settings.environment);
        let limit = ClientLimit::new(ClientLimitSettings {
            max_per_client: settings.max_processes_per_client,
            max_queued: settings.max_queued,
            queue_timeout: settings.queue_timeout,
            ..ClientLimitSettings::new(settings.max_processes)
        });
        Ok(Cgi(Arc::new(Shared { settings, root, path, environment, limit, buffer_space })))
    }

    async fn respond(&self, mut request: Request) -> Response {
        if *request.method() == Method::CONNECT {
            // CONNECT applies to proxies only (RFC 9110 §9.3.6).
            return StatusCode::NOT_IMPLEMENTED.into();
        }
        if *request.method() == Method::TRACE {
            return method_not_allowed();
        }
        let client = self.limited_client(&request);
        let script = match self.0.root.find(request.mount(), request.path(), client).await {
            Ok(script) => script,
            Err(LookupError::NotFound) => return StatusCode::NOT_FOUND.into(),
            Err(LookupError::Forbidden) => return StatusCode::FORBIDDEN.into(),
            Err(LookupError::Failed(error)) => return self.fail(None, error),
        };
        match self.run(&mut request, &script).await {
            Ok(response) => response,
            Err(failure) => self.fail(Some(&script), failure),
        }
    }

    /// Logs the error, unless it is one of the client, and returns the error response.
    fn fail(&self, script: Option<&Script>, error: GatewayError) -> Response {
        if !matches!(error, GatewayError::Client(_)) {
            let file = script.map_or(&self.0.settings.root, |script| &script.file);
            stderr::warn(file.to_string_lossy(), error.reason());
        }
        error.into_response()
    }

    /// Starts a script and waits for the head of its response.
    async fn run(&self, request: &mut Request, script: &Script) -> Result<Response, GatewayError> {
        let Shared { settings, limit, .. } = &*self.0;
        let (client, space) = (self.limited_client(request), &self.0.buffer_space);
        let (input, length) = Input::from_request(request, settings, space, client).await?;
        let half_close = request.half_close();
        let permit = limit.acquire_yielding(client, move || half_close.is_detected()).await;
        let permit = permit.ok_or(GatewayError::Overloaded("too many scripts are running"))?;
        let command = self.command(request, script, length);
        let name = script.file.to_string_lossy().into();
        let mut run = Run::start(command, input, permit, name, settings).await?;
        let head = run.read_head(settings.max_head_bytes).await?;
        let response = if !head.has_body() {
            run.detach();
            Response::new(head.status)
        } else if *request.method() != Method::HEAD {
            Response::from_body(self.response_body(&head, Output::new(run, head.length), client))
        } else {
            run.detach();
            match head.length {
                Some(_) => Response::new(head.status),
                None => Response::from_body(Body::from_http_body(Output::of_unknown_length())),
            }
        };
        Ok(head.apply_to(response))
    }

    /// Returns the client that a process and buffered bodies are counted for; `None` for one
    /// without a limit of its own.
    fn limited_client(&self, request: &Request) -> Option<Client> {
        Client::of_request(request, &self.0.settings.trusted)
    }

    fn response_body(&self, head: &ScriptHead, output: Output, client: Option<Client>) -> Body {
        let settings = &self.0.settings;
        if !settings.buffer_responses || head.is_event_stream() || head.refuses_buffering() {
            return Body::from_http_body(output);
        }
        let limits = settings.spool_limits(settings.response_buffer_bytes, &self.0.buffer_space);
        Spool::new(Bytes::new(), output, &limits, client).receive_available().into_body()
    }

    fn command(&self, request: &Request, script: &Script, length: Option<u64>) -> Command {
        let mut command = Command::new(&script.file);
        command.env_clear();
        command.env("PATH", &self.0.path);
        let rules = VariableRules {
            credentials: Credentials::Withheld,
            trusted_proxies: &self.0.settings.trusted,
        };
        let variables = script::meta_variables(request, script, length, &rules);
        command.envs(
            variables.iter().map(|(name, value)| (text_of_bytes(name), text_of_bytes(value))),
        );
        command.envs(self.0.environment.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = script.file.parent() {
            command.current_dir(directory);
        }
        command
    }
}

impl Application for Cgi {
    fn call(&self, request: Request) -> impl Future<Output = Response> {
        self.respond(request)
    }
}
