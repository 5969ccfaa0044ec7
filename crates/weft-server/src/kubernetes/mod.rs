//! `weft kubernetes`: the objects of a cluster are the configuration of this process.
//!
//! A thread watches the cluster. Its first plan starts the server, so that a process is ready with
//! all routes. Later plans reload it; endpoints and certificates change without a reload.

mod target; // applies plans to this process

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use tokio::runtime::Builder;
use tokio::sync::watch;
use weft::tls::NamedIdentities;
use weft_config::Problem;
use weft_kubernetes::{ControllerSettings, POOL_DOMAIN};
use weft_upstream::LocalServices;

use self::target::ProgramTarget;
use crate::base::sys;
use crate::cli::args::{Args, Failure};
use crate::cli::kubernetes::KubernetesOptions;
use crate::config_change::ChangeSender;
use crate::logs::print_error;
use crate::sections::provided::ProvidedParts;

/// Waits for the first plan of a cluster. Later plans reload the server, once the returned function
/// was called with the sender of changes.
///
/// # Errors
/// If the API server has no address.
pub(crate) fn start(
    mut args: Args,
    options: &KubernetesOptions,
) -> Result<(Arc<Args>, impl FnOnce(ChangeSender) + use<>), Failure> {
    let problem = |message| Failure::Other(vec![Problem::without_location(message)]);
    let provided = ProvidedParts {
        identities: Some(NamedIdentities::default()),
        services: LocalServices::new(POOL_DOMAIN),
    };
    args.generate(provided.clone());
    let args = Arc::new(args);
    let (first, first_plan) = sync_channel(1);
    let (started, changes) = watch::channel(None);
    let target = ProgramTarget::new(args.clone(), provided, first.clone(), changes);
    let settings = settings(options).map_err(problem)?;
    let thread = std::thread::Builder::new().name("weft-kubernetes".to_owned());
    let controller = move || {
        let runtime = Builder::new_current_thread().enable_all().build();
        let result = match runtime {
            Ok(runtime) => runtime.block_on(weft_kubernetes::run(settings, target)),
            Err(error) => Err(error.to_string()),
        };
        // The receiver is gone if the server has started.
        if let Err(message) = result {
            let _ = first.send(Err(message));
        }
    };
    thread.spawn(controller).map_err(|error| problem(error.to_string()))?;
    print_error("waiting for the objects of the cluster");
    wait(&first_plan).map_err(problem)?;
    Ok((args, move |changes| drop(started.send_replace(Some(changes)))))
}

/// Waits for the first plan.
fn wait(first_plan: &Receiver<Result<(), String>>) -> Result<(), String> {
    first_plan.recv().unwrap_or_else(|_| Err("the cluster cannot be watched".to_owned()))
}

fn settings(options: &KubernetesOptions) -> Result<ControllerSettings, String> {
    let mut settings = ControllerSettings::new(identity());
    settings.kubeconfig.clone_from(&options.kubeconfig);
    if let Some((namespace, name)) = options.lease.clone() {
        (settings.lease_namespace, settings.lease_name) = (namespace, name);
    }
    let plan = &mut settings.plan;
    if let Some(controller) = &options.controller {
        if !controller.contains('/') {
            return Err(format!("--controller is DOMAIN/NAME, not {controller}"));
        }
        plan.gateway_controller.clone_from(controller);
    }
    plan.addresses.clone_from(&options.addresses);
    plan.nginx_class = options.nginx_class;
    if let Some(offset) = options.port_offset {
        plan.port_offset = offset;
    }
    if !options.secret_namespaces.is_empty() {
        plan.secret_namespaces = Some(options.secret_namespaces.iter().cloned().collect());
    }
    Ok(settings)
}

/// Returns the name of this process in the lease: of its pod, with the process ID, which differs
/// after a restart.
fn identity() -> String {
    format!("{}-{}", sys::host_name(), std::process::id())
}
