//! The deliberate faults.

/// What a faulty store does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing: the wrapper itself keeps the contract.
    None,
    /// Answers abandon without doing anything.
    DropsAbandon,
    /// Abandoning frees whoever holds the key.
    AbandonsAnybody,
    /// Lists only what is held.
    ListsHeldOnly,
    /// Takes a prefix in any letter case.
    ListsAnyCase,
    /// Lists the first page only.
    ListsOnePage,
    /// Gives the last key of a page again on the next one.
    ListsTwiceAtPages,
    /// Cannot list, but claims to.
    CannotList,
    /// Merges keys that differ in case.
    FoldsCase,
    /// Merges keys that differ in spaces at their ends.
    TrimsKeys,
    /// Merges keys that differ after 64 characters.
    CutsKeys,
    /// Merges keys that differ in empty path segments.
    SplitsKeysAtSlashes,
    /// Merges keys with the same part in braces.
    HashesBracedPart,
    /// Never hints.
    SwallowsHints,
    /// Ends every stream before its first hint.
    EndsHints,
    /// Hints once per subscription.
    HintsOnce,
    /// Renews whoever holds the key.
    RenewsByKey,
    /// Renews the owner's grant whatever the token.
    RenewsByOwner,
    /// Adds the TTL to what is left.
    AddsUpRenewals,
    /// Gives the outcomes of a list in another order.
    ReversesRenewals,
    /// Gives one outcome for equal ones next to each other.
    MergesRenewals,
    /// Renews a hundred of a list and says the same of the rest.
    RenewsHundredOnly,
    /// Loses all of a list with one.
    AllOrNothingRenewals,
    /// Releases whoever holds the key.
    ReleasesByKey,
    /// Releases the owner's grant whatever the token.
    ReleasesByOwner,
    /// Answers Released to every release.
    AlwaysReleased,
    /// Cuts TTLs to an hour.
    CutsLongTtls,
    /// Refuses TTLs above a day, but claims to take them.
    RefusesLongTtls,
    /// Keeps milliseconds in 31 bits.
    WrapsTtls,
    /// Keeps whole seconds.
    KeepsWholeSeconds,
    /// Grants half of the TTL.
    HalvesTtls,
    /// Grants twice the TTL.
    DoublesTtls,
    /// Takes TTLs outside the range that it claims.
    TakesAnyTtl,
    /// Takes keys above the limit that it claims.
    TakesAnyKey,
    /// Draws tokens by lot.
    RandomTokens,
    /// Prints tokens with fifteen digits.
    RoundsTokens,
    /// Does not look at `after`.
    IgnoresFloor,
    /// Looks whether the key is free, and takes it afterwards.
    ReadsThenWrites,
    /// Does not say who holds a key.
    HidesTheHolder,
    /// Says that a holder has longer than it has.
    InventsRemainingTime,
    /// Does not say that a revoked grant blocks the key.
    HidesBlocks,
    /// Takes a fence that is too high for the highest.
    ClampsFences,
    /// Fences one above what was asked for.
    FencesOneAbove,
    /// Never frees a revoked grant's key at once.
    NeverImmediate,
    /// Loses a connection with every dropped call.
    LeaksConnections,
    /// Panics on a diagnosis.
    Panics,
    /// Comes back empty from a restart, and with tokens that begin anew.
    LosesDataOnRestart,
    /// Gives a key a mark that was only abandoned.
    MarksAbandonedKeys,
    /// Every client claims something else.
    ClaimsByClient,
    /// Fails where Lost is the answer.
    FailsOnUnknownKeys,
    /// Forgets the mark of a key that nobody holds.
    ForgetsFreeMarks,
    /// Renews what was released.
    RenewsReleased,
    /// Gives one outcome too many for a list.
    AnswersOnceMore,
    /// Grants one above the token that was asked for.
    CountsOneAbove,
    /// Takes the shortest TTL for no TTL.
    NeverEndsShortTtls,
    /// Takes a foreign value for a free key, and writes over it.
    OverwritesForeign,
    /// Fails a whole list for a foreign value in one of its places.
    SpoilsBatches,
    /// Ends a listing at a foreign value.
    EndsListsAtForeign,
    /// Says of what it has no reply to that it had no effect.
    TakesSilenceForNo,
    /// Never connects again.
    StaysCut,
    /// Renews from memory while the store stands still.
    AnswersInPause,
    /// Comes back from a pause without its grants.
    ForgetsInPause,
    /// Loses what was asked in a pause.
    DropsRequestsInPause,
    /// Grants at once after the loss of its data.
    SkipsQuarantine,
}
