//! `weft certificates`: the certificates that a configuration orders, and their state on disk.

use std::fmt::Write;
use std::time::SystemTime;

use tokio::runtime::Builder;
use weft::date::rfc3339;
use weft_acme::{AcmeSettings, CertificateInfo, ChallengeKind, Name};
use weft_config::show_time;

use crate::sections::acme::{AcmeConfig, OnDemandConfig};
use crate::sections::cluster::{ClusterConfig, OpenedCluster};

/// Returns the settings of a configuration, with the store of its cluster.
///
/// # Errors
/// If there is no directory for the state, or if a file cannot be used.
pub(crate) fn settings(
    plan: &AcmeConfig,
    cluster: Option<&ClusterConfig>,
) -> Result<AcmeSettings, String> {
    let settings = plan.settings()?;
    let Some(cluster) = cluster else { return Ok(settings) };
    let cluster = OpenedCluster::open(cluster, None).map_err(|problem| problem.to_string())?;
    Ok(cluster.share_certificates(settings))
}

/// Describes the orders in a cluster, for `weft check`.
pub(crate) const DESCRIBED_CLUSTER: &str = "the machines of the cluster have one account and the same certificates, which its store has; \
     any of them may be validated";

/// Returns a line for each name: the end of its validity, the next order, the failures since the
/// last success, and the last error.
///
/// # Errors
/// If the store cannot be read.
pub(crate) fn list(plan: &AcmeConfig, settings: &AcmeSettings) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("cannot read the certificates: {error}");
    let names = names(plan, settings).map_err(failed)?;
    let width = names.iter().map(|name| name.as_str().len()).max().unwrap_or(0).max(4);
    let mut out = String::new();
    let mut line = |cells: [&str; 5]| {
        let [name, expires, next, failures, error] = cells;
        let text = format!("{name:width$}  {expires:20}  {next:20}  {failures:8}  {error}");
        writeln!(out, "{}", text.trim_end()).expect("writing to a String cannot fail");
    };
    line(["NAME", "EXPIRES", "NEXT ORDER", "FAILURES", "LAST ERROR"]);
    for name in &names {
        let stored = settings.stored_certificate(name).map_err(failed)?;
        let CertificateInfo { not_after, next_order, failures, last_error, .. } = stored;
        let expires = not_after.map_or_else(|| "no certificate".to_owned(), rfc3339);
        let next = next_order.filter(|next| *next > SystemTime::now());
        let next = next.map_or_else(|| "now".to_owned(), rfc3339);
        // The words of an authority may have line ends.
        let error = last_error.unwrap_or_default().replace(char::is_control, " ");
        line([name.as_str(), &expires, &next, &failures.to_string(), &error]);
    }
    Ok(out)
}

/// Returns the configured names, and those that clients have asked for.
fn names(plan: &AcmeConfig, settings: &AcmeSettings) -> std::io::Result<Vec<Name>> {
    let mut names = settings.names.clone();
    if plan.on_demand.is_enabled() {
        names.extend(settings.stored_names()?);
        names.sort();
        names.dedup();
    }
    Ok(names)
}

/// Revokes the stored certificate of a name. Returns a message.
///
/// # Errors
/// If there is no certificate, or no authority revokes it.
pub(crate) fn revoke(
    settings: &AcmeSettings,
    name: &str,
    reason: Option<&str>,
) -> Result<String, String> {
    let name: Name = name.parse().map_err(|error: weft::Error| format!("{name:?}: {error}"))?;
    let directory = run(settings.revoke(&name, reason))?;
    Ok(format!("{directory} has revoked the certificate for {name}\n"))
}

/// Changes the keys of all accounts. Returns a message.
///
/// # Errors
/// If there is no account, or an authority does not change a key.
pub(crate) fn roll_over(settings: &AcmeSettings) -> Result<String, String> {
    let changed = run(settings.roll_over())?;
    let line = |directory: String| format!("the account with {directory} has a new key\n");
    Ok(changed.into_iter().map(line).collect())
}

/// Runs the requests of a command.
fn run<T>(requests: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start an event loop: {error}"))?;
    runtime.block_on(requests)
}

/// Describes the orders on demand, for `weft check`.
pub(crate) fn describe_on_demand(plan: &OnDemandConfig) -> String {
    let OnDemandConfig { patterns, ask, rate, max_names, timeout, .. } = plan;
    let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
    let mut permitted = Vec::new();
    permitted.extend(Some(patterns.join(", ")).filter(|patterns| !patterns.is_empty()));
    permitted.extend(ask.as_ref().map(|url| format!("names that {url} permits")));
    format!(
        "certificates for {} are ordered on demand, {rate} and {max_names} names at most; \
         handshakes wait for {}",
        permitted.join(" and "),
        show_time(*timeout)
    )
}

/// Describes the orders, for `weft check`.
pub(crate) fn describe(plan: &AcmeConfig) -> String {
    let join = |words: Vec<String>, last: &str| words.join(last);
    let names: Vec<String> = plan.domains.iter().map(|name| name.value.to_string()).collect();
    let kinds = plan.challenges.iter().map(|kind| &kind.value);
    let kinds = kinds.map(|kind| match (kind.port(), plan.dns.method()) {
        (Some(port), _) => format!("{} (the authority must reach port {port})", kind.name()),
        (None, Some(method)) if *kind == ChallengeKind::Dns01 => {
            format!("{} ({method})", kind.name())
        }
        (None, _) => format!("{} (with a TXT record that stays)", kind.name()),
    });
    match names.is_empty() {
        true => "certificates are automatic, but no host has a name".to_owned(),
        false => format!(
            "certificates for {} are ordered from {} by {}",
            join(names, ", "),
            join(plan.directories.iter().map(|url| url.value.clone()).collect(), " or "),
            join(kinds.collect(), " or "),
        ),
    }
}
