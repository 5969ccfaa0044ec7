//! Keys of a proxy route about active health checks. Each of them enables the checks.

use std::time::Duration;

use weft::StatusCode;
use weft_config::{ConfigResult, Key, Located, ValueKind, quoted, quoted_list, show_time};
use weft_upstream::{HealthCheck, HealthCheckTarget, ProxySettings};

/// Largest number of checks after which an upstream gets no requests, or gets them again.
const MAX_CHECKS: u64 = 100;

/// Maximum length of the text that responses must contain, in bytes.
const MAX_TEXT_BYTES: usize = 1_024;

pub(super) const CHECK: Key<ProxySettings> = Key {
    name: "check",
    help: "path of health checks, or grpc or grpc:SERVICE for `grpc.health.v1`: an upstream gets \
           requests only after a successful check",
    kind: ValueKind::Text(|settings, path| {
        check(settings).target = HealthCheckTarget::parse(path.value);
        Ok(())
    }),
    show: |settings| show(settings, |check| quoted(&check.target.to_string())),
    ..Key::FILE_ONLY
};

pub(super) const CHECK_HOST: Key<ProxySettings> = Key {
    name: "check_host",
    help: "`Host` of health checks, such as app.example, which applications with a list of permitted \
           hosts require; by default `host`, if that is a fixed one, or else the host of the URL",
    kind: ValueKind::Text(|settings, host| {
        let is_permitted = |b: u8| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b);
        if host.value.is_empty() || !host.value.bytes().all(is_permitted) {
            let message = format!("expected a host such as app.example, found {:?}", host.value);
            return Err(host.problem(message));
        }
        check(settings).host = host.value;
        Ok(())
    }),
    show: |settings| {
        show(settings, |check| match &*check.host {
            "" => String::new(),
            host => quoted(host),
        })
    },
    ..Key::FILE_ONLY
};

pub(super) const CHECK_INTERVAL: Key<ProxySettings> = Key {
    name: "check_interval",
    help: "interval between health checks; by default 5s",
    kind: ValueKind::Time(|settings, time: Duration| check(settings).interval = time),
    show: |settings| show(settings, |check| quoted(&show_time(check.interval))),
    ..Key::FILE_ONLY
};

pub(super) const CHECK_TIMEOUT: Key<ProxySettings> = Key {
    name: "check_timeout",
    help: "timeout of a health check; by default 2s",
    kind: ValueKind::Time(|settings, time: Duration| check(settings).timeout = time),
    show: |settings| show(settings, |check| quoted(&show_time(check.timeout))),
    ..Key::FILE_ONLY
};

pub(super) const CHECK_STATUSES: Key<ProxySettings> = Key {
    name: "check_statuses",
    help: "statuses of the responses to health checks by which they succeed, such as 204; by default \
           200 to 399",
    kind: ValueKind::Texts(|settings, statuses| {
        let parse = |text: Located<String>| {
            let status = text.value.parse::<StatusCode>().ok();
            let status = status.filter(|status| (200..600).contains(&status.as_u16()));
            status.ok_or_else(|| {
                text.problem(format!("expected a status from 200 to 599, found {:?}", text.value))
            })
        };
        check(settings).statuses = statuses.into_iter().map(parse).collect::<ConfigResult<_>>()?;
        Ok(())
    }),
    show: |settings| {
        show(settings, |check| match &*check.statuses {
            [] => String::new(),
            statuses => quoted_list(statuses.iter().map(|status| status.as_str().to_owned())),
        })
    },
    ..Key::FILE_ONLY
};

pub(super) const CHECK_BODY: Key<ProxySettings> = Key {
    name: "check_body",
    help: "text that the responses to health checks must contain in their first 64 KiB",
    kind: ValueKind::Text(|settings, text| {
        if !(1..=MAX_TEXT_BYTES).contains(&text.value.len()) {
            return Err(text.problem(format!("expected a text of 1 to {MAX_TEXT_BYTES} bytes")));
        }
        check(settings).body = text.value;
        Ok(())
    }),
    show: |settings| {
        show(settings, |check| match &*check.body {
            "" => String::new(),
            text => quoted(text),
        })
    },
    ..Key::FILE_ONLY
};

pub(super) const CHECK_FALL: Key<ProxySettings> = Key {
    name: "check_fall",
    help: "number of failed health checks in a row after which an upstream gets no requests; by \
           default 2",
    kind: ValueKind::Count(1..=MAX_CHECKS, |settings, count| check(settings).fall = count as u32),
    show: |settings| show(settings, |check| check.fall.to_string()),
    ..Key::FILE_ONLY
};

pub(super) const CHECK_RISE: Key<ProxySettings> = Key {
    name: "check_rise",
    help: "number of successful health checks in a row after which it gets requests again; by default \
           1",
    kind: ValueKind::Count(1..=MAX_CHECKS, |settings, count| check(settings).rise = count as u32),
    show: |settings| show(settings, |check| check.rise.to_string()),
    ..Key::FILE_ONLY
};

/// Returns the settings of the checks. Enables them if they are not enabled yet.
fn check(settings: &mut ProxySettings) -> &mut HealthCheck {
    settings.check.get_or_insert_default()
}

fn show(settings: &ProxySettings, show: impl Fn(&HealthCheck) -> String) -> String {
    settings.check.as_ref().map_or(String::new(), show)
}
