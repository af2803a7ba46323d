//! An outage of Redis that the visitor switches on. The demo reaches Redis through a proxy of its
//! own, so that the outage is the demo's alone, and no server is touched.

mod proxy;
mod url;

use std::{io, str::FromStr};

use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch};

use self::url::through_proxy;

/// What the proxy does with connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    Up,
    /// Connections are closed, and new ones, too.
    Closed,
    /// Connections stay, and nothing passes.
    Frozen,
}

const LINKS: [Link; 3] = [Link::Up, Link::Closed, Link::Frozen];

impl Link {
    const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Closed => "closed",
            Self::Frozen => "frozen",
        }
    }
}

impl FromStr for Link {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = LINKS.into_iter().find(|link| link.name() == name);
        found.ok_or_else(|| format!("no link {name:?}; it is up, closed or frozen"))
    }
}

/// The switch, or why there is none.
#[derive(Clone)]
pub(crate) enum Outage {
    Switch(watch::Sender<Link>),
    None(&'static str),
}

impl Outage {
    /// Starts a proxy for the server of the URL. Returns the URL to connect to instead.
    pub(crate) async fn start(url: &str) -> io::Result<(String, Self)> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        match through_proxy(url, listener.local_addr()?) {
            Ok((server, url)) => {
                let (switch, link) = watch::channel(Link::Up);
                tokio::spawn(proxy::run(listener, server, link));
                Ok((url, Self::Switch(switch)))
            }
            Err(why) => Ok((url.to_owned(), Self::None(why))),
        }
    }

    /// Returns whether there is a switch.
    pub(crate) fn switch(&self, link: Link) -> bool {
        match self {
            Self::Switch(switch) => {
                switch.send_replace(link);
                true
            }
            Self::None(_) => false,
        }
    }

    pub(crate) fn state(&self) -> Value {
        match self {
            Self::Switch(switch) => json!({ "link": switch.borrow().name() }),
            Self::None(why) => json!({ "why_not": why }),
        }
    }
}
