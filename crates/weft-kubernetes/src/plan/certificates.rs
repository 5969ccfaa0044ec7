//! References to Secrets → certificates by server name.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::cluster_plan::PemIdentity;
use super::grants::Referrer;
use super::planner::Planner;
use crate::objects::gateway::ObjectReference;
use crate::objects::{Kind, ObjectName};

/// Maximum size of a certificate chain or a key.
const MAX_PEM_BYTES: usize = 128 << 10;

/// Reason that a reference to a certificate cannot be used, for a condition.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidCertificate {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Planner<'_> {
    /// Returns the certificate that a listener or an Ingress refers to.
    pub(super) fn certificate(
        &self,
        from: Referrer<'_>,
        reference: &ObjectReference,
    ) -> Result<PemIdentity, InvalidCertificate> {
        let invalid = |reason, message| Err(InvalidCertificate { reason, message });
        let group = reference.group.as_deref().unwrap_or_default();
        let kind = reference.kind.as_deref().unwrap_or("Secret");
        if (group, kind) != ("", "Secret") {
            let message = format!("{group}/{kind} is no Secret");
            return invalid("InvalidCertificateRef", message);
        }
        let namespace = reference.namespace.as_deref().unwrap_or(from.namespace);
        let name = ObjectName::new(namespace, &reference.name);
        if !self.permits_reference(from, Kind::Secret, namespace, &reference.name) {
            let message = format!("no ReferenceGrant permits the reference to the Secret {name}");
            return invalid("RefNotPermitted", message);
        }
        if !self.settings.permits_secrets_of(namespace) {
            let message = format!("Secrets of the namespace {namespace} are not permitted");
            return invalid("RefNotPermitted", message);
        }
        let Some(secret) = self.objects.secrets.get(&name) else {
            let message = format!("the Secret {name} does not exist, or is not of type TLS");
            return invalid("InvalidCertificateRef", message);
        };
        let part = |key: &str, label: &str| {
            let value = secret.data.get(key).ok_or_else(|| format!("it has no `{key}`"))?;
            pem(value, label).map_err(|reason| format!("`{key}` {reason}"))
        };
        let parts = part("tls.crt", "CERTIFICATE-----").and_then(|certificate| {
            part("tls.key", "PRIVATE KEY-----").map(|key| PemIdentity { certificate, key })
        });
        match parts {
            Ok(identity) => Ok(identity),
            Err(reason) => {
                invalid("InvalidCertificateRef", format!("the Secret {name} is invalid: {reason}"))
            }
        }
    }

    /// Serves a certificate for server names. The first certificate of a name stays.
    pub(super) fn serve_certificate<'n>(
        &mut self,
        names: impl IntoIterator<Item = &'n str>,
        identity: &PemIdentity,
    ) {
        let names: BTreeSet<_> = names.into_iter().map(str::to_ascii_lowercase).collect();
        for name in names {
            self.plan.identities.entry(name).or_insert_with(|| identity.clone());
        }
    }
}

/// Decodes a value of a Secret, and checks that it has a block in PEM with this end of its label.
fn pem(value: &str, label: &str) -> Result<Vec<u8>, String> {
    if value.len() > MAX_PEM_BYTES {
        return Err(format!("has over {} KiB", MAX_PEM_BYTES >> 10));
    }
    let bytes = STANDARD.decode(value).map_err(|error| format!("is not base64: {error}"))?;
    let text = std::str::from_utf8(&bytes).map_err(|_| "is not text".to_owned())?;
    let begin = text.lines().find(|line| line.starts_with("-----BEGIN "));
    match begin.is_some_and(|line| line.trim_end().ends_with(label)) {
        true => Ok(bytes),
        false => Err(format!("has no block `-----BEGIN …{label}`")),
    }
}
