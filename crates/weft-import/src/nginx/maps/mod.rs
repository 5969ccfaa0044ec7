//! Values by another value: `map`, `geo` and `split_clients`.

mod map; // keys and values of `map`
mod networks; // `geo`
mod table; // the tables of `[maps]`
mod value_tables; // all tables of a configuration

pub(super) use map::{Map, MapKey, SERVER_NAME, is_true};
pub(super) use table::early_template;
pub(super) use value_tables::ValueTables;
