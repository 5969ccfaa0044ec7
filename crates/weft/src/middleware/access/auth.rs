//! Authentication with passwords (RFC 7617) and bearer tokens (RFC 6750).

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::WWW_AUTHENTICATE;
use http::{HeaderValue, StatusCode};
use subtle::{Choice, ConstantTimeEq};

use crate::app::{Application, Middleware};
use crate::message::request::Request;
use crate::message::request_head::RequestHead;
use crate::message::response::{Response, field_value};

/// Authenticates requests by user name and password (HTTP Basic, RFC 7617). Requests without
/// valid credentials get 401 with a challenge.
///
/// ```
/// use weft::middleware::{BasicAuth, User, fixed_users};
/// use weft::{Application, Request, Response, testing};
///
/// async fn greet(request: Request) -> Response {
///     Response::text(format!("Hello, {}!", request.extensions().get::<User>().unwrap()))
/// }
///
/// let auth = BasicAuth::new("the garden", fixed_users(&[("Aladdin", "open sesame")]));
/// let app = greet.wrap(auth);
/// let reply = testing::get(app.clone(), "/");
/// assert_eq!(reply.status, 401);
/// let challenge = r#"Basic realm="the garden", charset="UTF-8""#;
/// assert_eq!(reply.header("www-authenticate"), Some(challenge));
///
/// let fields = "Host: a\r\nAuthorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==";
/// let request = testing::request(format!("GET / HTTP/1.1\r\n{fields}\r\n\r\n"));
/// testing::call(app.clone(), request).assert_text("Hello, Aladdin!");
/// ```
///
/// Without TLS, passwords cross the network in clear text. Name and password are UTF-8 without
/// control characters and are compared byte by byte, without Unicode normalization. The [`User`] is
/// in the extensions of the request, for the application, and in the extensions of the response,
/// for a [`Log`](crate::middleware::Log). A [`RateLimit`](crate::middleware::RateLimit) in front
/// slows down password guessing.
#[derive(Clone)]
pub struct BasicAuth<V> {
    challenge: HeaderValue,
    verify: V,
}

/// Authenticates requests by a token (`Authorization: Bearer`, RFC 6750 §2.1). Requests without
/// a valid token get 401 with a challenge.
///
/// ```
/// use weft::middleware::{BearerAuth, User};
/// use weft::{Application, Request, Response, testing};
///
/// async fn greet(request: Request) -> Response {
///     Response::text(format!("Hello, {}!", request.extensions().get::<User>().unwrap()))
/// }
///
/// /// Returns the owner of a token.
/// async fn owner(token: &str) -> Option<String> {
///     (token == "mF_9.B5f-4.1JqM").then(|| "Alice".to_owned())
/// }
///
/// let app = greet.wrap(BearerAuth::new("api", owner));
/// let send = |token: &str| {
///     let fields = format!("Host: a\r\nAuthorization: Bearer {token}");
///     testing::call(app.clone(), testing::request(format!("GET / HTTP/1.1\r\n{fields}\r\n\r\n")))
/// };
/// send("mF_9.B5f-4.1JqM").assert_text("Hello, Alice!");
/// let challenge = r#"Bearer realm="api", error="invalid_token""#;
/// assert_eq!(send("wrong").header("www-authenticate"), Some(challenge));
/// ```
///
/// Tokens in the body or the query (§2.2, §2.3) are ignored. The application finds the [`User`]
/// in the request's extensions. For a fixed list of tokens, [`fixed_tokens`] provides a verifier
/// with a constant-time comparison.
#[derive(Clone)]
pub struct BearerAuth<V> {
    /// Challenges for requests without a token and with an invalid token (§3.1).
    challenges: [HeaderValue; 2],
    verify: V,
}

/// The user authenticated by [`BasicAuth`] or [`BearerAuth`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct User(Arc<str>);

impl User {
    /// Creates a user, for middleware with another method of authentication.
    pub fn new(name: &str) -> User {
        User(name.into())
    }

