//! What others may publish to a record's subject.

use async_trait::async_trait;
use lease_conformance::{FixtureError, Spoil, Spoiling};
use lease_core::Key;

use crate::one::One;

/// A text, and what it is in base64, as the server gives it back.
fn text(how: Spoil) -> Option<(&'static str, &'static str)> {
    match how {
        Spoil::ForeignText => Some(("not a record", "bm90IGEgcmVjb3Jk")),
        Spoil::Torn => Some((r#"{"leases":1,"mark":3}"#, "eyJsZWFzZXMiOjEsIm1hcmsiOjN9")),
        // A message has no type.
        _ => None,
    }
}

fn subject(key: &Key) -> String {
    let hex = |text: &str| -> String { text.bytes().map(|b| format!("{b:02x}")).collect() };
    format!("leases.own.{}.k.{}", hex(crate::QUEUE), hex(key.as_str()))
}

#[async_trait]
impl Spoiling for One {
    async fn spoil(&self, key: &Key, how: Spoil) -> Result<bool, FixtureError> {
        let Some((text, _)) = text(how) else {
            return Ok(false);
        };
        self.server.request(&subject(key), text)?;
        Ok(true)
    }

    async fn spoiled_is_intact(&self, key: &Key, how: Spoil) -> Result<bool, FixtureError> {
        let ask = format!(r#"{{"last_by_subj":"{}"}}"#, subject(key));
        let said = self
            .server
            .request("$JS.API.STREAM.MSG.GET.leases-owners", &ask)?;
        Ok(text(how).is_some_and(|(_, data)| said.contains(&format!("\"data\":\"{data}\""))))
    }
}
