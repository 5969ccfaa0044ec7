//! The certificates that `[acme]` and the hosts order, and the settings of their orders.

use std::sync::Arc;

use weft_acme::{AcmeSettings, ChallengeKind, DnsSettings, ExternalAccount, FileStore, Name};
use weft_config::{Located, Problem};

use super::AcmeConfig;
use super::client::AuthorityServers;

impl AcmeConfig {
    /// Validates the names of the domains and of the hosts. Sets the defaults that depend on other
    /// keys. Returns `None` if there is nothing to order. `host_names` is `None` if the hosts order
    /// no certificates.
    pub(crate) fn plan(
        self,
        host_names: Option<Vec<&str>>,
        warnings: &mut Vec<Problem>,
        problems: &mut Vec<Problem>,
    ) -> Option<AcmeConfig> {
        let challenges = self.challenge_kinds();
        let mut names = Vec::new();
        for domain in &self.domains {
            match possible(domain.value.clone(), &challenges) {
                Ok(name) => names.push(name),
                Err(reason) => {
                    problems.push(domain.problem(format!("{:?}: {reason}", domain.value.as_str())))
                }
            }
        }
        for name in host_names.iter().flatten() {
            let is_on_demand_only = name.starts_with("*.") && self.on_demand.covers(name);
            match parse(name) {
                Ok(name) if name.is_local() => {}
                // The host `*` stands for all other names, and has no certificate.
                Err(_) if *name == "*" => {}
                parsed => match parsed.and_then(|name| possible(name, &challenges)) {
                    Ok(name) => names.push(name),
                    Err(_) if is_on_demand_only => {}
                    Err(reason) => {
                        let message = format!("no certificate is ordered for {name:?}: {reason}");
                        warnings.push(Problem::without_location(message));
                    }
                },
            }
        }
        names.sort();
        names.dedup();
        self.dns.check(&self.challenges, problems);
        match (&self.eab_key_id, &self.eab_key) {
            (Some(id), None) => problems.push(id.problem("`eab_key_id` needs `eab_key`")),
            (None, Some(key)) => problems.push(key.problem("`eab_key` needs `eab_key_id`")),
            (Some(_), Some(_)) | (None, None) => {}
        }
        if host_names.is_none() && names.is_empty() && !self.on_demand.is_enabled() {
            return None;
        }
        let (directories, staging) = (self.directory_urls(), self.staging_url());
        Some(AcmeConfig {
            domains: located(names),
            directories: located(directories),
            staging: staging.map(Located::without_location),
            challenges: located(challenges),
            ..self
        })
    }

    /// Returns the settings of the orders of a plan.
    ///
    /// # Errors
    /// If there is no directory for the state, or if the certificate authorities of `on_demand_ask`
    /// cannot be read.
    pub(crate) fn settings(&self) -> Result<AcmeSettings, String> {
        let state = self.state.as_ref().map(|path| path.value.clone());
        let state = state
            .or_else(FileStore::default_directory)
            .ok_or("there is no directory for certificates: set `state` in [acme]".to_owned())?;
        let store = FileStore::new(state);
        let store = if self.allows_ephemeral_state { store.ephemeral_state() } else { store };
        let dns = self.dns.method().map(|method| {
            let provider = Arc::new(method);
            DnsSettings { provider, delay: self.dns.delay }
        });
        let external_account = self.eab_key_id.as_ref().zip(self.eab_key.as_ref());
        let external_account = external_account
            .map(|(id, key)| ExternalAccount { id: id.value.clone(), key: key.value.clone() });
        let text = |text: &Located<String>| text.value.clone();
        Ok(AcmeSettings {
            names: self.domains.iter().map(|name| name.value.clone()).collect(),
            directories: self.directory_urls(),
            staging: self.staging_url(),
            external_account,
            email: self.email.as_ref().map(text),
            client: Arc::new(AuthorityServers::new(self.ca.clone().map(|path| path.value))),
            store: Arc::new(store),
            validations: None,
            challenges: self.challenge_kinds(),
            dns,
            profile: self.profile.as_ref().map(text),
            on_demand: self.on_demand.settings()?,
            retry_delay: self.retry_delay,
            order_timeout: self.order_timeout,
        })
    }
}

/// Returns true if a certificate can be ordered for one of the names.
pub(crate) fn can_order<'n>(
    mut names: impl Iterator<Item = &'n str>,
    challenges: &[ChallengeKind],
) -> bool {
    names.any(|name| {
        parse(name).is_ok_and(|name| !name.is_local() && possible(name, challenges).is_ok())
    })
}

fn parse(name: &str) -> Result<Name, String> {
    name.parse().map_err(|error: weft::Error| error.to_string())
}

/// Returns `name` if one of `challenges` can validate it.
fn possible(name: Name, challenges: &[ChallengeKind]) -> Result<Name, String> {
    match challenges.iter().any(|kind| kind.can_validate(&name)) {
        true => Ok(name),
        false if name.is_wildcard() => Err(
            "a wildcard certificate needs a validation by DNS: set `dns_program`, `dns_server` or \
                 `acme_dns` in [acme], or `challenges` to dns-persist-01"
                .to_owned(),
        ),
        false => Err("an IP address is validated by tls-alpn-01 or http-01, not by DNS".to_owned()),
    }
}

fn located<T>(values: Vec<T>) -> Vec<Located<T>> {
    values.into_iter().map(Located::without_location).collect()
}
