//! Who may ask: passwords (RFC 7617) and tokens (RFC 6750).

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::WWW_AUTHENTICATE;
use http::{HeaderValue, StatusCode};
use subtle::{Choice, ConstantTimeEq};

use crate::app::{Application, Middleware};
use crate::message::request::{Head, Request};
use crate::message::response::{Response, field_value};

/// Lets requests through that have a user's name and password (HTTP Basic, RFC 7617); others
/// are answered 401 with a challenge.
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
/// let app = greet.with(auth);
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
/// Passwords cross the network readable but for TLS. Name and password are UTF-8 without
/// control characters, and are compared as they come: no form of Unicode is made of another.
/// The application finds the [`User`] in the request's extensions, and a
/// [`Log`](super::Log) in those of the response. Who guesses passwords is slowed down by a
/// [`RateLimit`](super::RateLimit) in front.
#[derive(Clone)]
pub struct BasicAuth<V> {
    challenge: HeaderValue,
    verify: V,
}

/// Lets requests through that have a token (`Authorization: Bearer`, RFC 6750 §2.1); others are
/// answered 401 with a challenge.
///
/// ```
/// use weft::middleware::{BearerAuth, User};
/// use weft::{Application, Request, Response, testing};
///
/// async fn greet(request: Request) -> Response {
///     Response::text(format!("Hello, {}!", request.extensions().get::<User>().unwrap()))
/// }
///
/// /// Whose token it is.
/// async fn owner(token: &str) -> Option<String> {
///     (token == "mF_9.B5f-4.1JqM").then(|| "Alice".to_owned())
/// }
///
/// let app = greet.with(BearerAuth::new("api", owner));
/// let ask = |token: &str| {
///     let fields = format!("Host: a\r\nAuthorization: Bearer {token}");
///     testing::call(app.clone(), testing::request(format!("GET / HTTP/1.1\r\n{fields}\r\n\r\n")))
/// };
/// ask("mF_9.B5f-4.1JqM").assert_text("Hello, Alice!");
/// let challenge = r#"Bearer realm="api", error="invalid_token""#;
/// assert_eq!(ask("wrong").header("www-authenticate"), Some(challenge));
/// ```
///
/// Tokens in the body or the query (§2.2, §2.3) are not looked at. The application finds the
/// [`User`] in the request's extensions. For tokens that are known beforehand, [`fixed_tokens`]
/// compares as it should be done.
#[derive(Clone)]
pub struct BearerAuth<V> {
    /// To requests without a token, and to those whose token is no good (§3.1).
    challenges: [HeaderValue; 2],
    verify: V,
}

/// Who sent the request, as [`BasicAuth`] or [`BearerAuth`] found out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct User(Arc<str>);

impl User {
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
    /// The realm is what a browser shows, and remembers the password for. The verifier is
    /// given a name and a password, and tells whether they belong together; [`fixed_users`] is
    /// one. It should take as long for names that it does not know.
    pub fn new(realm: &str, verify: V) -> BasicAuth<V> {
        let challenge = format!("Basic realm={}, charset=\"UTF-8\"", quoted(realm));
        BasicAuth { challenge: field_value(challenge.as_bytes()), verify }
    }

    async fn user(&self, head: &Head) -> Option<User> {
        let decoded = STANDARD.decode(credentials(head, "basic")?).ok()?;
        let pair = String::from_utf8(decoded).ok()?;
        if pair.contains(|c: char| c.is_control()) {
            return None;
        }
        let (name, password) = pair.split_once(':')?;
        (self.verify)(name, password).await.then(|| User(name.into()))
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
    /// The verifier is given a token, and tells whose it is, if it is good.
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

/// What follows the scheme in `Authorization` (RFC 9110 §11.6.2), if that is there once.
fn credentials<'a>(head: &'a Head, scheme: &str) -> Option<&'a str> {
    let mut values = head.headers().get_all("authorization");
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (named, rest) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    named.eq_ignore_ascii_case(scheme).then(|| rest.trim_start_matches(' '))
}

/// RFC 9110 §11.2, which RFC 6750 §2.1 calls `b64token`.
fn is_token68(token: &str) -> bool {
    let token = token.trim_end_matches('=');
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"-._~+/".contains(&b);
    !token.is_empty() && token.bytes().all(fits)
}

