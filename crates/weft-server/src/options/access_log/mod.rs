//! The option `access_log`: the access logs of a route, a host or all hosts, each with its
//! conditions.

mod status_range; // statuses of the requests that a log has

use std::time::Duration;

use weft::log::LogFormat;
use weft_config::{
    ConfigResult, CustomType, Given, Key, SectionKey, Value, ValueKind, print_entries, quoted,
    quoted_list, quoted_time, schema, unknown_key,
};

pub(crate) use self::status_range::StatusRange;
use self::status_range::{parse_statuses, show_statuses};
use super::RouteOption;
use super::scope::{Finding, Scope};
use crate::base::log_format::AccessFormat;
use crate::base::log_target::{LOG_TARGET, LogTarget};
use crate::base::share::Share;

/// An access log of a route. The default is the access log of `[log]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct AccessLogSettings {
    /// `None`: the destination of `[log]`.
    pub(crate) to: Option<LogTarget>,
    /// `None`: the format of `[log]`.
    pub(crate) format: Option<AccessFormat>,
    /// Statuses of the requests that are logged. Empty: all.
    pub(crate) status: Vec<StatusRange>,
    pub(crate) min_duration: Duration,
    /// Parts of `User-Agent` of requests that are not logged.
    pub(crate) skip_agents: Vec<String>,
    /// Share of the requests that are logged. `None`: all.
    pub(crate) sample: Option<Share>,
    /// Statuses of requests that are logged regardless of `sample`.
    pub(crate) keep_status: Vec<StatusRange>,
}

impl AccessLogSettings {
    /// Returns the format of the lines. `default` is the format of `[log]`.
    pub(crate) fn format<'a>(&'a self, default: &'a AccessFormat) -> &'a LogFormat {
        &self.format.as_ref().unwrap_or(default).format
    }
}

/// The access logs in place of the access log of `[log]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct AccessLogOptions {
    /// Empty: no log.
    logs: Option<Vec<AccessLogSettings>>,
}

impl AccessLogOptions {
    /// Returns the logs that replace the access log of `[log]`, if any.
    pub(crate) fn logs(&self) -> Option<&[AccessLogSettings]> {
        self.logs.as_deref().filter(|logs| *logs != [AccessLogSettings::default()])
    }
}

impl RouteOption for AccessLogOptions {
    const KEYS: &'static [Key<Self>] = &[Key {
        name: "access_log",
        help: "access logs in place of the log of [log]: false, true for the log of [log], a \
               destination, a table, or a list of these",
        kind: ValueKind::Custom(&ACCESS_LOGS, |options, given| {
            if let Given::Values([value, ..]) = given {
                options.logs = Some(read_logs(value)?);
            }
            Ok(())
        }),
        show: |options| options.logs.as_deref().map_or_else(String::new, show_logs),
        ..Key::FILE_ONLY
    }];

    fn or(self, outer: &Self) -> Self {
        AccessLogOptions { logs: self.logs.or_else(|| outer.logs.clone()) }
    }

    fn findings(&self, scope: &Scope<'_>) -> Vec<Finding> {
        let lacks_default = scope.route().is_some_and(|route| !route.has_access_log);
        vec![(
            lacks_default && self.logs.iter().flatten().any(|log| log.to.is_none()),
            "`access_log` has no effect without `to`: `access` in [log] is none",
        )]
    }
}

static ACCESS_LOGS: CustomType = CustomType {
    is_list: false,
    shape: "boolean, text, table or list",
    schema: || {
        let table = schema::table(schema::properties(&ACCESS_LOG));
        let log = schema::any_of([schema::boolean(), schema::text(), table]);
        schema::any_of([log.clone(), schema::list(log)])
    },
};

