//! Services in the DNS (SRV), whose servers are the upstreams of a proxy or a stream.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::time::timeout;

use super::Resolver;
use super::answer_cache::AnswerCache;
use super::message::SrvRecord;
use crate::base::random;
use crate::base::throttled_warning::ThrottledWarning;
use crate::dns::dns_settings::DnsSettings;
use crate::dns::local_services::LocalServices;
use crate::url::member::UpstreamMember;

/// The services among the upstreams of a proxy or a stream.
pub struct DnsServices {
    sources: Vec<ServiceSource>,
    resolver: Resolver,
    local: LocalServices,
    failure_warning: ThrottledWarning,
}

/// A member that stands for the servers of a service.
struct ServiceSource {
    member: UpstreamMember,
    cache: AnswerCache<SrvRecord>,
}

/// Servers of the services at one time, in the order of the services; `None`: there was no answer.
pub type ServiceAnswers = Vec<Option<Arc<[SrvRecord]>>>;

impl DnsServices {
    /// Returns the services among `members`, and the other members.
    pub fn split(
        members: &[UpstreamMember],
        dns: &DnsSettings,
    ) -> (DnsServices, Vec<UpstreamMember>) {
        let (services, others): (Vec<_>, Vec<_>) =
            members.iter().cloned().partition(|member| member.url.is_service());
        let source = |member| ServiceSource { member, cache: AnswerCache::new(dns.ttl) };
        let sources = services.into_iter().map(source).collect::<Vec<_>>();
        if !sources.is_empty() {
            random::prepare();
        }
        let resolver = Resolver::new(&dns.servers);
        let (local, failure_warning) = (dns.local_services.clone(), ThrottledWarning::default());
        (DnsServices { sources, resolver, local, failure_warning }, others)
    }

    /// Returns true if there are no services.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Returns the answers before the first lookup.
    pub fn no_answers(&self) -> ServiceAnswers {
        self.sources.iter().map(|_| None).collect()
    }

    /// Looks up services whose records have expired; waits only for those without records, up to
    /// `limit`.
    pub async fn resolve(&self, limit: Duration) {
        match &self.sources[..] {
            [source] => self.resolve_source(source, limit).await,
            // Together, so that one of them does not delay the others.
            sources => {
                let lookups = sources.iter().map(|source| self.resolve_source(source, limit));
                join_all(lookups).await;
            }
        }
    }

    async fn resolve_source(
        &self,
        ServiceSource { member, cache }: &ServiceSource,
        limit: Duration,
    ) {
        if self.local.find(member.url.host()).is_some() {
            return;
        }
        let resolver = self.resolver.clone();
        let lookup = |name: String| async move {
            let mut found = resolver.services(&name).await?;
            sort(&mut found.items);
            Ok((found.items, found.ttl))
        };
        let found = timeout(limit, cache.get(member.url.host(), Instant::now(), lookup)).await;
        let found = found.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        if let Err(error) = &found {
            self.failure_warning.warn(&format!("the upstream {member}: {error}"));
        }
    }

    /// Returns the servers of all services as they were found last. Callers that replace a group
    /// hold its lock: otherwise, older answers could replace newer answers.
    pub fn answers(&self) -> ServiceAnswers {
        let answer = |ServiceSource { member, cache }: &ServiceSource| {
            self.local.find(member.url.host()).or_else(|| cache.cached())
        };
        self.sources.iter().map(answer).collect()
    }

    /// Returns `configured` with the servers in place of the services, behind the others; each
    /// upstream once.
    pub fn members(
        &self,
        configured: &[UpstreamMember],
        answers: &ServiceAnswers,
    ) -> Vec<UpstreamMember> {
        let others = configured.iter().filter(|member| !member.url.is_service());
        let found = self.sources.iter().zip(answers);
        let found = found.flat_map(|(source, answer)| match answer {
            Some(services) => members_of(&source.member, services),
            None => Vec::new(),
        });
        let mut members = Vec::<UpstreamMember>::new();
        for member in others.cloned().chain(found) {
            if !members.iter().any(|known| known.url.is_same_upstream(&member.url)) {
                members.push(member);
            }
        }
        members
    }
}

