//! The layer for clients, in virtual time: with partners that enforce, refuse, lie and say nothing.

mod calls;
mod fleet;
mod partner;
mod readiness;
mod retries;
