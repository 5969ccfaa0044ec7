//! Attributes of the cookies in responses: `Secure`, `HttpOnly` and `SameSite`.

mod flags; // changes to the attributes of a cookie

use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{FutureExt, LocalBoxFuture};
use weft::header::HeaderValue;
use weft::header::SET_COOKIE;
use weft::{Request, Response};
use weft_config::{ConfigResult, Key, Pair, ValueKind, quoted_table};

use self::flags::CookieFlags;
use super::layer::{Layer, OpenContext, WorkerLayer, WrappedApp};
use super::{RouteOption, RouteOptions};
use crate::template::Pattern;

/// Maximum number of rules of a route.
const MAX_RULES: usize = 64;

/// Rules for cookies. `None`: not set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct CookieFlagOptions {
    rules: Option<Vec<Rule>>,
}

/// Changes to cookies with some names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Rule {
    /// A name, `~ ` and a pattern, or `*`.
    cookies: String,
    flags: CookieFlags,
}

impl RouteOption for CookieFlagOptions {
    const KEYS: &'static [Key<Self>] = &[Key {
        name: "cookie_flags",
        help: "attributes that cookies in responses get or lose, by name, pattern (`~ REGEX`) or `*` for \
               all others: `{ session = \"secure httponly samesite=lax\", \"*\" = \"nohttponly\" }`",
        kind: ValueKind::Pairs(|options, pairs| {
            if let Some(pair) = pairs.get(MAX_RULES) {
                return Err(pair.name.problem(format!("there are at most {MAX_RULES} rules")));
            }
            let rules = pairs.into_iter().map(parse_rule);
            options.rules = Some(rules.collect::<ConfigResult<_>>()?);
            Ok(())
        }),
        show: |options| {
            let pairs = options.rules.iter().flatten();
            quoted_table(pairs.map(|rule| (rule.cookies.clone(), rule.flags.to_string())))
        },
        ..Key::FILE_ONLY
    }];

    fn or(self, outer: &Self) -> Self {
        CookieFlagOptions { rules: self.rules.or_else(|| outer.rules.clone()) }
    }

    fn complete(&mut self, _: &RouteOptions, _: &weft::Settings) {
        self.rules = self.rules.take().filter(|rules| !rules.is_empty());
    }

    fn open(&self, _: &RouteOptions, _: &OpenContext<'_>) -> Result<Vec<Layer>, String> {
        let rules = self.rules.as_deref().unwrap_or_default();
        let rules = rules.iter().map(NamedFlags::new).collect::<Result<Vec<_>, _>>()?;
        let rules: Arc<[NamedFlags]> = rules.into();
        let layer = || Layer::of_worker(move || ChangeCookies(rules.iter().cloned().collect()));
        Ok((!self.rules.as_deref().unwrap_or_default().is_empty())
            .then(layer)
            .into_iter()
            .collect())
    }
}

fn parse_rule(Pair { name, value, .. }: Pair) -> ConfigResult<Rule> {
    let flags = CookieFlags::parse(&value.value).map_err(|message| value.problem(message))?;
    let rule = Rule { cookies: name.value.clone(), flags };
    match NamedFlags::new(&rule) {
        Ok(_) => Ok(rule),
        Err(message) => Err(name.problem(message)),
    }
}

/// A rule that is ready for cookies.
#[derive(Clone)]
struct NamedFlags {
    names: CookieNames,
    flags: CookieFlags,
}

#[derive(Clone)]
enum CookieNames {
    Name(Box<str>),
    Pattern(Pattern),
    Others,
}

impl NamedFlags {
    fn new(Rule { cookies, flags }: &Rule) -> Result<NamedFlags, String> {
        let names = match (&**cookies, cookies.strip_prefix("~ ")) {
            ("*", _) => CookieNames::Others,
            (_, Some(source)) => CookieNames::Pattern(
                Pattern::parse(source)
                    .map_err(|reason| format!("the name {cookies:?} {reason}"))?,
            ),
            (name, None) if is_token(name) => CookieNames::Name(name.into()),
            _ => return Err(format!("expected the name of a cookie, found {cookies:?}")),
        };
        Ok(NamedFlags { names, flags: *flags })
    }
}

/// Returns true if a cookie may have this name (RFC 6265 §4.1.1).
fn is_token(name: &str) -> bool {
    let is_permitted = |b: u8| b.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(&b);
    !name.is_empty() && name.bytes().all(is_permitted)
}

