//! Names and values of fields.

/// Checks the name of a field.
pub(super) fn check_name(name: &str) -> Result<&str, String> {
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    match !name.is_empty() && name.len() <= 256 && name.bytes().all(is_token) {
        true if !name.starts_with(['+', '?']) => Ok(name),
        _ => Err(format!("the name of a field {name:?} is invalid")),
    }
}

/// Checks the value of a field.
pub(super) fn check_value(value: &str) -> Result<&str, String> {
    match value.len() <= 4_096 && !value.chars().any(char::is_control) {
        true => Ok(value),
        false => Err("the value of a field has a control character or over 4 KiB".to_owned()),
    }
}
