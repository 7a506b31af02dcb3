//! `lease fence`: cutting a holder off.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use leases::{FenceWhen, Holder, KeyState, Token};
use serde::Serialize;

use crate::args;
use crate::duration::{brief, millis};
use crate::exit::{Exit, Failure, words};
use crate::output::{self, HolderJson};
use crate::patience::{FIRST_ANSWER, Patience};
use crate::stderr;
use crate::store::Target;

#[derive(Serialize)]
struct FenceJson {
    key: String,
    high_water: u64,
    /// Whose grant this revoked.
    cut_off: Option<HolderJson>,
    /// How long the key stays blocked, when it does.
    blocked_ms: Option<u64>,
}

pub(crate) async fn fence(target: Target, args: args::Fence) -> Result<Exit, Failure> {
    let store = target.open(Patience::new(FIRST_ANSWER)).await?;
    let look = || async {
        // Each time anew: a person may have thought for a while.
        let patience = Patience::new(FIRST_ANSWER);
        patience.ask(|| store.backend().inspect(&args.key)).await
    };
    let asks = !args.yes && io::stdin().is_terminal();
    let mut agreed = None;
    let (at_least, before) = loop {
        let before = look().await?;
        let at_least = match args.at_least {
            Some(at_least) => at_least,
            None => above(&before)?,
        };
        leases::check_fence(at_least)?;
        let harm = Harm::of(&args, at_least, before);
        let asked = agreed == harm.id();
        if !asks || asked || harm.id().is_none() {
            break (at_least, harm);
        }
        if !confirmed(&args, &harm)? {
            return Err(Failure::new(Exit::No, "nothing was changed"));
        }
        // Somebody else may have it by now, whom nobody has asked about.
        agreed = harm.id();
    };
    let when = if args.now {
        FenceWhen::Immediately
    } else {
        FenceWhen::AtExpiry
    };
    let mark = Patience::new(FIRST_ANSWER)
        .ask(|| store.backend().fence(&args.key, at_least, when))
        .await?;
    let after = match look().await {
        Ok(after) => Some(after),
        Err(error) => {
            let why = words(&error);
            stderr::say(&format!(
                "fenced, but who has the key now is unknown: {why}"
            ));
            None
        }
    };
    let cut_off = before.cut_off(&args, after.as_ref());
    if args.form.json {
        output::print_json(&FenceJson {
            key: args.key.as_str().to_owned(),
            high_water: mark.get(),
            cut_off: cut_off.map(HolderJson::from),
            blocked_ms: after.as_ref().and_then(|a| a.blocked_for).map(millis),
        })?;
    } else {
        let done = done_words(&args, &before, cut_off, after.as_ref());
        let key = output::clean(args.key.as_str());
        output::print(format_args!("{key} is fenced at {mark}; {done}\n"))?;
    }
    Ok(Exit::Success)
}

/// A mark above everything that was ever granted: above the holder, too.
fn above(state: &KeyState) -> Result<Token, Failure> {
    let Some(mark) = state.high_water else {
        return Ok(Token::MIN);
    };
    let next = mark.next();
    next.filter(|next| *next <= Token::MAX_FENCE)
        .ok_or_else(|| {
            Failure::new(
                Exit::Misconfigured,
                format!(
                    "the key's mark is {mark}, and a fence goes to {} at most: nobody can be cut \
                     off from this key; stop its holder, or let it expire, and use another key",
                    Token::MAX_FENCE
                ),
            )
        })
}

/// What a fence does to others.
enum Harm {
    None,
    CutsOff(Holder),
    /// Frees a key that an earlier revocation still blocks for this long.
    Unblocks(Duration),
}

impl Harm {
    fn of(args: &args::Fence, at_least: Token, state: KeyState) -> Self {
        match (state.holder, state.blocked_for) {
            (Some(holder), _) if holder.token < at_least => Self::CutsOff(holder),
            (None, Some(left)) if args.now => Self::Unblocks(left),
            _ => Self::None,
        }
    }

    /// What a person agrees to: cutting off this token, or (`None` in it)
    /// freeing the key.
    fn id(&self) -> Option<Option<Token>> {
        match self {
            Self::None => None,
            Self::CutsOff(holder) => Some(Some(holder.token)),
            Self::Unblocks(_) => Some(None),
        }
    }

    /// Who was cut off, as a look after the fence tells.
    fn cut_off(&self, args: &args::Fence, after: Option<&KeyState>) -> Option<&Holder> {
        let Self::CutsOff(holder) = self else {
            return None;
        };
        let Some(after) = after else {
            return Some(holder);
        };
        let is_there = after
            .holder
            .as_ref()
            .is_some_and(|h| h.token == holder.token);
        // It blocks the key until its old expiry: if nothing does, it had let
        // go before.
        let had_gone = !args.now && after.blocked_for.is_none();
        (!is_there && !had_gone).then_some(holder)
    }
}

const TWO_MAY_BELIEVE: &str =
    "The key is free at once: until its holder learns of it, two may believe that they hold it.";

fn confirmed(args: &args::Fence, harm: &Harm) -> Result<bool, Failure> {
    let key = output::clean(args.key.as_str());
    let question = match harm {
        Harm::None => return Ok(true),
        Harm::CutsOff(holder) => {
            let then = if args.now {
                TWO_MAY_BELIEVE.to_owned()
            } else {
                let left = brief(holder.remaining);
                format!("The key stays blocked for {left}, until its holder has learnt of it.")
            };
            let holder = output::holder_words(holder);
            format!("{key} is held by {holder}.\n{then}\nCut it off? [y/N] ")
        }
        Harm::Unblocks(left) => {
            let left = brief(*left);
            format!(
                "{key} is blocked for {left} by a lease that was revoked, until its holder has \
                 learnt of it.\n{TWO_MAY_BELIEVE}\nFree it? [y/N] "
            )
        }
    };
    let mut answer = String::new();
    io::stderr()
        .write_all(question.as_bytes())
        .and_then(|()| io::stdin().read_line(&mut answer))
        .map_err(|error| Failure::new(Exit::Internal, format!("cannot ask: {error}; use --yes")))?;
    Ok(matches!(
        answer.trim().to_ascii_lowercase().as_str(),
        "y" | "yes"
    ))
}

fn done_words(
    args: &args::Fence,
    before: &Harm,
    cut_off: Option<&Holder>,
    after: Option<&KeyState>,
) -> String {
    let done = match (before, cut_off) {
        (_, Some(holder)) => format!("cut off: {}", output::label_words(holder)),
        (Harm::CutsOff(holder), None) => {
            let who = output::label_words(holder);
            format!("nobody was cut off: {who} had let go before")
        }
        (Harm::Unblocks(left), _) if after.is_none_or(|a| a.blocked_for.is_none()) => format!(
            "the key is not blocked any more, {} before the revoked lease's expiry",
            brief(*left)
        ),
        (Harm::None | Harm::Unblocks(_), _) => "nobody was cut off".to_owned(),
    };
    let Some(after) = after else {
        return done;
    };
    let now = match (&after.holder, after.blocked_for) {
        (Some(holder), _) => format!("; held now by {}", output::holder_words(holder)),
        (None, Some(left)) => format!("; the key is free in {}", brief(left)),
        (None, None) if args.now && cut_off.is_some() => "; the key is free at once".to_owned(),
        (None, None) => String::new(),
    };
    done + &now
}
