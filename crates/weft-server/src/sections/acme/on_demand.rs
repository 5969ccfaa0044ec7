//! Certificates on demand: their keys in `[acme]`, and the settings of their orders.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use weft_acme::{NamePattern, OnDemandSettings, OrderPermission, OrderRate};
use weft_config::{
    ConfigResult, Key, Located, Problem, ValueKind, quoted, quoted_list, quoted_path, quoted_time,
    show_time,
};

use super::AcmeConfig;
use super::permission::AskedPermission;
use crate::base::auth_url::AuthUrl;
use crate::base::rate::Rate;

/// Values of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OnDemandConfig {
    /// Names that are permitted.
    pub(crate) patterns: Vec<NamePattern>,
    /// Resource that decides about all other names.
    pub(crate) ask: Option<AuthUrl>,
    /// File of the certificate authorities that are trusted in connections to the resource. `None`:
    /// the authorities of the system.
    pub(crate) ask_ca: Option<Located<PathBuf>>,
    /// Maximum rate of orders.
    pub(crate) rate: Rate,
    /// Maximum number of names with files in the store.
    pub(crate) max_names: usize,
    /// Time for which a handshake waits.
    pub(crate) timeout: Duration,
}

/// Maximum number of orders in the period of the rate.
const MAX_RATE: u32 = 10_000;

impl Default for OnDemandConfig {
    fn default() -> OnDemandConfig {
        let OnDemandSettings { patterns, rate, max_names, timeout, .. } =
            OnDemandSettings::default();
        let rate = Rate { requests: rate.orders, period: rate.period };
        OnDemandConfig { patterns, ask: None, ask_ca: None, rate, max_names, timeout }
    }
}

impl OnDemandConfig {
    /// Returns true if there are orders on demand.
    pub(crate) fn is_enabled(&self) -> bool {
        !self.patterns.is_empty() || self.ask.is_some()
    }

    /// Returns true if the subdomains of a wildcard may be ordered one by one.
    pub(super) fn covers(&self, wildcard: &str) -> bool {
        self.ask.is_some() || self.patterns.iter().any(|pattern| pattern.matches(wildcard))
    }

    /// Returns a warning if the timeout is longer than `head_timeout`, within which a handshake
    /// ends.
    pub(crate) fn warning(&self, head_timeout: Duration) -> Option<Problem> {
        (self.is_enabled() && self.timeout > head_timeout).then(|| {
            Problem::without_location(format!(
                "handshakes wait for certificates on demand for {}, as long as `head_timeout` permits, \
                 not for {} (`on_demand_timeout`)",
                show_time(head_timeout),
                show_time(self.timeout)
            ))
        })
    }

    /// Returns the settings of the orders; `None` without orders on demand.
    pub(super) fn settings(&self) -> Result<Option<OnDemandSettings>, String> {
        let permission = self.ask.clone().map(|url| {
            let ca = self.ask_ca.as_ref().map(|path| &*path.value);
            let asked = AskedPermission::new(url, ca, self.timeout)?;
            Ok::<Arc<dyn OrderPermission>, String>(Arc::new(asked))
        });
        let settings = OnDemandSettings {
            patterns: self.patterns.clone(),
            permission: permission.transpose()?,
            rate: OrderRate { orders: self.rate.requests, period: self.rate.period },
            max_names: self.max_names,
            timeout: self.timeout,
        };
        Ok(self.is_enabled().then_some(settings))
    }
}

pub(super) const ON_DEMAND: Key<AcmeConfig> = Key {
    name: "on_demand",
    flag: "acme-on-demand",
    argument: "NAME",
    help: "name whose certificate is ordered when a client asks for it: example.org, or \
           *.example.org for all of its subdomains",
    kind: ValueKind::Texts(|acme, names| {
        let pattern = |name: Located<String>| {
            let hint = if name.value == "*" { ": set `on_demand_ask`" } else { "" };
            let invalid = |error| name.problem(format!("{:?}: {error}{hint}", name.value));
            name.value.parse().map_err(|error: weft::Error| invalid(error))
        };
        acme.on_demand.patterns = names.into_iter().map(pattern).collect::<ConfigResult<_>>()?;
        Ok(())
    }),
    show: |acme| quoted_list(acme.on_demand.patterns.iter().map(ToString::to_string)),
};

pub(super) const ON_DEMAND_ASK: Key<AcmeConfig> = Key {
    name: "on_demand_ask",
    flag: "acme-on-demand-ask",
    argument: "URL",
    help: "resource that is asked about all other names, with ?domain=NAME; a status of 2xx permits an \
           order",
    kind: ValueKind::Text(|acme, url| {
        let parsed = AuthUrl::parse(&url.value).map_err(|invalid| url.problem(invalid))?;
        acme.on_demand.ask = Some(parsed);
        Ok(())
    }),
    show: |acme| {
        acme.on_demand.ask.as_ref().map_or_else(String::new, |url| quoted(&url.to_string()))
    },
};

pub(super) const ON_DEMAND_ASK_CA: Key<AcmeConfig> = Key {
    name: "on_demand_ask_ca",
    flag: "acme-on-demand-ask-ca",
    argument: "FILE",
    help: "CA certificates in PEM for connections to that resource, in place of the certificates \
           of the system",
    kind: ValueKind::Path(|acme, path| acme.on_demand.ask_ca = Some(path)),
    show: |acme| quoted_path(acme.on_demand.ask_ca.as_ref()),
};

pub(super) const ON_DEMAND_RATE: Key<AcmeConfig> = Key {
    name: "on_demand_rate",
    flag: "acme-on-demand-rate",
    argument: "RATE",
    help: "maximum rate of orders on demand, such as 10/m or 100/h",
    kind: ValueKind::Text(|acme, text| {
        let rate = text.value.parse::<Rate>().ok();
        let rate = rate.filter(|rate| rate.requests.get() <= MAX_RATE).ok_or_else(|| {
            text.problem(format!(
                "expected a rate such as 10/m, of at most {MAX_RATE} orders, found {:?}",
                text.value
            ))
        });
        acme.on_demand.rate = rate?;
        Ok(())
    }),
    show: |acme| quoted(&acme.on_demand.rate.to_string()),
};

pub(super) const ON_DEMAND_NAMES: Key<AcmeConfig> = Key {
    name: "on_demand_names",
    flag: "acme-on-demand-names",
    argument: "N",
    help: "maximum number of names on demand that have files in the state directory",
    kind: ValueKind::Count(1..=100_000, |acme, count| acme.on_demand.max_names = count as usize),
    show: |acme| acme.on_demand.max_names.to_string(),
};

pub(super) const ON_DEMAND_TIMEOUT: Key<AcmeConfig> = Key {
    name: "on_demand_timeout",
    flag: "acme-on-demand-timeout",
    argument: "TIME",
    help: "time for which a handshake waits for its certificate, at most `head_timeout`; then it fails",
    kind: ValueKind::Time(|acme, time| acme.on_demand.timeout = time),
    show: |acme| quoted_time(acme.on_demand.timeout),
};
