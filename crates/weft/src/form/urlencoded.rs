//! Urlencoded forms (WHATWG URL §5): lists of fields, and forms deserialized with serde.

use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind, Result};
use crate::form::rejection::{MAX_ALL, MAX_FIELD, MAX_FIELDS, expect_type, too_large};
use crate::form::settings::FormSettings;
use crate::message::body::Body;
use crate::message::request_head::RequestHead;

const MEDIA_TYPE: &str = "application/x-www-form-urlencoded";

/// Decoded fields of a form, in the order received. Invalid UTF-8 is replaced by U+FFFD.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(Vec<(String, String)>);

impl Fields {
    /// Returns the value of the first field with this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(n, _)| *n == name).map(|(_, value)| value)
    }

    /// Returns the values of all fields with this name, in order.
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.iter().filter(move |(n, _)| *n == name).map(|(_, value)| value)
    }

    /// Iterates over name and value of each field, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl FormSettings {
    /// Reads the fields of a urlencoded form.
    ///
    /// ```
    /// # use weft::{Request, Response, form};
    /// async fn colors(request: Request) -> weft::Result<Response> {
    ///     let fields = form::fields(request).await?;
    ///     let colors: Vec<_> = fields.get_all("color").collect();
    ///     Ok(Response::text(colors.join(", ")))
    /// }
    /// # let request = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 22\r\n\
    /// #     Content-Type: application/x-www-form-urlencoded\r\n\r\ncolor=red&a&color=blue";
    /// # weft::testing::call(colors, weft::testing::request(request)).assert_text("red, blue");
    /// ```
    ///
    /// # Errors
    /// [`MediaTypeUnsupported`](ErrorKind::MediaTypeUnsupported) if the request has another
    /// `Content-Type`, [`BodyTooLarge`](ErrorKind::BodyTooLarge) if a limit is exceeded, and those
    /// of [`Body::chunk`].
    pub async fn fields(&self, request: impl Into<(RequestHead, Body)>) -> Result<Fields> {
        let text = self.collect(request.into()).await?;
        Ok(Fields(form_urlencoded::parse(&text).into_owned().collect()))
    }

    /// Reads a urlencoded form and deserializes it with serde. A name that occurs several times can
    /// be deserialized as a `Vec`.
    ///
    /// # Errors
    /// [`Malformed`](ErrorKind::Malformed) if the form cannot be deserialized, and the errors of
    /// [`fields`](FormSettings::fields).
    pub async fn read<T: DeserializeOwned>(
        &self,
        request: impl Into<(RequestHead, Body)>,
    ) -> Result<T> {
        let text = self.collect(request.into()).await?;
        serde_html_form::from_bytes(&text).map_err(|error| {
            let reason = format!("cannot deserialize the form: {error}");
            Error::new(ErrorKind::Malformed, reason)
        })
    }

    /// Reads the text of a form and checks the limits.
    async fn collect(&self, (head, mut body): (RequestHead, Body)) -> Result<Bytes> {
        expect_type(&head, MEDIA_TYPE)?;
        if let Some(bytes) = self.max_bytes {
            body.set_limit(bytes);
        }
        let text = body.collect_within(self.max_all_fields_bytes, MAX_ALL).await?;
        let mut fields = 0;
        for field in text.split(|&b| b == b'&').filter(|field| !field.is_empty()) {
            fields += 1;
            if field.len() > self.max_field_bytes {
                let max = self.max_field_bytes;
                return Err(too_large(MAX_FIELD, format!("a field is larger than {max} bytes")));
            }
        }
        if fields > self.max_fields {
            return Err(too_large(MAX_FIELDS, format!("more than {} fields", self.max_fields)));
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::request::Request;
    use crate::message::response::Response;
    use crate::testing::{call, request};

    fn post(content_type: &str, text: &str) -> Request {
        let length = text.len();
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n");
        request(format!("{head}Content-Type: {content_type}\r\n\r\n{text}"))
    }

    fn limited() -> FormSettings {
        FormSettings {
            max_fields: 3,
            max_field_bytes: 12,
            max_all_fields_bytes: 30,
            ..FormSettings::default()
        }
    }

    async fn show_fields(request: Request) -> Result<Response> {
        let fields = limited().fields(request).await?;
        Ok(Response::text(format!("{:?}", fields.iter().collect::<Vec<_>>())))
    }

    #[test]
    fn reads_fields_within_limits() {
        for (text, status, expected) in [
            ("", 200, "[]"),
            ("a=1", 200, r#"[("a", "1")]"#),
            ("b=1&a=2&b", 200, r#"[("b", "1"), ("a", "2"), ("b", "")]"#),
            ("&&a=1&&", 200, r#"[("a", "1")]"#),
            ("a+b=%26+%3d", 200, r#"[("a b", "& =")]"#),
            ("a=%C3%AD%ff", 200, r#"[("a", "í\u{fffd}")]"#),
            ("a=1234567890", 200, r#"[("a", "1234567890")]"#),
            ("a=12345678901", 413, "413 Payload Too Large: a field is larger than 12 bytes\n"),
            ("a&b&c", 200, r#"[("a", ""), ("b", ""), ("c", "")]"#),
            ("a&b&c&d", 413, "413 Payload Too Large: more than 3 fields\n"),
            (
                "a=1234567890&b=1234567890&c=12",
                200,
                r#"[("a", "1234567890"), ("b", "1234567890"), ("c", "12")]"#,
            ),
            (
                "a=1234567890&b=1234567890&c=123",
                413,
                "413 Payload Too Large: the body is larger than 30 bytes\n",
            ),
        ] {
            let response = call(show_fields, post(MEDIA_TYPE, text));
            assert_eq!(response.status, status, "{text}");
            response.assert_text(&expected.replace("\\u{fffd}", "\u{fffd}"));
        }
    }

    #[test]
    fn rejects_other_media_types() {
        for (content_type, found) in [
            ("application/x-www-form-urlencoded; charset=utf-8", None),
            ("Application/X-WWW-Form-Urlencoded", None),
            ("application/json", Some("application/json")),
            ("multipart/form-data; boundary=a", Some("multipart/form-data")),
            ("application/x-www-form-urlencoded2", Some("application/x-www-form-urlencoded2")),
            ("", Some("nothing")),
        ] {
            let response = call(show_fields, post(content_type, "a=1"));
            let Some(found) = found else {
                assert_eq!(response.status, 200, "{content_type}");
                continue;
            };
            assert_eq!(response.status, 415);
            response.assert_text(&format!(
                "415 Unsupported Media Type: expected a form as {MEDIA_TYPE}, and Content-Type says {found}\n"
            ));
        }
    }

    #[test]
    fn deserializes_forms_with_serde() {
        #[derive(serde::Deserialize, Debug)]
        #[allow(dead_code, reason = "used by Debug")]
        struct Order {
            item: String,
            count: u8,
            #[serde(default)]
            with: Vec<String>,
        }
        async fn order(request: Request) -> Result<Response> {
            let order: Order = FormSettings::default().read(request).await?;
            Ok(Response::text(format!("{order:?}")))
        }
        for (text, status, expected) in [
            (
                "item=t%20ea&count=2&with=milk&other=x&with=sugar",
                200,
                r#"Order { item: "t ea", count: 2, with: ["milk", "sugar"] }"#,
            ),
            ("count=2", 400, "missing field `item`"),
            ("item=a&count=256", 400, "number too large"),
            ("item=a&item=b&count=1", 400, "unsupported value"),
        ] {
            let response = call(order, post(MEDIA_TYPE, text));
            assert_eq!(response.status, status, "{text}");
            let body = String::from_utf8_lossy(&response.body);
            assert!(body.contains(expected), "{text}: {body}");
        }
    }
}
