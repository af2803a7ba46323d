//! The admin page over HTTP.

mod api;
mod page;
