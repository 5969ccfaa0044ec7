//! Access to a route: the address of the client, and its authentication.

mod forward_auth; // authentication by another server
mod jwt; // authentication by signed tokens
mod networks; // networks of clients
mod passwords; // authentication by name and password

use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{FutureExt, LocalBoxFuture};
use weft::middleware::User;
use weft::{HeaderValue, Network, Request, Response, StatusCode, header};
use weft_upstream::spool::BufferSpace;

use self::forward_auth::{DEFAULT_TIMEOUT, ForwardAuth};
use self::jwt::Tokens;
pub(crate) use self::networks::{NetworkFilter, NetworkRules};
use self::passwords::Passwords;
use crate::base::request_notes::RequestNotes;
use crate::config::{RouteOptions, Satisfy};
use crate::middleware::{Layer, WrappedApp};

/// The authentication of a route, shared by all workers.
pub(crate) struct Authentication {
    passwords: Option<Passwords>,
    tokens: Option<Arc<Tokens>>,
    forward: Option<ForwardAuth>,
    /// With `satisfy = "any"`: one of the methods is sufficient, and so is an address that this
    /// filter allows.
    any: Option<Option<NetworkFilter>>,
}

/// The authentication of a route in one worker.
pub(crate) struct Authenticate(Authentication);

/// Values of the plan on which authentication depends, besides the options of the route.
pub(crate) struct AccessContext<'a> {
    pub(crate) trusted_proxies: &'a [Network],
    pub(crate) buffer_space: &'a Arc<BufferSpace>,
}

impl Authentication {
    /// Creates the authentication of a route; `None` if it has none.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub(crate) fn new(
        options: &RouteOptions,
        context: &AccessContext<'_>,
    ) -> Result<Option<Authentication>, String> {
        let realm = options.realm.as_deref().unwrap_or("Restricted");
        // RFC 9110 §5.6.4.
        let realm = &realm.replace('\\', "\\\\").replace('"', "\\\"");
        let users = options.basic_auth.as_ref().and_then(|file| file.value());
        let passwords = users.map(|file| Passwords::open(file, realm)).transpose()?;
        let keys = options.jwt.as_ref().and_then(|keys| keys.value());
        let tokens =
            keys.map(|keys| Tokens::open(keys, options, realm).map(Arc::new)).transpose()?;
        let url = options.forward_auth.as_ref().and_then(|url| url.value());
        let forward = url.map(|url| {
            let timeout = options.forward_auth_timeout.unwrap_or(DEFAULT_TIMEOUT);
            let copied = options.forward_auth_headers.as_deref().unwrap_or_default();
            ForwardAuth::new(url, copied, timeout, context)
        });
        let forward = forward.transpose()?;
        if passwords.is_some() && tokens.is_some() && options.satisfy != Some(Satisfy::Any) {
            return Err("a request cannot have both a password and a token, as `basic_auth` and \
                        `jwt_…` require together; set `satisfy = \"any\"` or one of them to none"
                .to_owned());
        }
        let has_method = passwords.is_some() || tokens.is_some() || forward.is_some();
        let any = (options.satisfy == Some(Satisfy::Any)).then(|| NetworkFilter::of_route(options));
        let any = any.transpose()?;
        Ok(has_method.then_some(Authentication { passwords, tokens, forward, any }))
    }

    /// Returns the middleware for a worker.
    pub(crate) fn for_worker(&self) -> Authenticate {
        Authenticate(Authentication {
            passwords: self.passwords.clone(),
            tokens: self.tokens.clone(),
            forward: self.forward.as_ref().map(ForwardAuth::for_worker),
            any: self.any.clone(),
        })
    }

    /// Returns true if the addresses of clients are part of this authentication.
    pub(crate) fn includes_addresses(&self) -> bool {
        self.any.is_some()
    }

    /// Returns the user of a request whose password was right before, if nothing else is required.
    fn remembered(&self, request: &Request) -> Option<User> {
        let passwords = self.passwords.as_ref()?;
        let is_sufficient = self.any.is_none() && self.forward.is_none();
        is_sufficient.then(|| passwords.remembered(request)).flatten()
    }

    /// Authenticates a request; returns the user, if there is a name.
    ///
    /// # Errors
    /// The response for the client.
    async fn authenticate(&self, request: &mut Request) -> Result<Option<User>, Response> {
        let Some(filter) = &self.any else {
            let user = match (&self.passwords, &self.tokens) {
                (Some(passwords), _) => Some(passwords.authenticate(request).await?),
                (None, Some(tokens)) => tokens.authenticate(request).await?,
                (None, None) => None,
            };
            if let Some(forward) = &self.forward {
                forward.authenticate(request).await?;
            }
            return Ok(user);
        };
        let address = request.peer().address().map(|address| address.ip());
        if filter.as_ref().is_some_and(|filter| filter.allows(address)) {
            return Ok(None);
        }
        let mut refusal = None;
        if let Some(passwords) = &self.passwords {
            match passwords.authenticate(request).await {
                Ok(user) => return Ok(Some(user)),
                Err(response) => refusal = Some(response),
            }
        }
        if let Some(tokens) = &self.tokens {
            match tokens.authenticate(request).await {
                Ok(user) => return Ok(user),
                Err(response) => refusal = Some(with_challenges(response, refusal)),
            }
        }
        if let Some(forward) = &self.forward {
            match forward.authenticate(request).await {
                Ok(()) => return Ok(None),
                Err(response) => refusal = Some(with_challenges(response, refusal)),
            }
        }
        Err(refusal.unwrap_or_else(|| StatusCode::FORBIDDEN.into()))
    }
}

impl Layer for Authenticate {
    fn respond(
        self: &Rc<Self>,
        mut request: Request,
        next: &WrappedApp,
    ) -> LocalBoxFuture<'static, Response> {
        if let Some(user) = self.0.remembered(&request) {
            set_user(&mut request, user);
            return next.respond(request);
        }
        let (this, next) = (self.clone(), next.clone());
        let response = async move {
            match this.0.authenticate(&mut request).await {
                Ok(user) => {
                    if let Some(user) = user {
                        set_user(&mut request, user);
                    }
                    next.respond(request).await
                }
                Err(refusal) => refusal,
            }
        };
        response.boxed_local()
    }
}

/// Sets the user of a request, for the log, placeholders and scripts.
fn set_user(request: &mut Request, user: User) {
    if let Some(notes) = RequestNotes::of(request) {
        notes.set_user(&user);
    }
    request.extensions_mut().insert(user);
}

fn unauthorized(challenge: &HeaderValue) -> Response {
    let response = Response::from(StatusCode::UNAUTHORIZED);
    response.with_header_value(header::WWW_AUTHENTICATE, challenge.clone())
}

/// Adds the challenge of another method to a refusal with 401.
fn with_challenges(response: Response, other: Option<Response>) -> Response {
    let other = other.as_ref().and_then(|other| other.header("www-authenticate"));
    match other {
        Some(challenge) if response.status() == StatusCode::UNAUTHORIZED => {
            response.with_header_value(header::WWW_AUTHENTICATE, challenge.clone())
        }
        _ => response,
    }
}
