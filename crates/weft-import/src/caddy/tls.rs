//! The directive `tls`, and certificates by default.

use super::addresses::{Site, is_internal};
use super::global::Global;
use super::notes::Notes;
use super::tree::Directive;
use crate::document::{Document, Table, Value};

/// Certificates and options of `[tls]` that the sites need.
#[derive(Default)]
pub(super) struct Tls {
    pairs: Vec<Table>,
    /// Names for which a certificate is ordered.
    ordered: Vec<String>,
    has_internal: bool,
    client_ca: Option<String>,
    protocols: Vec<bool>,
}

impl Tls {
    /// Adds the certificates of a site. Returns true if clients need a certificate, and `None` if
    /// a rule about them cannot be carried over.
    pub(super) fn add(
        &mut self,
        site: &Site<'_>,
        global: &Global,
        notes: &Notes,
        document: &mut Document,
    ) -> Option<bool> {
        if !site.has_tls() {
            return Some(false);
        }
        let directive = site.block.iter().rfind(|it| it.name == "tls");
        let args = directive.map(|it| &*it.args).unwrap_or_default();
        let mut is_internal_site = global.has_local_certificates;
        let mut has_files = false;
        match args {
            [] => {}
            [word] if word == "internal" => is_internal_site = true,
            [email] if email.contains('@') => document.section("acme").set("email", &**email),
            [cert, key] => {
                let mut pair = Table::default();
                pair.set("cert", &**cert);
                pair.set("key", &**key);
                has_files = true;
                if !self.pairs.contains(&pair) {
                    self.pairs.push(pair);
                }
            }
            _ => directive.into_iter().for_each(|it| notes.lost(it, "there is no equivalent")),
        }
        for name in site.names.iter().filter(|_| !has_files) {
            match is_internal_site || is_internal(name) {
                true => self.has_internal = true,
                false => self.ordered.push(name.clone()),
            }
        }
        let mut is_modern = false;
        let mut required = Some(false);
        for child in directive.map(Directive::children).unwrap_or_default() {
            match &*child.name {
                "protocols" => is_modern = child.arg(0) == "tls1.3",
                "ciphers" | "curves" | "alpn" | "key_type" | "renewal_window_ratio" => {}
                "ca" => document.section("acme").set("directories", [child.arg(0)]),
                "ca_root" => document.section("acme").set("ca", child.arg(0)),
                "on_demand" => {
                    let names = site.names.iter().filter(|name| *name != "*");
                    let names: Vec<String> = names.cloned().collect();
                    document.section("acme").set_filled("on_demand", names);
                }
                "dns" => notes.lost(child, "`[acme] dns_program` or `dns_server` change the DNS"),
                "issuer" if child.arg(0) == "acme" && child.children().is_empty() => {}
                "issuer" if child.arg(0) == "internal" => self.has_internal = true,
                "client_auth" => required = self.client_auth(child, notes),
                _ => notes.lost(child, "there is no equivalent"),
            }
        }
        self.protocols.push(is_modern);
        required
    }

    /// Translates `client_auth`. Returns true if certificates are required.
    fn client_auth(&mut self, directive: &Directive, notes: &Notes) -> Option<bool> {
        let mode = directive.child("mode").map_or("require_and_verify", |it| it.arg(0));
        let file = directive
            .child("trusted_ca_cert_file")
            .map(|it| it.arg(0))
            .or_else(|| {
                directive.child("trust_pool").filter(|it| it.arg(0) == "file").map(|it| {
                    if it.args.len() > 1 {
                        it.arg(1)
                    } else {
                        it.child("pem_file").map_or("", |it| it.arg(0))
                    }
                })
            })
            .filter(|file| !file.is_empty());
        let is_other = |file: &str| self.client_ca.as_deref().is_some_and(|known| known != file);
        match (mode, file) {
            ("require_and_verify" | "verify_if_given", Some(file)) if !is_other(file) => {
                self.client_ca = Some(file.to_owned());
                Some(mode == "require_and_verify")
            }
            _ => {
                notes.lost(directive, "all hosts have one `client_ca`; the site is refused");
                None
            }
        }
    }

    /// Writes `[tls]`, whose addresses are known.
    pub(super) fn write(self, document: &mut Document) {
        let tls = document.section("tls");
        let has_files = !self.pairs.is_empty();
        if has_files {
            tls.set("certificates", self.pairs);
        } else if !self.ordered.is_empty() {
            tls.set("certificates", "auto");
        } else if self.has_internal {
            tls.set("self_signed", true);
        }
        if !self.protocols.is_empty() && self.protocols.iter().all(|it| *it) {
            tls.set("profile", "modern");
        }
        if let Some(file) = self.client_ca {
            tls.set("client_ca", file);
            tls.set("client_auth", "optional");
        }
        let is_orderable = |name: &&String| !name.contains('*');
        let domains: Vec<String> = self.ordered.iter().filter(is_orderable).cloned().collect();
        if has_files && !domains.is_empty() {
            document.section("acme").set("domains", Value::from(domains));
        }
    }
}
