//! What the handlers share.

use std::sync::Arc;

use crate::{history::History, limits::Limits, outage::Outage, traffic::Traffic};

#[derive(Clone)]
pub(crate) struct App {
    pub(crate) limits: Limits,
    pub(crate) history: Arc<History>,
    pub(crate) traffic: Traffic,
    pub(crate) outage: Outage,
}
