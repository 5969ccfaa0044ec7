//! Tables of objects: each `NAME.yaml` in `tests/plans` has objects, and `NAME.toml` the text of
//! the configuration, with pools, statuses and events as comments. `WEFT_WRITE_PLANS=1` writes the
//! latter.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use weft_kubernetes::{ClusterObjects, ClusterPlan, Condition, Kind, ObjectStatus, PlanSettings};

/// Reads the documents of a file. A document `kind: Settings` changes the settings.
fn read(text: &str) -> (ClusterObjects, PlanSettings) {
    let mut objects = ClusterObjects::default();
    let mut settings = PlanSettings::default();
    settings.addresses = vec!["192.0.2.1".to_owned()];
    for document in text.split("\n---\n") {
        let value: Value = serde_saphyr::from_str(document).expect("the document is YAML");
        let kind = value["kind"].as_str().expect("the document has a kind");
        if kind == "Settings" {
            let number = |name: &str, default| value[name].as_u64().map_or(default, |n| n as usize);
            settings.max_routes = number("maxRoutes", settings.max_routes);
            settings.max_routes_per_namespace =
                number("maxRoutesPerNamespace", settings.max_routes_per_namespace);
            settings.nginx_class = value["nginxClass"] == true;
            continue;
        }
        objects.set(Kind::find(kind).expect("the kind is known"), value);
    }
    (objects, settings)
}

fn show_conditions(conditions: &[Condition], shown: &mut String) {
    for Condition { kind, is_true, reason, message } in conditions {
        // Conditions that are as they should be, and say nothing else.
        let is_usual = *is_true && matches!(*kind, "Programmed" | "ResolvedRefs")
            || !is_true && *kind == "Conflicted";
        if !is_usual {
            let _ = writeln!(shown, "#   {kind}={is_true} {reason}: {message}");
        }
    }
}

fn show(plan: &ClusterPlan, objects: &ClusterObjects) -> String {
    let mut shown = plan.text.clone();
    shown.push('\n');
    for (name, pool) in &plan.pools {
        let endpoints = pool.endpoints(objects).into_iter();
        let endpoints = endpoints.map(|it| format!(" {}={}", it.address, it.weight));
        let _ = writeln!(shown, "# {name}:{}", endpoints.collect::<String>());
    }
    for name in plan.identities.keys() {
        let _ = writeln!(shown, "# certificate for {name}");
    }
    for (object, status) in &plan.statuses {
        let _ = writeln!(shown, "# {object}");
        match status {
            ObjectStatus::GatewayClass(conditions) => show_conditions(conditions, &mut shown),
            ObjectStatus::Gateway(status) => {
                show_conditions(&status.conditions, &mut shown);
                for listener in &status.listeners {
                    let (name, count) = (&listener.name, listener.attached_routes);
                    let kinds = listener.supported_kinds.join(",");
                    let _ = writeln!(shown, "#  listener {name}: {count} routes, kinds {kinds}");
                    show_conditions(&listener.conditions, &mut shown);
                }
            }
            ObjectStatus::Route(parents) => {
                for parent in parents {
                    let section = parent.parent["sectionName"].as_str().unwrap_or_default();
                    let name = parent.parent["name"].as_str().unwrap_or_default();
                    let _ = writeln!(shown, "#  parent {name} {section}");
                    show_conditions(&parent.conditions, &mut shown);
                }
            }
            ObjectStatus::Ingress(addresses) => {
                let _ = writeln!(shown, "#  {}", addresses.join(" "));
            }
        }
    }
    for event in &plan.events {
        let _ = writeln!(shown, "# event {}: {} {}", event.object, event.reason, event.message);
    }
    shown.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

fn tables() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|it| it == "yaml")).collect();
    files.sort();
    files
}

#[test]
fn plans_are_as_in_the_tables() {
    let mut wrong = Vec::new();
    for path in tables() {
        let (objects, settings) = read(&std::fs::read_to_string(&path).unwrap());
        let shown = show(&ClusterPlan::new(&objects, &settings, &BTreeMap::new()), &objects);
        let expected = path.with_extension("toml");
        if std::env::var_os("WEFT_WRITE_PLANS").is_some() {
            std::fs::write(&expected, &shown).unwrap();
        }
        if std::fs::read_to_string(&expected).unwrap_or_default() != shown {
            wrong.push(format!("{}:\n{shown}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The order of the objects, which the API server does not define, makes no difference.
#[test]
fn plans_do_not_depend_on_the_order_of_objects() {
    for path in tables() {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut documents: Vec<_> = text.trim_end().split("\n---\n").collect();
        let (objects, settings) = read(&text);
        let plan = ClusterPlan::new(&objects, &settings, &BTreeMap::new());
        documents.reverse();
        let (objects, settings) = read(&documents.join("\n---\n"));
        let reversed = ClusterPlan::new(&objects, &settings, &BTreeMap::new());
        assert_eq!(plan.text, reversed.text, "{}", path.display());
        assert_eq!(plan.statuses, reversed.statuses, "{}", path.display());
    }
}

#[test]
fn a_refused_object_is_left_out_and_its_status_has_the_reason() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans/http_route.yaml");
    let (objects, settings) = read(&std::fs::read_to_string(path).unwrap());
    let plan = ClusterPlan::new(&objects, &settings, &BTreeMap::new());
    let line = plan.text.lines().position(|line| line.contains("/only-here")).unwrap() + 1;
    let owner = plan.owner_of_line(line).unwrap().clone();
    assert_eq!(owner.to_string(), "HTTPRoute team/other");
    let refused = BTreeMap::from([(owner.clone(), "it is refused".to_owned())]);
    let without = ClusterPlan::new(&objects, &settings, &refused);
    assert!(!without.text.contains("/only-here"));
    assert!(without.text.contains("/api"));
    let Some(ObjectStatus::Route(parents)) = without.statuses.get(&owner) else { panic!() };
    let accepted = &parents[0].conditions[0];
    assert_eq!((accepted.is_true, &*accepted.message), (false, "it is refused"));
}
