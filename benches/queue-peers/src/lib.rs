//! Nothing: the bench is all there is.