    /// The user's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<V: AsyncFn(&str, &str) -> bool> BasicAuth<V> {
    /// Creates the middleware for a realm, which browsers display and store the password for.
    ///
    /// `verify` receives a name and a password and returns true if they match; [`fixed_users`]
    /// is such a verifier. It should take the same time for unknown names as for known ones.
    pub fn new(realm: &str, verify: V) -> BasicAuth<V> {
        let challenge = format!("Basic realm={}, charset=\"UTF-8\"", quoted(realm));
        BasicAuth { challenge: field_value(challenge.as_bytes()), verify }
    }

    async fn user(&self, head: &RequestHead) -> Option<User> {
        let (name, password) = basic_credentials(head)?;
        (self.verify)(&name, &password).await.then(|| User::new(&name))
    }
}

impl<V: AsyncFn(&str, &str) -> bool> Middleware for BasicAuth<V> {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        match self.user(request.head()).await {
            Some(user) => admit(user, request, next).await,
            None => refuse(&self.challenge),
        }
    }
}

impl<V: AsyncFn(&str) -> Option<String>> BearerAuth<V> {
    /// Creates the middleware for a realm. `verify` receives a token and returns the name of its
    /// owner, or `None` if the token is invalid.
    pub fn new(realm: &str, verify: V) -> BearerAuth<V> {
        let challenge = format!("Bearer realm={}", quoted(realm));
        let invalid = format!("{challenge}, error=\"invalid_token\"");
        let challenges = [challenge, invalid].map(|text| field_value(text.as_bytes()));
        BearerAuth { challenges, verify }
    }
}

impl<V: AsyncFn(&str) -> Option<String>> Middleware for BearerAuth<V> {
    async fn call(&self, request: Request, next: &impl Application) -> Response {
        let [missing, invalid] = &self.challenges;
        let Some(token) = credentials(request.head(), "bearer") else { return refuse(missing) };
        if !is_token68(token) {
            return refuse(invalid);
        }
        match (self.verify)(token).await {
            Some(name) => admit(User(name.into()), request, next).await,
            None => refuse(invalid),
        }
    }
}

async fn admit(user: User, mut request: Request, next: &impl Application) -> Response {
    request.extensions_mut().insert(user.clone());
    let mut response = next.call(request).await;
    response.extensions_mut().insert(user);
    response
}

fn refuse(challenge: &HeaderValue) -> Response {
    let mut response = Response::from(StatusCode::UNAUTHORIZED);
    response.headers.to_mut().push((WWW_AUTHENTICATE, challenge.clone()));
    response
}

/// Returns name and password in the `Authorization` of a request (RFC 7617 §2), for middleware
/// that combines several methods of authentication.
///
/// ```
/// let fields = "Host: a\r\nAuthorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==";
/// let request = weft::testing::request(format!("GET / HTTP/1.1\r\n{fields}\r\n\r\n"));
/// let (name, password) = weft::middleware::basic_credentials(&request).unwrap();
/// assert_eq!((&*name, &*password), ("Aladdin", "open sesame"));
/// ```
pub fn basic_credentials(head: &RequestHead) -> Option<(String, String)> {
    let decoded = STANDARD.decode(credentials(head, "basic")?).ok()?;
    let mut pair = String::from_utf8(decoded).ok()?;
    if pair.contains(|c: char| c.is_control()) {
        return None;
    }
    let colon = pair.find(':')?;
    let password = pair.split_off(colon + 1);
    pair.truncate(colon);
    Some((pair, password))
}

/// Returns the token in the `Authorization: Bearer` of a request (RFC 6750 §2.1), for middleware
/// that combines several methods of authentication.
pub fn bearer_token(head: &RequestHead) -> Option<&str> {
    credentials(head, "bearer").filter(|token| is_token68(token))
}

/// Credentials after the scheme in `Authorization` (RFC 9110 §11.6.2); `None` unless the field
/// occurs exactly once.
fn credentials<'a>(head: &'a RequestHead, scheme: &str) -> Option<&'a str> {
    let mut values = head.headers().get_all("authorization");
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (found, rest) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    found.eq_ignore_ascii_case(scheme).then(|| rest.trim_start_matches(' '))
}

