//! Values that the system cannot apply. They are errors, because a server without them would differ
//! from its configuration.

use weft::Settings;
use weft_config::Problem;

use crate::base::sys::SystemFeatures;
use crate::sections::top::TopConfig;

/// Returns an error for each value that requires a missing feature.
pub(crate) fn unsupported(
    top: &TopConfig,
    limits: &Settings,
    system: &SystemFeatures,
) -> Vec<Problem> {
    let values = [
        (
            top.defer_accept && !system.defer_accept,
            "`defer_accept` requires TCP_DEFER_ACCEPT, which this system does not have: remove the \
             key, or set it to false",
        ),
        (
            limits.reuse_port && !system.reuse_port,
            "`reuse_port` requires a kernel that distributes connections over several sockets; on \
             this system one of them would get all: remove the key, and the workers share a socket",
        ),
        (
            top.run_as.user.is_some() && !system.groups,
            "`user` requires a process that can change its groups, which this system does not \
             permit: remove the key, and let a service manager start weft as that user",
        ),
    ];
    let missing = values.into_iter().filter(|(is_missing, _)| *is_missing);
    missing.map(|(_, message)| Problem::without_location(message)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: SystemFeatures = SystemFeatures {
        defer_accept: true,
        reuse_port: true,
        groups: true,
        control_socket: true,
        journald: true,
    };

    const NONE: SystemFeatures = SystemFeatures {
        defer_accept: false,
        reuse_port: false,
        groups: false,
        control_socket: false,
        journald: false,
    };

    /// Returns the keys in the errors of a system without features. A system with all features has
    /// no error.
    fn refused_keys(change: impl Fn(&mut TopConfig, &mut Settings)) -> Vec<String> {
        let (mut top, mut limits) = (TopConfig::default(), Settings::default());
        top.defer_accept = false;
        change(&mut top, &mut limits);
        assert!(unsupported(&top, &limits, &ALL).is_empty());
        let problems = unsupported(&top, &limits, &NONE);
        let key = |problem: &Problem| problem.message.split('`').nth(1).unwrap().to_owned();
        problems.iter().map(key).collect()
    }

    #[test]
    fn values_without_their_feature_are_refused() {
        assert!(refused_keys(|_, _| {}).is_empty());
        assert_eq!(refused_keys(|top, _| top.defer_accept = true), ["defer_accept"]);
        assert_eq!(refused_keys(|_, limits| limits.reuse_port = true), ["reuse_port"]);
        assert_eq!(refused_keys(|top, _| top.run_as.user = Some("www".into())), ["user"]);
    }
}
