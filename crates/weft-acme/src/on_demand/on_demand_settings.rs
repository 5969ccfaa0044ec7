//! Settings of orders on demand.

use std::fmt;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::name::{Name, NamePattern};

/// Certificates on demand: a handshake with a name without certificate waits until the certificate
/// is ordered. Nothing is ordered without permission. At most 1,024 handshakes wait, and at most 4
/// orders on demand are in progress. One client has half of each, and of the rate.
#[derive(Clone, Debug)]
pub struct OnDemandSettings {
    /// Names that are permitted.
    ///
    /// Default empty.
    pub patterns: Vec<NamePattern>,

    /// Decides about all other names.
    ///
    /// Default `None`: all other names are refused.
    pub permission: Option<Arc<dyn OrderPermission>>,

    /// Maximum rate of orders.
    ///
    /// Default 10 in a minute.
    pub rate: OrderRate,

    /// Maximum number of names in the store, apart from
    /// [`AcmeSettings::names`](crate::AcmeSettings). If there are more, names without a valid
    /// certificate are removed.
    ///
    /// Default 1,000.
    pub max_names: usize,

    /// Time limit for the wait of a handshake, and for a decision about a name. A handshake also
    /// ends after [`head_timeout`](weft::Settings::head_timeout).
    ///
    /// Default 10 s.
    pub timeout: Duration,
}

/// Decides about orders on demand.
pub trait OrderPermission: fmt::Debug + Send + Sync + 'static {
    /// Returns true if a certificate for `name` may be ordered or renewed. If not, the name stays
    /// refused for a minute. At most 16 of these futures are in progress.
    ///
    /// An error is the reason, and fails the handshake.
    fn is_permitted<'a>(&'a self, name: &'a Name) -> PermissionFuture<'a>;
}

/// Future of [`OrderPermission::is_permitted`].
pub type PermissionFuture<'a> = Pin<Box<dyn Future<Output = Result<bool, String>> + Send + 'a>>;

/// Maximum number of orders that begin within a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderRate {
    /// Number of orders.
    pub orders: NonZeroU32,
    /// Period in which the orders begin.
    pub period: Duration,
}

impl Default for OnDemandSettings {
    fn default() -> OnDemandSettings {
        let orders = NonZeroU32::new(10).expect("it is not zero");
        OnDemandSettings {
            patterns: Vec::new(),
            permission: None,
            rate: OrderRate { orders, period: Duration::from_secs(60) },
            max_names: 1_000,
            timeout: Duration::from_secs(10),
        }
    }
}

/// Shows the rate as `10/m`, or as `10 in 5 s`.
impl fmt::Display for OrderRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let orders = self.orders;
        match self.period.as_secs_f64() {
            1.0 => write!(f, "{orders}/s"),
            60.0 => write!(f, "{orders}/m"),
            3_600.0 => write!(f, "{orders}/h"),
            seconds => write!(f, "{orders} in {seconds} s"),
        }
    }
}

impl OnDemandSettings {
    pub(super) fn has_pattern_for(&self, name: &Name) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(name.as_str()))
    }

    /// Returns true if a certificate for `name` may get permission.
    pub(crate) fn may_permit(&self, name: &Name) -> bool {
        self.permission.is_some() || self.has_pattern_for(name)
    }
}