/// Returns true if `token` is a `token68` (RFC 9110 §11.2), called `b64token` in RFC 6750 §2.1.
fn is_token68(token: &str) -> bool {
    let token = token.trim_end_matches('=');
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._~+/".contains(&b);
    !token.is_empty() && token.bytes().all(is_allowed)
}

/// Formats `text` as a quoted string (RFC 9110 §5.6.4).
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Verifier for [`BasicAuth`] with a fixed list of names and passwords, each of at most 256
/// bytes. The comparison takes the same time for all credentials in a request.
///
/// # Panics
/// If a name or password is longer, or a name contains a colon, which the scheme cannot encode.
pub fn fixed_users(
    users: &[(&str, &str)],
) -> impl AsyncFn(&str, &str) -> bool + Clone + Send + Sync + 'static + use<> {
    let secrets = users.iter().map(|(name, password)| {
        assert!(!name.contains(':'), "a user name must not contain a colon: {name:?}");
        (Secret::new_or_panic(name), Secret::new_or_panic(password))
    });
    let secrets: Arc<[(Secret, Secret)]> = secrets.collect();
    move |name: &str, password: &str| {
        let is_valid = match (Secret::new(name), Secret::new(password)) {
            (Some(name), Some(password)) => {
                let matches = |(n, p): &(Secret, Secret)| n.ct_eq(&name) & p.ct_eq(&password);
                secrets.iter().map(matches).fold(Choice::from(0), |any, one| any | one).into()
            }
            _ => false,
        };
        std::future::ready(is_valid)
    }
}

/// Verifier for [`BearerAuth`] with a fixed list of `(token, user)`, each token of at most 256
/// bytes. The comparison takes the same time for all wrong tokens in a request.
///
/// # Panics
/// If a token is longer.
pub fn fixed_tokens(
    tokens: &[(&str, &str)],
) -> impl AsyncFn(&str) -> Option<String> + Clone + Send + Sync + 'static + use<> {
    let secrets =
        tokens.iter().map(|(token, user)| (Secret::new_or_panic(token), (*user).to_owned()));
    let secrets: Arc<[(Secret, String)]> = secrets.collect();
    move |token: &str| {
        let mut found = None;
        if let Some(token) = Secret::new(token) {
            for (secret, user) in &*secrets {
                if secret.ct_eq(&token).into() {
                    found = Some(user.clone());
                }
            }
        }
        std::future::ready(found)
    }
}

/// A secret padded with zeros, so that the time of a comparison does not reveal its length
/// either.
struct Secret {
    bytes: [u8; 256],
    length: u64,
}

impl Secret {
    fn new(text: &str) -> Option<Secret> {
        let mut bytes = [0; 256];
        bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        Some(Secret { bytes, length: text.len() as u64 })
    }

    fn new_or_panic(text: &str) -> Secret {
        Secret::new(text).expect("names, passwords and tokens have at most 256 bytes")
    }
}

