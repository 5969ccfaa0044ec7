//! Fields and codings of responses.

use weft::{HeaderName, HeaderValue};
use weft_config::{ConfigResult, Key, Located, ValueKind, quoted_list, quoted_time};

use super::super::statuses::Statuses;
use super::{RouteOptions, show};
use crate::base::engine_fields::engine_sets;
use crate::template::Template;

/// Changes to the fields of a message: some are removed, then some are set or added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct FieldChanges {
    pub(crate) set: Vec<Field>,
    pub(crate) remove: Vec<HeaderName>,
}

impl FieldChanges {
    /// Adds the changes of `outer` to fields that are not changed here.
    pub(super) fn or(self, outer: FieldChanges) -> FieldChanges {
        let FieldChanges { mut set, mut remove } = self;
        let is_inherited = |name: &HeaderName| {
            !set.iter().any(|field| field.name == *name) && !remove.contains(name)
        };
        let (inherited_set, inherited_removed): (Vec<_>, Vec<_>) = (
            outer.set.into_iter().filter(|field| is_inherited(&field.name)).collect(),
            outer.remove.into_iter().filter(|name| is_inherited(name)).collect(),
        );
        set.extend(inherited_set);
        remove.extend(inherited_removed);
        FieldChanges { set, remove }
    }
}

/// A change to the fields of one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Field {
    pub(crate) name: HeaderName,
    pub(crate) operation: FieldOperation,
    /// Statuses of the responses that are changed. Empty: all.
    pub(crate) on: Vec<Statuses>,
    pub(crate) value: Template,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FieldOperation {
    /// Replaces fields of that name.
    Set,
    /// Keeps fields of that name.
    Add,
    IfAbsent,
}

impl FieldOperation {
    /// The character in front of the name.
    fn prefix(self) -> &'static str {
        match self {
            FieldOperation::Set => "",
            FieldOperation::Add => "+",
            FieldOperation::IfAbsent => "?",
        }
    }

    fn split(name: &str) -> (FieldOperation, &str) {
        let with_prefix = |operation: FieldOperation| {
            name.strip_prefix(operation.prefix()).map(|name| (operation, name))
        };
        with_prefix(FieldOperation::Add)
            .or_else(|| with_prefix(FieldOperation::IfAbsent))
            .unwrap_or((FieldOperation::Set, name))
    }
}

pub(super) const REQUEST_HEADERS: Key<RouteOptions> = Key {
    name: "request_headers",
    flag: "",
    argument: "",
    help: "request fields that upstreams and scripts get: `{ Name = \"value\" }` or `NAME: VALUE`; \
           each replaces fields of that name, with `\"?Name\"` only if there is none; inherited name \
           by name",
    kind: ValueKind::Fields(|options, texts| {
        let fields = texts.iter().map(parse_request_field);
        options.request_fields.set = fields.collect::<ConfigResult<_>>()?;
        Ok(())
    }),
    show: |options| show_fields(&options.request_fields.set),
};

pub(super) const REMOVE_REQUEST_HEADERS: Key<RouteOptions> = Key {
    name: "remove_request_headers",
    flag: "",
    argument: "",
    help: "names of request fields that upstreams and scripts do not get",
    kind: ValueKind::Texts(|options, texts| {
        let names = texts.iter().map(|text| parse_name(text, &text.value, check_request_name));
        options.request_fields.remove = names.collect::<ConfigResult<_>>()?;
        Ok(())
    }),
    show: |options| quoted_list(options.request_fields.remove.iter()),
};

pub(super) const RESPONSE_HEADERS: Key<RouteOptions> = Key {
    name: "response_headers",
    flag: "",
    argument: "",
    help: "response fields: `{ Name = \"value\" }` or `NAME: VALUE`; each replaces fields of \
           that name, `\"+Name\"` adds one, `\"?Name\"` sets it if there is none; by status \
           `{ Name = { \"404 5xx\" = \"value\" } }`; inherited name by name",
    kind: ValueKind::Fields(set_headers),
    show: |options| show_fields(&options.response_fields.set),
};

pub(super) const REMOVE_RESPONSE_HEADERS: Key<RouteOptions> = Key {
    name: "remove_response_headers",
    flag: "",
    argument: "",
    help: "names of response fields to remove, before `response_headers` are set",
    kind: ValueKind::Texts(set_remove_response_headers),
    show: |options| quoted_list(options.response_fields.remove.iter()),
};

pub(super) const SECURITY_HEADERS: Key<RouteOptions> = Key {
    name: "security_headers",
    flag: "security-headers",
    argument: "",
    help: "add X-Content-Type-Options, Referrer-Policy and X-Frame-Options to responses \
           without them",
    kind: ValueKind::Bool(|options, switch| options.security_headers = Some(switch)),
    show: |options| show(options.security_headers.as_ref()),
};

pub(super) const HSTS: Key<RouteOptions> = Key {
    name: "hsts",
    flag: "hsts",
    argument: "TIME",
    help: "time for which browsers use HTTPS only (Strict-Transport-Security); start with a \
           short one; 0s: none",
    kind: ValueKind::Time(|options, time| options.hsts = Some(time)),
    show: |options| options.hsts.map_or_else(String::new, quoted_time),
};

