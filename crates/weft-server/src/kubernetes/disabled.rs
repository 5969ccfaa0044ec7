//! `weft kubernetes` in a program without the feature `kubernetes`.

use std::sync::Arc;

use weft_config::Problem;

use crate::cli::args::{Args, Failure};
use crate::cli::kubernetes::KubernetesOptions;
use crate::config_change::ChangeSender;

/// Reports that the program lacks the feature.
///
/// # Errors
/// Always.
pub(crate) fn start(
    args: Args,
    options: &KubernetesOptions,
) -> Result<(Arc<Args>, fn(ChangeSender)), Failure> {
    drop(args);
    let message = format!(
        "cannot serve the class of {}: this program was built without the feature `kubernetes`",
        options.controller.as_deref().unwrap_or("weft/gateway")
    );
    Err(Failure::Other(vec![Problem::without_location(message)]))
}