/// Sorts servers, so that the order of the records makes no difference between two answers. One
/// host may have several ports.
fn sort(services: &mut [SrvRecord]) {
    let key = |it: &SrvRecord| (it.priority, it.target.clone(), it.port, it.weight);
    services.sort_by_cached_key(key);
}

/// Makes the list of the `found` members and their items. If the former list has a member, its item
/// is kept, and `change_weight` is called if its weight has changed. Otherwise `open` creates the
/// item. If that fails, the member is left out with a warning.
pub fn keep_or_open_members<T>(
    found: Vec<UpstreamMember>,
    former: (&[UpstreamMember], &[Arc<T>]),
    open: impl Fn(&UpstreamMember) -> Result<Arc<T>, String>,
    change_weight: impl Fn(&Arc<T>, &UpstreamMember),
) -> (Vec<UpstreamMember>, Vec<Arc<T>>) {
    let (mut members, mut items) = (Vec::new(), Vec::new());
    for member in found {
        let kept = former.0.iter().zip(former.1).find(|(known, _)| known.url == member.url);
        let item = match kept {
            Some((known, item)) => {
                if known.weight != member.weight {
                    change_weight(item, &member);
                }
                item.clone()
            }
            None => match open(&member) {
                Ok(item) => item,
                Err(error) => {
                    log::warn!("the upstream {member} is left out: {error}");
                    continue;
                }
            },
        };
        members.push(member);
        items.push(item);
    }
    (members, items)
}

/// Returns the servers of a service. The servers of all but the lowest priority are backups (RFC
/// 2782). The options of `source` apply to each of them.
fn members_of(source: &UpstreamMember, services: &[SrvRecord]) -> Vec<UpstreamMember> {
    let first = services.iter().map(|service| service.priority).min();
    let member = |service: &SrvRecord| {
        let url = source.url.of_server(&service.target, service.port)?;
        // Of servers with the weight 0, some requests reach each.
        let weight = u32::from(service.weight).max(1);
        let is_backup = source.is_backup || Some(service.priority) != first;
        Some(UpstreamMember { url, weight, is_backup, max_connections: source.max_connections })
    };
    services.iter().filter_map(member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_records_does_not_matter() {
        let service = |(priority, target, port, weight): (u16, &str, u16, u16)| SrvRecord {
            priority,
            weight,
            port,
            target: target.to_owned(),
        };
        let sorted =
            [(1, "b", 1, 1), (2, "a", 1, 2), (2, "a", 1, 3), (2, "a", 2, 1), (2, "b", 1, 1)];
        let expected = sorted.map(service);
        for rotation in 0..sorted.len() {
            let mut found = expected.clone();
            found.rotate_left(rotation);
            sort(&mut found);
            assert_eq!(found, expected, "{rotation}");
        }
    }

    #[test]
    fn priorities_become_backups_and_weights_stay() {
        let source = UpstreamMember::parse_list(
            "srv+http://_http._tcp.example/app max_connections=9",
            crate::url::upstream_url::UpstreamUrl::parse_member,
        );
        let service = |priority, weight, port, target: &str| SrvRecord {
            priority,
            weight,
            port,
            target: target.to_owned(),
        };
        let services =
            [service(20, 5, 80, "c"), service(10, 3, 8080, "a"), service(10, 0, 80, "b.example")];
        let members = members_of(&source.unwrap()[0], &services);
        let shown: Vec<_> = members.iter().map(ToString::to_string).collect();
        let expected = [
            "http://c:80/app weight=5 backup max_connections=9",
            "http://a:8080/app weight=3 max_connections=9",
            "http://b.example:80/app max_connections=9",
        ];
        assert_eq!(shown, expected);
    }
}
