//! The admin page over HTTP.

mod api;