/// The keys of a table of `access_log`.
pub(crate) static ACCESS_LOG: [Key<AccessLogSettings>; 7] = [
    Key {
        name: "to",
        help: "destination, as of `access` in [log]; without it, that one",
        kind: ValueKind::Custom(&LOG_TARGET, |log, given| {
            let to = LogTarget::read(given)?;
            log.to = Some(to.value);
            Ok(())
        }),
        show: |log| log.to.as_ref().map_or_else(String::new, LogTarget::show),
        ..Key::FILE_ONLY
    },
    Key {
        name: "format",
        help: "format of the lines, as of `format` in [log]; without it, that one",
        kind: ValueKind::Text(|log, text| {
            let format = AccessFormat::parse(&text.value);
            log.format = Some(format.map_err(|message| text.problem(message))?);
            Ok(())
        }),
        show: |log| log.format.as_ref().map_or_else(String::new, |format| quoted(&format.text)),
        ..Key::FILE_ONLY
    },
    Key {
        name: "status",
        help: "statuses of the requests that are logged: \"404\", \"5xx\" or \"400-404\"",
        kind: ValueKind::Texts(|log, texts| {
            log.status = parse_statuses(texts)?;
            Ok(())
        }),
        show: |log| show_statuses(&log.status),
        ..Key::FILE_ONLY
    },
    Key {
        name: "min_duration",
        help: "minimum duration of the requests that are logged",
        kind: ValueKind::Time(|log, time| log.min_duration = time),
        show: |log| match log.min_duration {
            Duration::ZERO => String::new(),
            time => quoted_time(time),
        },
        ..Key::FILE_ONLY
    },
    Key {
        name: "skip_agents",
        help: "requests with one of these texts in `User-Agent` are not logged",
        kind: ValueKind::Texts(|log, texts| {
            if let Some(empty) = texts.iter().find(|text| text.value.is_empty()) {
                return Err(empty.problem("an empty text is in every `User-Agent`"));
            }
            log.skip_agents = texts.into_iter().map(|text| text.value).collect();
            Ok(())
        }),
        show: |log| match log.skip_agents.is_empty() {
            true => String::new(),
            false => quoted_list(log.skip_agents.iter()),
        },
        ..Key::FILE_ONLY
    },
    Key {
        name: "sample",
        help: "share of the requests that are logged, such as \"1%\"",
        kind: ValueKind::Text(|log, text| {
            let share = Share::parse(&text.value);
            log.sample = Some(share.ok_or_else(|| text.problem(Share::EXPECTED))?);
            Ok(())
        }),
        show: |log| log.sample.map_or_else(String::new, |share| quoted(&share.to_string())),
        ..Key::FILE_ONLY
    },
    Key {
        name: "keep_status",
        help: "statuses of requests that are logged regardless of `sample`",
        kind: ValueKind::Texts(|log, texts| {
            log.keep_status = parse_statuses(texts)?;
            Ok(())
        }),
        show: |log| show_statuses(&log.keep_status),
        ..Key::FILE_ONLY
    },
];

/// Reads the value of `access_log`.
fn read_logs(value: &Value<'_>) -> ConfigResult<Vec<AccessLogSettings>> {
    match value.bool() {
        Ok(true) => return Ok(vec![AccessLogSettings::default()]),
        Ok(false) => return Ok(Vec::new()),
        Err(_) => {}
    }
    match value.items() {
        Ok(items) => items.map(|item| read_log(&item)).collect(),
        Err(_) if value.as_text() == Some("none") => Ok(Vec::new()),
        Err(_) => Ok(vec![read_log(value)?]),
    }
}

fn read_log(value: &Value<'_>) -> ConfigResult<AccessLogSettings> {
    let mut log = AccessLogSettings::default();
    if let Ok(true) = value.bool() {
        return Ok(log);
    }
    match value.as_text() {
        Some(_) => ACCESS_LOG[0].set_value(&mut log, value)?,
        None => {
            let entries = value.entries().map_err(|_| {
                value.problem(
                    "expected true, false, a destination such as \"access.log\", or a table such \
                     as { to = \"slow.log\", min_duration = \"1s\" }",
                )
            })?;
            for (name, value) in entries {
                match ACCESS_LOG.iter().find(|key| key.name == name.value) {
                    Some(key) => key.set_value(&mut log, &value)?,
                    None => {
                        return Err(unknown_key(&name, ACCESS_LOG.iter().map(|key| key.name)));
                    }
                }
            }
        }
    }
    if log.to == Some(LogTarget::None) {
        return Err(value.problem("a route without an access log has `access_log = false`"));
    }
    if log.sample.is_none() && !log.keep_status.is_empty() {
        return Err(value.problem("`keep_status` has no effect without `sample`"));
    }
    Ok(log)
}

fn show_logs(logs: &[AccessLogSettings]) -> String {
    match logs {
        [] => "false".to_owned(),
        [log] => show_log(log),
        logs => format!("[{}]", logs.iter().map(show_log).collect::<Vec<_>>().join(", ")),
    }
}

fn show_log(log: &AccessLogSettings) -> String {
    let set = print_entries(&ACCESS_LOG, log, &AccessLogSettings::default());
    match set.is_empty() {
        true => "true".to_owned(),
        false => format!("{{ {} }}", set.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_shares() {
        for (text, expected) in [
            ("1%", Some((10_000, "1%"))),
            ("0.0001%", Some((1, "0.0001%"))),
            ("12.50 %", Some((125_000, "12.5%"))),
            ("100%", Some((1_000_000, "100%"))),
            ("100.1%", None),
            ("0.00001%", None),
            ("0.1", None),
            ("-1%", None),
            ("%", None),
        ] {
            let share = Share::parse(text).map(|share| (share.0, share.to_string()));
            let share = share.as_ref().map(|(millionths, shown)| (*millionths, &**shown));
            assert_eq!(share, expected, "{text}");
        }
    }
}