impl ConstantTimeEq for Secret {
    fn ct_eq(&self, other: &Secret) -> Choice {
        self.bytes.ct_eq(&other.bytes) & self.length.ct_eq(&other.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, TestResponse};

    async fn name(request: Request) -> Response {
        Response::text(request.extensions().get::<User>().unwrap().to_string())
    }

    fn send(app: impl Application, fields: &[String]) -> TestResponse {
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        testing::call(app, testing::request(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")))
    }

    fn authorization(value: impl fmt::Display) -> String {
        format!("Authorization: {value}")
    }

    #[test]
    fn verifies_names_and_passwords() {
        let users = [("alice", "s3cret"), ("bob", "a:b"), ("é", "€"), ("empty", "")];
        let app = name.wrap(BasicAuth::new("r", fixed_users(&users)));
        for (pair, admitted) in [
            ("alice:s3cret", true),
            ("bob:a:b", true),
            ("é:€", true),
            ("empty:", true),
            ("alice:s3cre", false),
            ("alice:s3cret\0", false),
            ("alice:s3crett", false),
            ("alice:a:b", false),
            ("bob:s3cret", false),
            ("Alice:s3cret", false),
            ("alice:", false),
            (":s3cret", false),
            ("alice", false),
            ("", false),
            (&format!("alice:{}", "x".repeat(300)), false),
        ] {
            let field = authorization(format!("Basic {}", STANDARD.encode(pair)));
            let reply = send(app.clone(), &[field]);
            assert_eq!(reply.status == 200, admitted, "{pair}: {reply:?}");
            if admitted {
                reply.assert_text(pair.split_once(':').unwrap().0);
            }
        }
    }

    #[test]
    fn requires_one_well_formed_authorization_field() {
        let app = name.wrap(BasicAuth::new("r", async |name: &str, password: &str| {
            tokio::task::yield_now().await;
            name.starts_with('a') && password.starts_with('b')
        }));
        let good = || authorization("Basic YTpi");
        for (fields, status) in [
            (vec![good()], 200),
            (vec![authorization("bAsIc   YTpi")], 200),
            (vec![], 401),
            (vec![good(), good()], 401),
            (vec![authorization("Basic")], 401),
            (vec![authorization("YTpi")], 401),
            (vec![authorization("Bearer YTpi")], 401),
            (vec![authorization("Basic YTpi YTpi")], 401),
            (vec![authorization("Basic YTp")], 401),
            (vec![authorization("Basic YTpi====")], 401),
            // Invalid UTF-8, and a control character.
            (vec![authorization(format!("Basic {}", STANDARD.encode(b"a\xff:b")))], 401),
            (vec![authorization(format!("Basic {}", STANDARD.encode("a:b\n")))], 401),
        ] {
            let reply = send(app.clone(), &fields);
            assert_eq!(reply.status, status, "{fields:?}");
            assert_eq!(reply.header("www-authenticate").is_some(), status == 401, "{fields:?}");
        }
    }

    #[test]
    fn verifies_tokens() {
        let app = name.wrap(BearerAuth::new("r", fixed_tokens(&[("t0ken-a", "a"), ("==", "x")])));
        for (value, admitted, error) in [
            ("Bearer t0ken-a", true, false),
            ("bearer  t0ken-a", true, false),
            ("Bearer t0ken-", false, true),
            ("Bearer t0ken-aa", false, true),
            ("Bearer ==", false, true),
            ("Bearer t0ken-a t0ken-a", false, true),
            ("Bearer", false, false),
            ("Basic t0ken-a", false, false),
        ] {
            let reply = send(app.clone(), &[authorization(value)]);
            assert_eq!(reply.status == 200, admitted, "{value}");
            let challenge = reply.header("www-authenticate");
            let is_invalid_token =
                challenge.is_some_and(|text| text.ends_with("error=\"invalid_token\""));
            assert_eq!((challenge.is_none(), is_invalid_token), (admitted, error), "{value}");
        }
    }

    #[test]
    fn rejects_secrets_with_trailing_nul() {
        let (users, tokens) = (fixed_users(&[("a", "b")]), fixed_tokens(&[("a", "b")]));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            assert!(users("a", "b").await && !users("a", "b\0").await);
            assert!(tokens("a").await.is_some() && tokens("a\0").await.is_none());
        });
    }

    #[test]
    fn quotes_the_realm() {
        for (realm, challenge) in [
            ("a b", "Basic realm=\"a b\", charset=\"UTF-8\""),
            ("a\", b=\"\\", "Basic realm=\"a\\\", b=\\\"\\\\\", charset=\"UTF-8\""),
            ("a\r\nb: c", "Basic realm=\"a  b: c\", charset=\"UTF-8\""),
        ] {
            let app = name.wrap(BasicAuth::new(realm, fixed_users(&[])));
            assert_eq!(send(app, &[]).header("www-authenticate"), Some(challenge));
        }
    }
}
