//! A caller's script, wrapped so that it runs only for an admitted token.

use std::fmt;

use super::ADMIT_LUA;

/// After the caller's code: admits the token and runs it.
const RUN_LUA: &str = include_str!("run.lua");

/// A Lua script that runs only when its token is admitted, in the same atomic
/// step: for [`RedisGate::script`](super::RedisGate::script).
///
/// The code sees `KEYS` and `ARGV` as if it ran alone, may `return` anywhere,
/// and its lines keep their numbers in error messages. A first line such as
/// `#!lua flags=allow-oom` (Redis 7) stays the first line. The code must be a
/// whole block of Lua: one that closes a block which it did not open is not
/// fenced.
///
/// Make it once and keep it: its hash is computed here.
#[derive(Clone, PartialEq, Eq)]
pub struct FencedScript {
    code: String,
    hash: String,
}

impl FencedScript {
    /// Wraps `code`. Whether it compiles, the server says when it is run.
    #[must_use]
    pub fn new(code: &str) -> Self {
        let (shebang, code) = match code.find('\n') {
            _ if !code.starts_with("#!") => ("", code),
            Some(end) => code.split_at(end + 1),
            None => (code, ""),
        };
        let gap = match shebang {
            "" => "",
            line if line.ends_with('\n') => "",
            _ => "\n",
        };
        // The caller's code comes first and alone on its lines, so that it
        // sees no local of ours, and a comment at its end ends with its line.
        let code = format!(
            "{shebang}{gap}local run = function(KEYS, ARGV, ...) {code}\nend\n{ADMIT_LUA}{RUN_LUA}"
        );
        let hash = redis::Script::new(&code).get_hash().to_owned();
        Self { code, hash }
    }

    pub(super) fn code(&self) -> &str {
        &self.code
    }

    pub(super) fn hash(&self) -> &str {
        &self.hash
    }
}

impl fmt::Debug for FencedScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencedScript")
            .field("hash", &self.hash)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_callers_lines_keep_their_numbers() {
        let plain = FencedScript::new("return 1");
        assert!(
            plain
                .code
                .starts_with("local run = function(KEYS, ARGV, ...) return 1\nend\n")
        );
        for shebang in ["#!lua flags=allow-oom\nreturn 1", "#!lua"] {
            let script = FencedScript::new(shebang);
            let first = shebang.lines().next();
            assert_eq!(script.code.lines().next(), first);
            assert!(script.code.lines().nth(1).unwrap().starts_with("local run"));
        }
    }
}
