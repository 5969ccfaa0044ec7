//! Keys of a proxy route about the choice of an upstream.

use weft::StatusCode;
use weft_config::{
    ConfigResult, Key, Located, ValueKind, quoted, quoted_list, quoted_path, show_time,
};
use weft_upstream::{BalancePolicy, ProxySettings};

use crate::base::share::Share;
use crate::sections::balance_policy::{POLICY_NAMES, policy, policy_name};
use crate::template::Template;

pub(super) const BALANCE: Key<ProxySettings> = Key {
    name: "balance",
    help: "load balancing between upstreams: round-robin, least-connections, random-two (of two at \
           random, the one with fewer requests) or hash (by `hash_key`)",
    kind: ValueKind::Choice(&POLICY_NAMES, |settings, choice| settings.balance = policy(choice)),
    show: |settings| quoted(policy_name(settings.balance)),
    ..Key::FILE_ONLY
};

pub(super) const HASH_KEY: Key<ProxySettings> = Key {
    name: "hash_key",
    help: "value by which `balance = \"hash\"` chooses the upstream, such as {uri} or \
           {cookie.session}; requests without a value take turns; by default the address of the \
           client",
    kind: ValueKind::Text(set_hash_key),
    show: |settings| match settings.balance {
        BalancePolicy::Hash => quoted(&settings.hash_key),
        _ => String::new(),
    },
    ..Key::FILE_ONLY
};

pub(super) const STICKY_COOKIE: Key<ProxySettings> = Key {
    name: "sticky_cookie",
    help: "name of a cookie that leads the requests of a client to the same upstream, while that is \
           up",
    kind: ValueKind::Text(|settings, name| {
        if name.value.is_empty() {
            return Err(name.problem("expected the name of a cookie".to_owned()));
        }
        settings.sticky.cookie = name.value;
        Ok(())
    }),
    show: |settings| match &*settings.sticky.cookie {
        "" => String::new(),
        name => quoted(name),
    },
    ..Key::FILE_ONLY
};

pub(super) const STICKY_MAX_AGE: Key<ProxySettings> = Key {
    name: "sticky_max_age",
    help: "time for which clients keep that cookie; by default until the end of their session",
    kind: ValueKind::Time(|settings, time| settings.sticky.max_age = time),
    show: |settings| match settings.sticky.max_age {
        time if time.is_zero() => String::new(),
        time => quoted(&show_time(time)),
    },
    ..Key::FILE_ONLY
};

pub(super) const STICKY_SECRET: Key<ProxySettings> = Key {
    name: "sticky_secret",
    help: "file with the key by which its values are computed, the same on all servers; by default \
           a random key, which reloads keep",
    kind: ValueKind::Path(|settings, path| settings.sticky.secret = Some(path.value)),
    show: |settings| quoted_path(settings.sticky.secret.as_ref()),
    ..Key::FILE_ONLY
};

pub(super) const FAILURE_STATUSES: Key<ProxySettings> = Key {
    name: "failure_statuses",
    help: "statuses of responses that count as failures, such as 503; a request that may be sent \
           again is sent to another upstream",
    kind: ValueKind::Texts(|settings, statuses| {
        let parse = |text: Located<String>| {
            let status = text.value.parse::<StatusCode>().ok();
            let status = status.filter(|it| it.is_client_error() || it.is_server_error());
            status.ok_or_else(|| {
                text.problem(format!("expected a status from 400 to 599, found {:?}", text.value))
            })
        };
        settings.failure_statuses = statuses.into_iter().map(parse).collect::<ConfigResult<_>>()?;
        Ok(())
    }),
    show: |settings| {
        quoted_list(settings.failure_statuses.iter().map(|status| status.as_str().to_owned()))
    },
    ..Key::FILE_ONLY
};

pub(super) const FAILURE_LATENCY: Key<ProxySettings> = Key {
    name: "failure_latency",
    help: "time from a request to the head of its response beyond which the response counts as a \
           failure; it is forwarded nevertheless",
    kind: ValueKind::Time(|settings, time| settings.failure_latency = time),
    show: |settings| match settings.failure_latency {
        time if time.is_zero() => String::new(),
        time => quoted(&show_time(time)),
    },
    ..Key::FILE_ONLY
};

pub(super) const FAILURE_RATE: Key<ProxySettings> = Key {
    name: "failure_rate",
    help: "share of the requests of an upstream in `failure_window`, of at least 20, that may fail, such \
           as 25%; with more it gets no requests for `down_time`, as after `max_failures` in a row",
    kind: ValueKind::Text(|settings, text| {
        settings.failure_rate = Some(share(text)?);
        Ok(())
    }),
    show: |settings| show_share(settings.failure_rate),
    ..Key::FILE_ONLY
};

pub(super) const MIN_AVAILABLE: Key<ProxySettings> = Key {
    name: "min_available",
    help: "share of the upstreams, such as 50%; while fewer are up, upstreams that are down get \
           requests, too, so that the others are not overrun",
    kind: ValueKind::Text(|settings, text| {
        settings.min_available = Some(share(text)?);
        Ok(())
    }),
    show: |settings| show_share(settings.min_available),
    ..Key::FILE_ONLY
};

fn share(text: Located<String>) -> ConfigResult<u32> {
    let Share(share) = Share::parse(&text.value).ok_or_else(|| text.problem(Share::EXPECTED))?;
    Ok(share)
}

fn show_share(share: Option<u32>) -> String {
    share.map_or_else(String::new, |share| quoted(&Share(share).to_string()))
}

pub(super) const TRY_DURATION: Key<ProxySettings> = Key {
    name: "try_duration",
    help: "time for which requests are held, and sent again every 250 ms, while no upstream accepts \
           connections, as during its restart; at most `max_queued` are held",
    kind: ValueKind::Time(|settings, time| settings.try_duration = time),
    show: |settings| match settings.try_duration {
        time if time.is_zero() => String::new(),
        time => quoted(&show_time(time)),
    },
    ..Key::FILE_ONLY
};

pub(super) const SLOW_START: Key<ProxySettings> = Key {
    name: "slow_start",
    help: "time in which the share of an upstream that is up again grows to its weight; by default \
           it has its full share at once",
    kind: ValueKind::Time(|settings, time| settings.slow_start = time),
    show: |settings| match settings.slow_start {
        time if time.is_zero() => String::new(),
        time => quoted(&show_time(time)),
    },
    ..Key::FILE_ONLY
};

fn set_hash_key(settings: &mut ProxySettings, text: Located<String>) -> ConfigResult {
    let template = Template::parse(&text.value).map_err(|invalid| text.problem(invalid))?;
    if template.as_literal().is_some() {
        return Err(text.problem("expected a text with placeholders, such as {client_ip}"));
    }
    settings.hash_key = text.value;
    Ok(())
}
