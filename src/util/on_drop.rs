//! Work that is done although its task or caller ends early.

/// Does its work when it is dropped, unless it is [cancelled](Self::cancel) before.
pub(crate) struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> OnDrop<F> {
    pub(crate) const fn new(work: F) -> Self {
        Self(Some(work))
    }

    pub(crate) fn cancel(mut self) {
        self.0 = None;
    }
}

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(work) = self.0.take() {
            work();
        }
    }
}
