//! Authentication of clients: by name and password, by tokens (`jwt`), or by another server
//! (`forward_auth`).

mod passwords; // authentication by name and password

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{FutureExt, LocalBoxFuture};
use weft::header::{self, HeaderValue};
use weft::middleware::User;
use weft::{Request, Response, Settings, StatusCode};
use weft_config::{ConfigResult, Key, Located, ValueKind, WordOrPath, quoted};

use self::passwords::Passwords;
use super::forward_auth::ForwardAuth;
use super::jwt::Tokens;
use super::layer::{Layer, OpenContext, WorkerLayer, WrappedApp};
use super::networks::NetworkFilter;
use super::scope::{Finding, Scope};
use super::{NONE, RouteOption, RouteOptions, Setting, show_setting};
use crate::base::request_notes::RequestNotes;

/// Users and passwords, and the requirement if there are several methods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct AuthenticationOptions {
    users: Option<Setting<PathBuf>>,
    realm: Option<String>,
    satisfy: Option<Satisfy>,
}

/// Requirements of a route with networks and authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Satisfy {
    All,
    Any,
}

impl AuthenticationOptions {
    fn users(&self) -> Option<&PathBuf> {
        self.users.as_ref().and_then(Setting::value)
    }

    /// Returns true if the addresses of clients are part of the authentication.
    pub(super) fn includes_addresses(&self, all: &RouteOptions) -> bool {
        self.satisfy == Some(Satisfy::Any) && has_method(all)
    }
}

impl RouteOptions {
    /// Returns true if the requests of the route may have users.
    pub(crate) fn has_users(&self) -> bool {
        self.authentication.users.is_some() || self.jwt.is_set()
    }
}

impl RouteOption for AuthenticationOptions {
    const KEYS: &'static [Key<Self>] = &[
        Key {
            name: "basic_auth",
            flag: "basic-auth",
            argument: "FILE",
            help: "file of users and hashed passwords that requests must present (htpasswd with \
                   bcrypt, SHA-crypt or Argon2), reloaded when it changes; none: no authentication",
            kind: ValueKind::WordOrPath(&[NONE], |options, file| {
                options.users = Some(match file.value {
                    WordOrPath::Word(_) => Setting::None,
                    WordOrPath::Path(path) => Setting::Value(path),
                });
            }),
            show: |options| {
                show_setting(options.users.as_ref(), |path| path.to_string_lossy().into_owned())
            },
        },
        Key {
            name: "realm",
            flag: "realm",
            argument: "TEXT",
            help: "realm of basic_auth, which browsers display (Restricted)",
            kind: ValueKind::Text(set_realm),
            show: |options| options.realm.as_deref().map_or_else(String::new, quoted),
        },
        Key {
            name: "satisfy",
            flag: "satisfy",
            argument: "MODE",
            help: "requirement if there are networks (`allow`, `deny`) and authentication: all, or \
                   any of them (all)",
            kind: ValueKind::Choice(&["all", "any"], |options, choice| {
                options.satisfy = Some(if choice == "any" { Satisfy::Any } else { Satisfy::All });
            }),
            show: |options| match options.satisfy {
                None => String::new(),
                Some(Satisfy::All) => quoted("all"),
                Some(Satisfy::Any) => quoted("any"),
            },
        },
    ];

    fn or(self, outer: &Self) -> Self {
        AuthenticationOptions {
            users: self.users.or_else(|| outer.users.clone()),
            realm: self.realm.or_else(|| outer.realm.clone()),
            satisfy: self.satisfy.or(outer.satisfy),
        }
    }

    fn complete(&mut self, all: &RouteOptions, _: &Settings) {
        self.realm = self.realm.take().filter(|_| has_realm(all));
    }

    fn findings(&self, scope: &Scope<'_>) -> Vec<Finding> {
        let has_rules = |all: &RouteOptions| has_method(all) || all.networks.has_rules();
        let lacks_rules = scope.route().is_some() && !scope.any(has_rules);
        vec![
            (
                self.realm.is_some() && !scope.any(has_realm),
                "`realm` has no effect without `basic_auth`",
            ),
            (
                self.satisfy.is_some() && lacks_rules,
                "`satisfy` has no effect without networks and authentication",
            ),
        ]
    }

    fn open(&self, all: &RouteOptions, context: &OpenContext<'_>) -> Result<Vec<Layer>, String> {
        let realm = self.realm.as_deref().unwrap_or("Restricted");
        // RFC 9110 §5.6.4.
        let realm = &realm.replace('\\', "\\\\").replace('"', "\\\"");
        let proxies = context.trusted_proxies;
        let passwords =
            self.users().map(|file| Passwords::open(file, realm, proxies)).transpose()?;
        let tokens = all.jwt.tokens(realm, proxies)?;
        let forward = all.forward_auth.client(context)?;
        let is_any = self.satisfy == Some(Satisfy::Any);
        if passwords.is_some() && tokens.is_some() && !is_any {
            return Err("a request cannot have both a password and a token, as `basic_auth` and \
                        `jwt_…` require together; set `satisfy = \"any\"` or one of them to none"
                .to_owned());
        }
        if !has_method(all) {
            return Ok(Vec::new());
        }
        let any = is_any.then(|| all.networks.filter()).transpose()?;
        let authentication = Authentication { passwords, tokens, forward, any };
        Ok(vec![Layer::of_worker(move || authentication.for_worker())])
    }
}

