//! Cross-origin requests.

use std::fmt;
use std::time::Duration;

use weft::Method;
use weft::header::{self, HeaderName};
use weft::middleware::Cors;
use weft_config::{ConfigResult, Key, Located, ValueKind, quoted_time};

use super::layer::{Layer, OpenContext};
use super::scope::{Finding, Scope};
use super::{RouteOption, RouteOptions, show, show_list};

/// Origins whose scripts may read responses, and the requests that these scripts may send.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct CorsOptions {
    origins: Option<Vec<Origin>>,
    methods: Option<Vec<Method>>,
    headers: Option<Vec<HeaderName>>,
    credentials: Option<bool>,
    max_age: Option<Duration>,
}

/// An origin that CORS allows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Origin {
    Any,
    Only(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Origin::Any => "*",
            Origin::Only(origin) => origin,
        })
    }
}

impl CorsOptions {
    /// Returns true if an origin is allowed, so that preflight requests are answered.
    pub(super) fn has_origins(&self) -> bool {
        self.origins.as_ref().is_some_and(|origins| !origins.is_empty())
    }
}

impl RouteOption for CorsOptions {
    const KEYS: &'static [Key<Self>] = &[
        Key {
            name: "cors",
            flag: "cors",
            argument: "ORIGIN",
            help: "origins whose scripts may read responses (CORS): https://app.example, or *",
            kind: ValueKind::Texts(set_origins),
            show: |options| show_list(options.origins.as_ref()),
        },
        Key {
            name: "cors_methods",
            help: "methods that scripts of `cors` may use besides GET, HEAD and POST (PUT, PATCH, DELETE)",
            kind: ValueKind::Texts(|options, texts| {
                let methods = texts.into_iter().map(method);
                options.methods = Some(methods.collect::<ConfigResult<_>>()?);
                Ok(())
            }),
            show: |options| show_list(options.methods.as_ref()),
            ..Key::FILE_ONLY
        },
        Key {
            name: "cors_headers",
            help: "request fields that these scripts may set (Authorization, Content-Type)",
            kind: ValueKind::Texts(|options, texts| {
                let name = |text: Located<String>| {
                    text.value.parse().map_err(|_| {
                        text.problem(format!(
                            "expected the name of a field, found {:?}",
                            text.value
                        ))
                    })
                };
                let names = texts.into_iter().map(name);
                options.headers = Some(names.collect::<ConfigResult<_>>()?);
                Ok(())
            }),
            show: |options| show_list(options.headers.as_ref()),
            ..Key::FILE_ONLY
        },
        Key {
            name: "cors_credentials",
            help: "permit requests of these scripts with cookies; not with the origin * (false)",
            kind: ValueKind::Bool(|options, switch| options.credentials = Some(switch)),
            show: |options| show(options.credentials.as_ref()),
            ..Key::FILE_ONLY
        },
        Key {
            name: "cors_max_age",
            help: "time for which browsers remember the response to a preflight request (5s)",
            kind: ValueKind::Time(|options, time| options.max_age = Some(time)),
            show: |options| options.max_age.map_or_else(String::new, quoted_time),
            ..Key::FILE_ONLY
        },
    ];

    fn or(self, outer: &Self) -> Self {
        CorsOptions {
            origins: self.origins.or_else(|| outer.origins.clone()),
            methods: self.methods.or_else(|| outer.methods.clone()),
            headers: self.headers.or_else(|| outer.headers.clone()),
            credentials: self.credentials.or(outer.credentials),
            max_age: self.max_age.or(outer.max_age),
        }
    }

    fn findings(&self, scope: &Scope<'_>) -> Vec<Finding> {
        let has_others = CorsOptions { origins: None, ..self.clone() } != CorsOptions::default();
        let lacks_origins = scope.route().is_some() && !scope.any(|all| all.cors.has_origins());
        vec![(
            has_others && lacks_origins,
            "`cors_methods`, `cors_headers`, `cors_credentials` and `cors_max_age` have no effect \
             without `cors`",
        )]
    }

    /// Allows the methods and fields of common APIs, without cookies, unless the options have
    /// others.
    fn open(&self, _: &RouteOptions, _: &OpenContext<'_>) -> Result<Vec<Layer>, String> {
        let Some(origins) = self.origins.as_ref().filter(|origins| !origins.is_empty()) else {
            return Ok(Vec::new());
        };
        let methods = self.methods.clone();
        let methods = methods.unwrap_or_else(|| vec![Method::PUT, Method::PATCH, Method::DELETE]);
        let names = self.headers.clone();
        let names = names.unwrap_or_else(|| vec![header::AUTHORIZATION, header::CONTENT_TYPE]);
        let mut cors = Cors::new().allow_methods(methods).allow_headers(names);
        if self.credentials == Some(true) {
            if origins.contains(&Origin::Any) {
                return Err("`cors_credentials` cannot be combined with the origin * in `cors`: \
                            any site could read what its visitors may"
                    .to_owned());
            }
            cors = cors.allow_credentials(true);
        }
        if let Some(age) = self.max_age {
            cors = cors.max_age(age);
        }
        let cors = origins.iter().fold(cors, |cors, origin| match origin {
            Origin::Any => cors.allow_any_origin(),
            Origin::Only(origin) => cors.allow_origin(origin),
        });
        Ok(vec![Layer::of_middleware(cors)])
    }
}

fn set_origins(options: &mut CorsOptions, texts: Vec<Located<String>>) -> ConfigResult {
    let origin = |text: Located<String>| {
        let host = text.value.split_once("://").map_or("", |(_, host)| host);
        let is_permitted = |c: char| !c.is_ascii_uppercase() && !c.is_whitespace() && c != '*';
        match &*text.value {
            "*" => Ok(Origin::Any),
            origin
                if !host.is_empty() && !host.contains('/') && origin.chars().all(is_permitted) =>
            {
                Ok(Origin::Only(origin.to_owned()))
            }
            origin => Err(text.problem(format!(
                "expected an origin such as https://app.example (in lower case, without a path) \
                 or *, found {origin:?}"
            ))),
        }
    };
    options.origins = Some(texts.into_iter().map(origin).collect::<ConfigResult<_>>()?);
    Ok(())
}

fn method(text: Located<String>) -> ConfigResult<Method> {
    let is_method = !text.value.is_empty() && text.value.bytes().all(|b| b.is_ascii_uppercase());
    let method = text.value.parse().ok().filter(|_| is_method);
    method.ok_or_else(|| {
        text.problem(format!("expected a method such as PUT, found {:?}", text.value))
    })
}
