//! `weft certificates`: the certificates that a configuration orders, and their state on disk.

use std::fmt::Write;
use std::time::SystemTime;

use weft_proto::semantics::date::rfc3339;

use crate::acme::{
    AcmePlan, CertificateInfo, ChallengeKind, Name, OnDemandPlan, Store, StoredCertificate,
};
use crate::config::show_time;

/// Returns a line for each name: the end of its validity, the next order, the failures since the last
/// success, and the last error.
///
/// # Errors
/// If the platform has no default directory, and none is configured.
pub(crate) fn list(plan: &AcmePlan) -> Result<String, String> {
    let store = Store::new(plan.state.as_deref())?;
    let names = names(plan, &store);
    let width = names.iter().map(|name| name.as_str().len()).max().unwrap_or(0).max(4);
    let mut out = String::new();
    let mut line = |cells: [&str; 5]| {
        let [name, expires, next, failures, error] = cells;
        let text = format!("{name:width$}  {expires:20}  {next:20}  {failures:8}  {error}");
        writeln!(out, "{}", text.trim_end()).expect("writing to a String cannot fail");
    };
    line(["NAME", "EXPIRES", "NEXT ORDER", "FAILURES", "LAST ERROR"]);
    for name in &names {
        let stored = StoredCertificate::read(&store, name).info();
        let CertificateInfo { not_after, next_order, failures, last_error } = stored;
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
fn names(plan: &AcmePlan, store: &Store) -> Vec<Name> {
    let mut names = plan.names.clone();
    if plan.on_demand.is_some() {
        names.extend(store.names());
        names.sort();
        names.dedup();
    }
    names
}

/// Describes the orders on demand, for `weft check`.
pub(crate) fn describe_on_demand(plan: &OnDemandPlan) -> String {
    let OnDemandPlan { patterns, ask, rate, max_names, timeout, .. } = plan;
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
pub(crate) fn describe(plan: &AcmePlan) -> String {
    let join = |words: Vec<String>, last: &str| words.join(last);
    let names: Vec<String> = plan.names.iter().map(ToString::to_string).collect();
    let kinds = plan.challenges.iter().map(|kind| match (kind.port(), &plan.dns) {
        (Some(port), _) => format!("{} (the authority must reach port {port})", kind.name()),
        (None, Some(dns)) if *kind == ChallengeKind::Dns01 => {
            format!("{} ({})", kind.name(), dns.provider)
        }
        (None, _) => format!("{} (with a TXT record that stays)", kind.name()),
    });
    match names.is_empty() {
        true => "certificates are automatic, but no host has a name".to_owned(),
        false => format!(
            "certificates for {} are ordered from {} by {}",
            join(names, ", "),
            join(plan.directories.clone(), " or "),
            join(kinds.collect(), " or "),
        ),
    }
}
