//! Comma-separated lists in the values of fields (RFC 9110 §5.6.1). Pure.

/// Returns the members of one comma-separated list, without empty ones. Quoted strings are not
/// supported: the lists parsed with this function have none.
///
/// ```
/// use weft_proto::list::list_members;
///
/// let members: Vec<_> = list_members(b"gzip, , br").collect();
/// assert_eq!(members, [&b"gzip"[..], b"br"]);
/// ```
pub fn list_members(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|&b| b == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}
