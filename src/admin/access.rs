//! Who may look.

use std::{fmt, sync::Arc};

use super::problem::{Code, Problem};
use crate::{
    RequestHead,
    key::{self, AddressReader},
};

/// Says who may look at the admin page, and who may change things if that is allowed at all.
#[derive(Clone)]
pub struct Access(Kind);

#[derive(Clone)]
enum Kind {
    Loopback,
    Check(Arc<Check>),
}

type Check = dyn Fn(&RequestHead<'_>) -> Option<Who> + Send + Sync;

impl Access {
    /// Gives access to programs and browsers on the machine of the server.
    #[must_use]
    pub fn loopback() -> Self {
        Self(Kind::Loopback)
    }

    /// Gives access to those requests for which `check` returns who sends them.
    #[must_use]
    pub fn check(check: impl Fn(&RequestHead<'_>) -> Option<Who> + Send + Sync + 'static) -> Self {
        Self(Kind::Check(Arc::new(check)))
    }

    /// Returns who sends a request. `None`: the page may ask who it is.
    pub(super) fn admit(&self, head: &RequestHead<'_>) -> Result<Option<Who>, Problem> {
        match &self.0 {
            Kind::Loopback => {
                let peer = key::peer().address(head);
                let peer = peer.map_err(|_| Problem::new(Code::NoPeer))?;
                match peer.is_loopback() {
                    true => Ok(Some(Who::new("loopback"))),
                    false => Err(Problem::new(Code::NotLoopback)),
                }
            }
            Kind::Check(check) => match check(head) {
                Some(who) => Ok(Some(who)),
                None => Err(Problem::new(Code::NoAccess)),
            },
        }
    }
}

impl fmt::Debug for Access {
    /// Shows the kind. A secret is not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Kind::Loopback => "Access::loopback()",
            Kind::Check(_) => "Access::check(..)",
        })
    }
}

/// The name of somebody with access: the author of the changes that they make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who(Arc<str>);

impl Who {
    /// Names somebody: a user of the application, for example.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into().into())
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0
    }
}
