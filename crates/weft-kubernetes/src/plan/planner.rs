//! A plan that is being made.

use std::collections::BTreeMap;

use super::cluster_plan::ClusterPlan;
use super::sections::Sections;
use super::settings::PlanSettings;
use crate::objects::{ClusterObjects, ObjectRef};

/// A plan that is being made.
pub(super) struct Planner<'a> {
    pub(super) objects: &'a ClusterObjects,
    pub(super) settings: &'a PlanSettings,
    pub(super) refused: &'a BTreeMap<ObjectRef, String>,
    pub(super) sections: Sections,
    pub(super) plan: ClusterPlan,
}

impl<'a> Planner<'a> {
    pub(super) fn new(
        objects: &'a ClusterObjects,
        settings: &'a PlanSettings,
        refused: &'a BTreeMap<ObjectRef, String>,
    ) -> Planner<'a> {
        let sections = Sections::new(settings);
        Planner { objects, settings, refused, sections, plan: ClusterPlan::default() }
    }
}
