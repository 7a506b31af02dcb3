//! Arrays for `json_each`: one bound value for any number of rows.

use std::fmt::Write;

/// Writes a JSON array, one flat item or one inner array at a time.
#[derive(Debug)]
pub(crate) struct Array(String);

impl Array {
    pub(crate) fn new() -> Self {
        Self(String::from("["))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.len() == 1
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.separate();
        self.0.push('"');
        for c in text.chars() {
            match c {
                '"' | '\\' => {
                    self.0.push('\\');
                    self.0.push(c);
                }
                c if u32::from(c) < 0x20 => {
                    // Writing into a String cannot fail.
                    let _ = write!(self.0, "\\u{:04x}", u32::from(c));
                }
                c => self.0.push(c),
            }
        }
        self.0.push('"');
        self
    }

    pub(crate) fn number(&mut self, number: i64) -> &mut Self {
        self.separate();
        let _ = write!(self.0, "{number}");
        self
    }

    pub(crate) fn null(&mut self) -> &mut Self {
        self.separate();
        self.0.push_str("null");
        self
    }

    pub(crate) fn array(&mut self, array: Self) -> &mut Self {
        self.separate();
        self.0.push_str(&array.finish());
        self
    }

    pub(crate) fn finish(mut self) -> String {
        self.0.push(']');
        self.0
    }

    fn separate(&mut self) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_numbers_are_exact() {
        let mut inner = Array::new();
        inner.number(-(1 << 53)).null();
        let mut array = Array::new();
        assert!(array.is_empty());
        array.text("a\"b\\c\u{1}é").array(inner).text("");
        assert_eq!(
            array.finish(),
            r#"["a\"b\\c\u0001é",[-9007199254740992,null],""]"#
        );
    }
}
