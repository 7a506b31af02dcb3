//! The scheme of a store's URL. Nothing behind it is ever repeated: it may hold
//! a password, in the user part or in the query.

use lease_core::InvalidInput;

/// The longest scheme that an error repeats; the known ones are shorter.
const MAX_SCHEME_BYTES: usize = 24;

/// What stands before the first colon, in lower case.
pub(crate) fn scheme(url: &str) -> Result<String, InvalidInput> {
    let Some((scheme, _)) = url.split_once(':') else {
        return Err(InvalidInput::Url(
            "the store's URL has no scheme; write one, as in sqlite:///absolute/path.db".to_owned(),
        ));
    };
    let sound = scheme.len() <= MAX_SCHEME_BYTES
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    if sound {
        Ok(scheme.to_ascii_lowercase())
    } else {
        Err(InvalidInput::Url(
            "the store's URL does not start with a scheme; write one, as in \
             sqlite:///absolute/path.db"
                .to_owned(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_is_found_and_anything_else_is_not_repeated() {
        assert_eq!(scheme("SQLite:x.db").unwrap(), "sqlite");
        assert_eq!(scheme("redis+sentinel://a,b/m").unwrap(), "redis+sentinel");
        for odd in ["hunter2", ":hunter2", "user@hunter2:x", "", "hunter 2:"] {
            let words = scheme(odd).unwrap_err().to_string();
            assert!(!words.contains("hunter"), "{words}");
        }
    }
}