/// Returns true if a method asks clients for credentials, with a realm.
fn has_realm(all: &RouteOptions) -> bool {
    all.authentication.users().is_some() || all.jwt.is_enabled()
}

/// Returns true if there is a method of authentication.
pub(super) fn has_method(all: &RouteOptions) -> bool {
    has_realm(all) || all.forward_auth.is_enabled()
}

fn set_realm(options: &mut AuthenticationOptions, text: Located<String>) -> ConfigResult {
    if text.value.chars().any(char::is_control) {
        return Err(text.problem("a realm has no control characters"));
    }
    options.realm = Some(text.value);
    Ok(())
}

/// The authentication of a route, shared by all workers.
struct Authentication {
    passwords: Option<Passwords>,
    tokens: Option<Arc<Tokens>>,
    forward: Option<ForwardAuth>,
    /// With `satisfy = "any"`: one of the methods is sufficient, and so is an address that this
    /// filter allows.
    any: Option<Option<NetworkFilter>>,
}

/// A request that may continue.
#[derive(Default)]
struct Admission {
    /// The user, if there is a name.
    user: Option<User>,
    /// Cookies of the authentication server for the client.
    cookies: Vec<HeaderValue>,
}

impl Admission {
    fn of_user(user: Option<User>) -> Admission {
        Admission { user, cookies: Vec::new() }
    }
}

/// The authentication of a route in one worker.
struct Authenticate(Authentication);

impl Authentication {
    /// Returns the middleware for a worker.
    fn for_worker(&self) -> Authenticate {
        Authenticate(Authentication {
            passwords: self.passwords.clone(),
            tokens: self.tokens.clone(),
            forward: self.forward.as_ref().map(ForwardAuth::for_worker),
            any: self.any.clone(),
        })
    }

    /// Returns the user of a request whose password was right before, if nothing else is required.
    fn remembered(&self, request: &Request) -> Option<User> {
        let passwords = self.passwords.as_ref()?;
        let is_sufficient = self.any.is_none() && self.forward.is_none();
        is_sufficient.then(|| passwords.remembered(request)).flatten()
    }

    /// Authenticates a request.
    ///
    /// # Errors
    /// The response for the client.
    async fn authenticate(&self, request: &mut Request) -> Result<Admission, Response> {
        let Some(filter) = &self.any else {
            let user = match (&self.passwords, &self.tokens) {
                (Some(passwords), _) => Some(passwords.authenticate(request).await?),
                (None, Some(tokens)) => tokens.authenticate(request).await?,
                (None, None) => None,
            };
            let cookies = match &self.forward {
                Some(forward) => forward.authenticate(request).await?,
                None => Vec::new(),
            };
            return Ok(Admission { user, cookies });
        };
        let address = request.peer().address().map(|address| address.ip());
        if filter.as_ref().is_some_and(|filter| filter.allows(address)) {
            return Ok(Admission::default());
        }
        let mut refusal = None;
        if let Some(passwords) = &self.passwords {
            match passwords.authenticate(request).await {
                Ok(user) => return Ok(Admission::of_user(Some(user))),
                Err(response) => refusal = Some(response),
            }
        }
        if let Some(tokens) = &self.tokens {
            match tokens.authenticate(request).await {
                Ok(user) => return Ok(Admission::of_user(user)),
                Err(response) => refusal = Some(joined_refusal(response, refusal)),
            }
        }
        if let Some(forward) = &self.forward {
            match forward.authenticate(request).await {
                Ok(cookies) => return Ok(Admission { user: None, cookies }),
                Err(response) => refusal = Some(joined_refusal(response, refusal)),
            }
        }
        Err(refusal.unwrap_or_else(|| StatusCode::FORBIDDEN.into()))
    }
}

impl WorkerLayer for Authenticate {
    fn respond(
        self: &Rc<Self>,
        mut request: Request,
        next: &WrappedApp,
    ) -> LocalBoxFuture<'static, Response> {
        // First: whatever admits the request, only the authentication server may name its user.
        if let Some(forward) = &self.0.forward {
            forward.remove_fields(&mut request);
        }
        if let Some(user) = self.0.remembered(&request) {
            set_user(&mut request, user);
            return next.respond(request);
        }
        let (this, next) = (self.clone(), next.clone());
        let response = async move {
            match this.0.authenticate(&mut request).await {
                Ok(Admission { user, cookies }) => {
                    if let Some(user) = user {
                        set_user(&mut request, user);
                    }
                    let response = next.respond(request).await;
                    cookies.into_iter().fold(response, |response, cookie| {
                        response.with_appended_header(header::SET_COOKIE, cookie)
                    })
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

/// Joins the refusals of two methods: adds the challenge of a former method to a refusal with 401,
/// unless the former one could not decide.
fn joined_refusal(response: Response, former: Option<Response>) -> Response {
    let Some(former) = former.filter(|_| response.status() == StatusCode::UNAUTHORIZED) else {
        return response;
    };
    if former.status().is_server_error() {
        return former;
    }
    match former.header("www-authenticate") {
        Some(challenge) => {
            response.with_appended_header(header::WWW_AUTHENTICATE, challenge.clone())
        }
        None => response,
    }
}