/// Changes the cookies of responses. Each worker has its own.
struct ChangeCookies(Vec<NamedFlags>);

impl ChangeCookies {
    /// Returns the changes for a cookie: by its name, then by the first pattern that matches, then
    /// the changes for all others.
    fn flags_of(&self, name: &[u8]) -> Option<CookieFlags> {
        let find = |is_match: &dyn Fn(&CookieNames) -> bool| {
            self.0.iter().find(|rule| is_match(&rule.names)).map(|rule| rule.flags)
        };
        find(&|names| matches!(names, CookieNames::Name(known) if known.as_bytes() == name))
            .or_else(|| {
                find(&|names| matches!(names, CookieNames::Pattern(it) if it.matches(name)))
            })
            .or_else(|| find(&|names| matches!(names, CookieNames::Others)))
    }

    fn apply(&self, mut response: Response) -> Response {
        if response.header(SET_COOKIE.as_str()).is_none() {
            return response;
        }
        let change = |cookie: &HeaderValue| {
            let bytes = cookie.as_bytes();
            let end = bytes.iter().position(|b| b";=".contains(b)).unwrap_or(bytes.len());
            let flags = self.flags_of(bytes[..end].trim_ascii());
            let changed = flags.and_then(|flags| HeaderValue::from_bytes(&flags.apply(bytes)).ok());
            changed.unwrap_or_else(|| cookie.clone())
        };
        let cookies: Vec<_> = response.header_values(SET_COOKIE).map(change).collect();
        response.remove_header(SET_COOKIE);
        cookies
            .into_iter()
            .fold(response, |response, cookie| response.with_appended_header(SET_COOKIE, cookie))
    }
}

impl WorkerLayer for ChangeCookies {
    fn respond(
        self: &Rc<Self>,
        request: Request,
        next: &WrappedApp,
    ) -> LocalBoxFuture<'static, Response> {
        let (this, response) = (self.clone(), next.respond(request));
        async move { this.apply(response.await) }.boxed_local()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_config::Located;

    fn options(rules: &[(&str, &str)]) -> ConfigResult<CookieFlagOptions> {
        let at = |text: &str| Located::without_location(text.to_owned());
        let pair = |(name, value): &(&str, &str)| {
            parse_rule(Pair { name: at(name), value: at(value), base: Default::default() })
        };
        let rules = rules.iter().map(pair).collect::<ConfigResult<_>>()?;
        Ok(CookieFlagOptions { rules: Some(rules) })
    }

    #[test]
    fn names_precede_patterns_and_patterns_precede_others() {
        let rules = [
            ("*", "secure"),
            ("~ ^se", "httponly"),
            ("~ ^s", "samesite=lax"),
            ("session", "samesite=strict"),
        ];
        let rules = options(&rules).unwrap().rules.unwrap();
        let layer = ChangeCookies(rules.iter().map(|it| NamedFlags::new(it).unwrap()).collect());
        for (cookie, expected) in [
            ("session=1", "session=1; SameSite=Strict"),
            ("sessions=1", "sessions=1; HttpOnly"),
            ("s", "s; SameSite=Lax"),
            ("a = b ; Path=/", "a = b ; Path=/; Secure"),
            ("=; Path=/", "=; Path=/; Secure"),
        ] {
            let response = Response::text("").with_header(SET_COOKIE, cookie);
            let response = response.with_appended_header(SET_COOKIE, "x=y; Secure");
            let found = layer.apply(response);
            let found: Vec<_> = found.header_values(SET_COOKIE).collect();
            assert_eq!(found, [expected, "x=y; Secure"], "{cookie}");
        }
    }

    #[test]
    fn reports_invalid_rules() {
        for (name, flags, expected) in [
            ("a", "", "expected flags"),
            ("a", "secured", "did you mean `secure`?"),
            ("a", "secure nosecure", "`secure` and `nosecure`"),
            ("a", "samesite=some", "unknown flag `samesite=some`"),
            ("a b", "secure", "expected the name of a cookie"),
            ("~ (", "secure", "has an invalid pattern"),
        ] {
            let message = options(&[(name, flags)]).unwrap_err().message;
            assert!(message.contains(expected), "{name} {flags}: {message}");
        }
    }
}
