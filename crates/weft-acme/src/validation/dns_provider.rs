//! TXT records for validations by the DNS (RFC 8555 §8.4), which exist for the time of an order.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::name::Name;

/// Change of the DNS for `dns-01`.
#[derive(Clone, Debug)]
pub struct DnsSettings {
    /// Changes the records.
    pub provider: Arc<dyn DnsProvider>,
    /// Time until all servers of a zone have a change.
    pub delay: Duration,
}

/// Changes TXT records in the DNS.
pub trait DnsProvider: fmt::Debug + Send + Sync + 'static {
    /// Adds a record. A name may have several records at a time: `example.org` and `*.example.org`
    /// are validated by the same name.
    ///
    /// Errors are the reason. The future is dropped after
    /// [`order_timeout`](crate::AcmeSettings::order_timeout).
    fn add<'a>(&'a self, record: &'a TxtRecord) -> DnsFuture<'a>;

    /// Removes a record after the validation.
    fn remove<'a>(&'a self, record: &'a TxtRecord) -> DnsFuture<'a>;
}

/// Future of a change by a [`DnsProvider`].
pub type DnsFuture<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// TXT record of a validation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TxtRecord {
    /// Validated domain name, such as `example.org`.
    pub domain: String,
    /// Name of the record, such as `_acme-challenge.example.org`.
    pub name: String,
    /// Value of the record, in base64url.
    pub value: String,
}

/// A record in the DNS. It is removed when this value is dropped.
pub(crate) struct PublishedRecord {
    provider: Arc<dyn DnsProvider>,
    record: TxtRecord,
}

impl PublishedRecord {
    /// Adds the record of a validation.
    pub(crate) async fn add(
        settings: &DnsSettings,
        name: &Name,
        value: String,
    ) -> Result<PublishedRecord, String> {
        let provider = settings.provider.clone();
        let domain = name.domain().to_owned();
        let record = TxtRecord { name: format!("_acme-challenge.{domain}"), domain, value };
        provider.add(&record).await?;
        let published = PublishedRecord { provider, record };
        sleep(settings.delay).await;
        Ok(published)
    }
}

impl Drop for PublishedRecord {
    fn drop(&mut self) {
        let Ok(runtime) = Handle::try_current() else { return };
        let (provider, record) = (self.provider.clone(), self.record.clone());
        runtime.spawn(async move {
            if let Err(reason) = provider.remove(&record).await {
                log::warn!("cannot remove the TXT record {}: {reason}", record.name);
            }
        });
    }
}
