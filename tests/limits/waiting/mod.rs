//! Waiting to be admitted: order and moments, leaving early, permits in flight.

mod cancelling;
mod crowd;
mod fair;
mod fixtures;
mod in_flight;
mod layer;
mod leaving;
mod lifetimes;
mod no_timer;
mod order;
mod refunds;
mod served;
mod several_permits;
mod too_long;
