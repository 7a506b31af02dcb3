//! `lease fence`: cutting a holder off.

use std::io::{self, IsTerminal, Write};

use leases::{FenceWhen, Holder, KeyState, Token};
use serde::Serialize;

use crate::args;
use crate::duration::brief;
use crate::exit::{Exit, Failure};
use crate::output::{self, HolderJson};
use crate::patience::{FIRST_ANSWER, Patience};
use crate::store::Target;

#[derive(Serialize)]
struct FenceJson {
    key: String,
    high_water: u64,
    /// Whose grant this revoked.
    cut_off: Option<HolderJson>,
}

pub(crate) async fn fence(target: Target, args: args::Fence) -> Result<Exit, Failure> {
    let patience = Patience::new(FIRST_ANSWER);
    let store = target.open(patience).await?;
    let state = patience.ask(|| store.backend().inspect(&args.key)).await?;
    let at_least = match args.at_least {
        Some(at_least) => at_least,
        None => above(&state)?,
    };
    leases::check_fence(at_least)?;
    let cut_off = state.holder.as_ref().filter(|h| h.token < at_least);
    if let Some(holder) = cut_off
        && !args.yes
        && io::stdin().is_terminal()
        && !confirmed(&args, holder)?
    {
        return Err(Failure::new(Exit::No, "nothing was changed"));
    }
    let when = if args.now {
        FenceWhen::Immediately
    } else {
        FenceWhen::AtExpiry
    };
    // A person may have thought for a while.
    let mark = Patience::new(FIRST_ANSWER)
        .ask(|| store.backend().fence(&args.key, at_least, when))
        .await?;
    if args.form.json {
        output::print_json(&FenceJson {
            key: args.key.as_str().to_owned(),
            high_water: mark.get(),
            cut_off: cut_off.map(HolderJson::from),
        })?;
    } else {
        output::print(human(&args, mark, cut_off))?;
    }
    Ok(Exit::Success)
}

/// A mark above everything that was ever granted: above the holder, too.
fn above(state: &KeyState) -> Result<Token, Failure> {
    let Some(mark) = state.high_water else {
        return Ok(Token::MIN);
    };
    mark.next().ok_or_else(|| {
        Failure::new(
            Exit::Misconfigured,
            "the key's tokens are used up; use another key",
        )
    })
}

fn confirmed(args: &args::Fence, holder: &Holder) -> Result<bool, Failure> {
    let key = output::clean(args.key.as_str());
    let holder_words = output::holder_words(holder);
    let then = if args.now {
        "The key is free at once: until its holder learns of it, two may believe that they hold it."
            .to_owned()
    } else {
        let left = brief(holder.remaining);
        format!("The key stays blocked for {left}, until its holder has learnt of it.")
    };
    let question = format!("{key} is held by {holder_words}.\n{then}\nCut it off? [y/N] ");
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

fn human(args: &args::Fence, mark: Token, cut_off: Option<&Holder>) -> String {
    let key = output::clean(args.key.as_str());
    let Some(holder) = cut_off else {
        return format!("{key} is fenced at {mark}; nobody was cut off\n");
    };
    let who = output::label_words(holder);
    let when = if args.now {
        "at once".to_owned()
    } else {
        format!("in {}", brief(holder.remaining))
    };
    format!("{key} is fenced at {mark}; cut off: {who}; the key is free {when}\n")
}
