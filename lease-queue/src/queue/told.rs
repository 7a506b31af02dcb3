//! Who is told how requests for items go.

use std::fmt;

use lease_core::StoreError;

type Tell = dyn Fn(Result<(), &StoreError>) + Send + Sync;

#[derive(Default)]
pub(super) struct Told(Option<Box<Tell>>);

impl Told {
    pub(super) fn new(tell: impl Fn(Result<(), &StoreError>) + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(tell)))
    }

    pub(super) fn of<T>(&self, answer: &Result<T, StoreError>) {
        if let Some(tell) = &self.0 {
            tell(answer.as_ref().map(drop));
        }
    }
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Told").field(&self.0.is_some()).finish()
    }
}
