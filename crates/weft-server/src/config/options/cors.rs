//! Cross-origin requests, besides the permitted origins.

use weft::Method;
use weft_config::{ConfigResult, Key, Located, ValueKind, quoted_list, quoted_time};

use super::{RouteOptions, show};

pub(super) const CORS_METHODS: Key<RouteOptions> = Key {
    name: "cors_methods",
    flag: "",
    argument: "",
    help: "methods that scripts of `cors` may use besides GET, HEAD and POST (PUT, PATCH, DELETE)",
    kind: ValueKind::Texts(|options, texts| {
        let methods = texts.into_iter().map(method);
        options.cors_methods = Some(methods.collect::<ConfigResult<_>>()?);
        Ok(())
    }),
    show: |options| {
        let methods = options.cors_methods.as_ref();
        methods.map_or_else(String::new, |methods| quoted_list(methods.iter()))
    },
};

pub(super) const CORS_HEADERS: Key<RouteOptions> = Key {
    name: "cors_headers",
    flag: "",
    argument: "",
    help: "request fields that these scripts may set (Authorization, Content-Type)",
    kind: ValueKind::Texts(|options, texts| {
        let name = |text: Located<String>| {
            text.value.parse().map_err(|_| {
                text.problem(format!("expected the name of a field, found {:?}", text.value))
            })
        };
        let names = texts.into_iter().map(name);
        options.cors_headers = Some(names.collect::<ConfigResult<_>>()?);
        Ok(())
    }),
    show: |options| {
        let names = options.cors_headers.as_ref();
        names.map_or_else(String::new, |names| quoted_list(names.iter()))
    },
};

pub(super) const CORS_CREDENTIALS: Key<RouteOptions> = Key {
    name: "cors_credentials",
    flag: "",
    argument: "",
    help: "permit requests of these scripts with cookies; not with the origin * (false)",
    kind: ValueKind::Bool(|options, switch| options.cors_credentials = Some(switch)),
    show: |options| show(options.cors_credentials.as_ref()),
};

pub(super) const CORS_MAX_AGE: Key<RouteOptions> = Key {
    name: "cors_max_age",
    flag: "",
    argument: "",
    help: "time for which browsers remember the response to a preflight request (5s)",
    kind: ValueKind::Time(|options, time| options.cors_max_age = Some(time)),
    show: |options| options.cors_max_age.map_or_else(String::new, quoted_time),
};

fn method(text: Located<String>) -> ConfigResult<Method> {
    let is_method = !text.value.is_empty() && text.value.bytes().all(|b| b.is_ascii_uppercase());
    let method = text.value.parse().ok().filter(|_| is_method);
    method.ok_or_else(|| {
        text.problem(format!("expected a method such as PUT, found {:?}", text.value))
    })
}
