//! Upgrades on their way through tower services.

use std::sync::{Arc, Mutex, PoisonError};

use crate::message::upgrade::Upgrade;

/// An [`Upgrade`] in the extensions of an [`http::Response`], which must be `Clone`: it can be
/// taken out once.
#[derive(Clone, Debug)]
pub(super) struct UpgradeExtension(Arc<Mutex<Option<Upgrade>>>);

impl UpgradeExtension {
    pub(super) fn new(upgrade: Upgrade) -> UpgradeExtension {
        UpgradeExtension(Arc::new(Mutex::new(Some(upgrade))))
    }

    pub(super) fn take(&self) -> Option<Upgrade> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