/// A quoted string (RFC 9110 §5.6.4).
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A verifier for [`BasicAuth`]: these names with these passwords, each of at most 256 bytes.
/// Comparing takes the same time whatever the request has.
///
/// # Panics
/// If one is longer, or a name has a colon, which the scheme cannot transport.
pub fn fixed_users(
    users: &[(&str, &str)],
) -> impl AsyncFn(&str, &str) -> bool + Clone + Send + Sync + 'static + use<> {
    let secrets = users.iter().map(|(name, password)| {
        assert!(!name.contains(':'), "a user's name has no colon: {name:?}");
        (Secret::known(name), Secret::known(password))
    });
    let secrets: Arc<[(Secret, Secret)]> = secrets.collect();
    move |name: &str, password: &str| {
        let good = match (Secret::new(name), Secret::new(password)) {
            (Some(name), Some(password)) => {
                let agree = |(n, p): &(Secret, Secret)| n.ct_eq(&name) & p.ct_eq(&password);
                secrets.iter().map(agree).fold(Choice::from(0), |any, one| any | one).into()
            }
            _ => false,
        };
        std::future::ready(good)
    }
}

/// A verifier for [`BearerAuth`]: these tokens, each of at most 256 bytes, of these users.
/// Comparing takes the same time whatever wrong token the request has.
///
/// # Panics
/// If a token is longer.
pub fn fixed_tokens(
    tokens: &[(&str, &str)],
) -> impl AsyncFn(&str) -> Option<String> + Clone + Send + Sync + 'static + use<> {
    let secrets = tokens.iter().map(|(token, user)| (Secret::known(token), (*user).to_owned()));
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

/// A secret with zeros behind it, so that not even its length shows in the time that
/// comparing takes.
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

    fn known(text: &str) -> Secret {
        Secret::new(text).expect("a name, password or token has at most 256 bytes")
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
    use crate::testing::{self, Reply};

    async fn name(request: Request) -> Response {
        Response::text(request.extensions().get::<User>().unwrap().to_string())
    }

    fn ask(app: impl Application, fields: &[String]) -> Reply {
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        testing::call(app, testing::request(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n")))
    }

    fn authorization(value: impl fmt::Display) -> String {
        format!("Authorization: {value}")
    }

    #[test]
    fn passwords() {
        let users = [("alice", "s3cret"), ("bob", "a:b"), ("é", "€"), ("empty", "")];
        let app = name.with(BasicAuth::new("r", fixed_users(&users)));
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
            let reply = ask(app.clone(), &[field]);
            assert_eq!(reply.status == 200, admitted, "{pair}: {reply:?}");
            if admitted {
                reply.assert_text(pair.split_once(':').unwrap().0);
            }
        }
    }

    #[test]
    fn fields_with_a_password() {
        let app = name.with(BasicAuth::new("r", async |name: &str, password: &str| {
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
            // Not UTF-8, and a control character.
            (vec![authorization(format!("Basic {}", STANDARD.encode(b"a\xff:b")))], 401),
            (vec![authorization(format!("Basic {}", STANDARD.encode("a:b\n")))], 401),
        ] {
            let reply = ask(app.clone(), &fields);
            assert_eq!(reply.status, status, "{fields:?}");
            assert_eq!(reply.header("www-authenticate").is_some(), status == 401, "{fields:?}");
        }
    }

    #[test]
    fn tokens() {
        let app = name.with(BearerAuth::new("r", fixed_tokens(&[("t0ken-a", "a"), ("==", "x")])));
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
            let reply = ask(app.clone(), &[authorization(value)]);
            assert_eq!(reply.status == 200, admitted, "{value}");
            let challenge = reply.header("www-authenticate");
            let says_so = challenge.is_some_and(|text| text.ends_with("error=\"invalid_token\""));
            assert_eq!((challenge.is_none(), says_so), (admitted, error), "{value}");
        }
    }

    #[test]
    fn zeros_behind_a_secret_make_another_one() {
        let (users, tokens) = (fixed_users(&[("a", "b")]), fixed_tokens(&[("a", "b")]));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            assert!(users("a", "b").await && !users("a", "b\0").await);
            assert!(tokens("a").await.is_some() && tokens("a\0").await.is_none());
        });
    }

    #[test]
    fn a_realm_ends_where_it_should() {
        for (realm, challenge) in [
            ("a b", "Basic realm=\"a b\", charset=\"UTF-8\""),
            ("a\", b=\"\\", "Basic realm=\"a\\\", b=\\\"\\\\\", charset=\"UTF-8\""),
            ("a\r\nb: c", "Basic realm=\"a  b: c\", charset=\"UTF-8\""),
        ] {
            let app = name.with(BasicAuth::new(realm, fixed_users(&[])));
            assert_eq!(ask(app, &[]).header("www-authenticate"), Some(challenge));
        }
    }
}