pub(super) const COMPRESS: Key<RouteOptions> = Key {
    name: "compress",
    flag: "",
    argument: "",
    help: "compress responses of upstreams and scripts for clients that accept it; for files \
           see [files]",
    kind: ValueKind::Bool(|options, switch| options.compress = Some(switch)),
    show: |options| show(options.compress.as_ref()),
};

pub(super) const GZIP_LEVEL: Key<RouteOptions> = Key {
    name: "gzip_level",
    flag: "",
    argument: "",
    help: "level of gzip for the responses that `compress` compresses, from 1 (fast) to 9 (small) (2)",
    kind: ValueKind::Count(1..=9, |options, level| options.gzip_level = Some(level as u32)),
    show: |options| show(options.gzip_level.as_ref()),
};

pub(super) fn set_headers(options: &mut RouteOptions, texts: Vec<Located<String>>) -> ConfigResult {
    options.response_fields.set = texts
        .iter()
        .map(|text| parse_field(text, check_response_name))
        .collect::<ConfigResult<_>>()?;
    Ok(())
}

fn show_fields(fields: &[Field]) -> String {
    let line = |Field { name, operation, on, value }: &Field| {
        let on: Vec<_> = on.iter().map(Statuses::to_string).collect();
        let on = if on.is_empty() { String::new() } else { format!("{{{}}}=", on.join(" ")) };
        format!("{on}{}{name}: {}", operation.prefix(), value.source())
    };
    quoted_list(fields.iter().map(line))
}

/// Parses `NAME: VALUE` or `{STATUSES}=NAME: VALUE`.
fn parse_field(text: &Located<String>, check: NameCheck) -> ConfigResult<Field> {
    let invalid = || text.problem(format!("expected NAME: VALUE, found {:?}", text.value));
    let (name, value) = text.value.split_once(':').ok_or_else(invalid)?;
    let (on, name) = match name.rsplit_once('=') {
        None => (Vec::new(), name),
        Some((on, name)) => {
            let on = on.trim().trim_start_matches('{').trim_end_matches('}');
            (Statuses::parse_list(on).map_err(|message| text.problem(message))?, name)
        }
    };
    let (operation, name) = FieldOperation::split(name.trim());
    let name = parse_name(text, name, check)?;
    let value = value.trim();
    HeaderValue::from_str(value).map_err(|_| {
        text.problem(format!("the value of {name} has a byte that no field can have"))
    })?;
    let value = Template::parse_of_response(value).map_err(|message| text.problem(message))?;
    Ok(Field { name, operation, on, value })
}

fn parse_request_field(text: &Located<String>) -> ConfigResult<Field> {
    let field = parse_field(text, check_request_name)?;
    let name = &field.name;
    Template::parse(field.value.source()).map_err(|message| text.problem(message))?;
    match (field.operation, field.on.is_empty()) {
        (FieldOperation::Add, _) => Err(text.problem(format!(
            "a request field is set, as `{name}`, or only if there is none, as `?{name}`"
        ))),
        (_, false) => Err(text.problem("a request has no status")),
        _ => Ok(field),
    }
}

/// Returns an error message for a name that cannot be changed.
pub(super) type NameCheck = fn(&HeaderName) -> Result<(), String>;

pub(super) fn parse_name(
    text: &Located<String>,
    name: &str,
    check: NameCheck,
) -> ConfigResult<HeaderName> {
    let name = name.trim();
    let parsed: HeaderName = name
        .parse()
        .map_err(|_| text.problem(format!("expected the name of a field, found {name:?}")))?;
    check(&parsed).map_err(|message| text.problem(message))?;
    Ok(parsed)
}

pub(super) fn check_response_name(name: &HeaderName) -> Result<(), String> {
    match engine_sets(name) {
        true => Err(format!("the server sets {name} itself")),
        false => Ok(()),
    }
}

/// Refuses fields of requests that the proxy generates, and those that apply to one connection.
pub(super) fn check_request_name(name: &HeaderName) -> Result<(), String> {
    let hint = match name.as_str() {
        "host" => "the key `host` of the proxy sets it",
        "forwarded" | "x-forwarded-for" | "x-forwarded-host" | "x-forwarded-proto" => {
            "the proxy generates it; `trusted_proxies` determines if that of the client is kept"
        }
        "via" => "the key `via` of the proxy sets it",
        "client-cert" | "client-cert-chain" => "the key `client_cert` of the proxy sets it",
        "content-length" | "expect" | "trailer" => "it describes the body, which does not change",
        "connection"
        | "keep-alive"
        | "proxy-authenticate"
        | "proxy-authorization"
        | "proxy-connection"
        | "te"
        | "transfer-encoding"
        | "upgrade" => "it applies to one connection, and is not forwarded",
        "proxy" => "programs mistake it for the variable HTTP_PROXY",
        _ => return Ok(()),
    };
    Err(format!("{name} cannot be changed: {hint}"))
}

pub(super) fn set_remove_response_headers(
    options: &mut RouteOptions,
    texts: Vec<Located<String>>,
) -> ConfigResult {
    let names = texts.iter().map(|text| parse_name(text, &text.value, check_response_name));
    options.response_fields.remove = names.collect::<ConfigResult<_>>()?;
    Ok(())
}
