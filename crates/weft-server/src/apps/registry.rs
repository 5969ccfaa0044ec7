//! The list of forms as types: one enum for their values, one for their applications.

use std::path::Path;

use weft_config::schema::{Properties, properties};
use weft_config::{ConfigResult, ReferenceEntry, find, reference};

use super::Form;
use super::form::{FormTable, PathKeys, RouteForm};

/// A form of route, without values.
pub(crate) struct FormType {
    /// Name of the key that selects the form.
    pub(crate) name: fn() -> &'static str,
    /// Keys for the path of requests.
    pub(crate) path_keys: fn() -> PathKeys,
    /// Sign, placeholder and subject of the operator.
    pub(crate) operator: fn() -> Option<[&'static str; 3]>,
    /// Parses a target behind the operator. A relative path is resolved against the directory.
    pub(crate) parse: fn(&str, &Path) -> Result<Form, String>,
    /// Returns true for the name of a key of the form.
    pub(crate) has_key: fn(&str) -> bool,
    /// Reads the form from the table of a route.
    pub(crate) read: fn(&mut FormTable<'_, '_>) -> ConfigResult<Form>,
    /// Returns the keys for the reference documentation.
    pub(crate) reference: fn() -> Vec<ReferenceEntry>,
    /// Returns the JSON schemas of the keys, with the keys for the path.
    pub(crate) properties: fn() -> Properties,
}

impl FormType {
    pub(super) const fn of<F: RouteForm + Default + Into<Form> + 'static>() -> FormType {
        FormType {
            name: F::name,
            path_keys: F::path_keys,
            operator: || F::operator().map(|it| [it.sign, it.argument, it.subject]),
            parse: |text, base| {
                let operator = F::operator().ok_or("the form has no operator")?;
                (operator.parse)(text, base).map(F::into)
            },
            has_key: |name| find(&F::keys(), name).is_some(),
            read: |table| F::read(table).map(F::into),
            reference: || reference(&F::keys()[1..], &F::defaults()),
            properties: || {
                let mut all = F::properties();
                all.extend(properties(F::path_keys().keys()));
                all
            },
        }
    }
}

/// Declares the forms: their modules, the enums of their values and of their applications, and
/// their list.
macro_rules! forms {
    ($($(#[$doc:meta])* mod $module:ident: $($name:ident($form:ident)),+;)*) => {
        $($(#[$doc])* mod $module;)*

        /// The form of a route, with its values.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Form {
            $($($name(Box<$module::$form>),)+)*
        }

        /// Application of a route.
        pub(crate) enum App {
            $($($name(<$module::$form as RouteForm>::App),)+)*
        }

        /// All forms.
        pub(crate) static FORMS: &[FormType] =
            &[$($(FormType::of::<$module::$form>(),)+)*];

        $($(impl From<$module::$form> for Form {
            fn from(form: $module::$form) -> Form {
                Form::$name(Box::new(form))
            }
        })+)*

        impl Form {
            /// Opens the application.
            pub(crate) fn open(&self, context: &OpenContext<'_>) -> Result<App, String> {
                match self {
                    $($(Form::$name(form) => form.open(context).map(App::$name),)+)*
                }
            }

            /// Formats the keys as in a table.
            pub(crate) fn print(&self) -> Vec<String> {
                match self {
                    $($(Form::$name(form) => {
                        print_entries($module::$form::keys(), &**form, &$module::$form::defaults())
                    })+)*
                }
            }
        }

        impl Deref for Form {
            type Target = dyn RouteForm;

            fn deref(&self) -> &(dyn RouteForm + 'static) {
                match self {
                    $($(Form::$name(form) => &**form,)+)*
                }
            }
        }

        impl DerefMut for Form {
            fn deref_mut(&mut self) -> &mut (dyn RouteForm + 'static) {
                match self {
                    $($(Form::$name(form) => &mut **form,)+)*
                }
            }
        }

        impl App {
            /// See [`RouteApp::for_worker`].
            pub(crate) fn for_worker(&self, has_metrics: bool) -> App {
                match self {
                    $($(App::$name(app) => App::$name(app.for_worker(has_metrics)),)+)*
                }
            }

            /// See [`RouteApp::call`]. Not by [`Deref`]: a call by reference to the type costs
            /// more.
            pub(crate) fn call(&self, request: Request) -> ResponseFuture {
                match self {
                    $($(App::$name(app) => app.call(request),)+)*
                }
            }
        }

        impl Deref for App {
            type Target = dyn RouteApp;

            fn deref(&self) -> &(dyn RouteApp + 'static) {
                match self {
                    $($(App::$name(app) => app,)+)*
                }
            }
        }
    };
}

pub(super) use forms;
