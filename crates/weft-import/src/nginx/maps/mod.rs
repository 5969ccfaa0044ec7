//! Values by another value: `map`, `geo` and `split_clients`.

mod by_media_type; // `map` over the media type of the response
mod map; // keys and values of `map`
mod networks; // `geo`
mod table; // the tables of `[maps]`
mod value_tables; // all tables of a configuration

pub(super) use by_media_type::ValuesByMediaType;
pub(super) use map::{Map, MapKey, SERVER_NAME, is_true};
pub(super) use table::early_template;
pub(super) use value_tables::ValueTables;
