//! Names in the database: quoted, so that any schema and prefix will do.

use lease_core::InvalidInput;

/// What the longest of our names adds to the prefix.
const LONGEST_SUFFIX: usize = "tombstones_until".len();
/// Postgres cuts longer identifiers off, in silence.
const LONGEST_NAME: usize = 63;

/// Where the store's tables are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    schema: String,
    prefix: String,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            schema: "public".to_owned(),
            prefix: "lease_".to_owned(),
        }
    }
}

impl Names {
    pub(crate) fn with_schema(self, schema: &str) -> Result<Self, InvalidInput> {
        if schema.is_empty() || schema.len() > LONGEST_NAME || schema.contains(char::is_control) {
            return Err(InvalidInput::Url(format!(
                "a schema's name has 1 to {LONGEST_NAME} bytes and no control characters"
            )));
        }
        Ok(Self {
            schema: schema.to_owned(),
            ..self
        })
    }

    pub(crate) fn with_prefix(self, prefix: &str) -> Result<Self, InvalidInput> {
        let longest = LONGEST_NAME - LONGEST_SUFFIX;
        if prefix.len() > longest || prefix.contains(char::is_control) {
            return Err(InvalidInput::Url(format!(
                "a table prefix has up to {longest} bytes and no control characters"
            )));
        }
        Ok(Self {
            prefix: prefix.to_owned(),
            ..self
        })
    }

    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// The bare name of one of the tables.
    pub(crate) fn bare(&self, suffix: &str) -> String {
        format!("{}{suffix}", self.prefix)
    }

    /// A name of ours without its schema, quoted.
    pub(crate) fn local(&self, suffix: &str) -> String {
        quoted(&self.bare(suffix))
    }

    /// A name of ours with its schema, quoted.
    pub(crate) fn full(&self, suffix: &str) -> String {
        format!("{}.{}", quoted(&self.schema), self.local(suffix))
    }

    /// What a function's body, which has these names in it, stands between.
    pub(crate) fn quote(&self) -> String {
        let mut quote = "$leases$".to_owned();
        while self.schema.contains(&quote) || self.prefix.contains(&quote) {
            quote.insert_str(1, "the_");
        }
        quote
    }

    /// The channel on which freed keys are told of. Two stores that share it by
    /// chance only wake each other's waiters.
    pub(crate) fn channel(&self) -> String {
        format!("leases_{:016x}", self.number())
    }

    /// Stable over programs and their versions.
    pub(crate) fn number(&self) -> u64 {
        let both = [self.schema.as_bytes(), self.prefix.as_bytes()].join(&0);
        // FNV-1a.
        both.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }
}

/// An identifier that is taken as it is written.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// As a value in SQL, whatever the session's settings are.
pub(crate) fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_is_quoted_and_none_is_cut_off() {
        let names = Names::default().with_schema("My \"app\"").unwrap();
        let names = names.with_prefix("x; DROP TABLE y; --").unwrap();
        assert_eq!(
            names.full("keys"),
            "\"My \"\"app\"\"\".\"x; DROP TABLE y; --keys\""
        );
        let long = "p".repeat(47);
        let longest = Names::default().with_prefix(&long).unwrap();
        assert_eq!(longest.bare("tombstones_until").len(), 63);
        assert!(Names::default().with_prefix(&"p".repeat(48)).is_err());
        assert!(Names::default().with_prefix("").is_ok());
        for bad in ["", "a\0b", "a\n", &"s".repeat(64)] {
            assert!(Names::default().with_schema(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn no_name_ends_the_body_of_a_function() {
        assert_eq!(Names::default().quote(), "$leases$");
        let names = Names::default().with_schema("a$leases$").unwrap();
        let names = names.with_prefix("$the_leases$").unwrap();
        assert_eq!(names.quote(), "$the_the_leases$");
    }

    #[test]
    fn channels_stay_the_same_and_differ() {
        let names = Names::default();
        assert_eq!(names.channel(), "leases_ef1201cdba0685e3");
        let other = names.clone().with_prefix("lease_2").unwrap();
        assert_ne!(names.channel(), other.channel());
    }
}
