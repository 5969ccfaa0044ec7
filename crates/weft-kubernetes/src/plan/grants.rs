//! References to other namespaces, which a ReferenceGrant has to permit.

use super::planner::Planner;
use crate::objects::Kind;
use crate::objects::kind::ApiPlace;

/// An object that refers to another one.
#[derive(Clone, Copy)]
pub(super) struct Referrer<'a> {
    pub(super) kind: Kind,
    pub(super) namespace: &'a str,
}

impl Planner<'_> {
    /// Returns true if an object may refer to an object of this kind, namespace and name.
    pub(super) fn permits_reference(
        &self,
        from: Referrer<'_>,
        kind: Kind,
        namespace: &str,
        name: &str,
    ) -> bool {
        if from.namespace == namespace {
            return true;
        }
        let is =
            |group: &str, named: &str, place: ApiPlace| group == place.group && named == place.kind;
        let grants = self.objects.reference_grants.iter();
        grants.filter(|(grant, _)| grant.namespace == namespace).any(|(_, grant)| {
            let of_referrer = grant.spec.from.iter().any(|it| {
                it.namespace == from.namespace && is(&it.group, &it.kind, from.kind.place())
            });
            let of_target = grant.spec.to.iter().any(|it| {
                is(&it.group, &it.kind, kind.place())
                    && it.name.as_deref().is_none_or(|it| it.is_empty() || it == name)
            });
            of_referrer && of_target
        })
    }
}
