//! The secret of those who have one, and the sessions of browsers that sent it.
//!
//! A session is a cookie with its end and a MAC. Each process with the same secret accepts it. A process
//! keeps only which sessions were ended in it before their time.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use blake3::{Hash, derive_key, keyed_hash};
use cookie::{Cookie, SameSite};
use http::{HeaderMap, HeaderValue, header::COOKIE};

use crate::{access_error::AccessError, origin::only};

const FEWEST_CHARACTERS: usize = 16;
const NAME: &str = "tower_throttle";
/// How long a session lasts, in seconds.
const LIFETIME_S: u32 = 12 * 3_600;
/// The most ended sessions that are remembered. Of more, those are forgotten that end first.
const MOST_ENDED: usize = 10_000;

/// A secret. It is kept as a hash only.
pub(crate) struct Bearer {
    key: [u8; 32],
    /// The hash of the secret under `key`.
    token: Hash,
    session_key: [u8; 32],
    /// The ends of sessions that ended by a logout. Sessions that began in the same millisecond are one.
    ended: Mutex<BTreeSet<u64>>,
}

impl Bearer {
    pub(crate) fn new(secret: &str) -> Result<Self, AccessError> {
        if !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            let code = "access-secret-text";
            let message = "the secret for `Access::bearer(..)` has a space, a line break or a character beyond ASCII; use printable ASCII without spaces".to_owned();
            return Err(AccessError { code, message });
        }
        if secret.len() < FEWEST_CHARACTERS {
            let (code, characters) = ("access-secret-too-short", secret.len());
            let message = format!(
                "a secret of {characters} characters for `Access::bearer(..)` can be guessed; use 16 or more, such as those of `openssl rand -hex 32`"
            );
            return Err(AccessError { code, message });
        }
        let key = derive_key("tower-throttle v1 admin token", secret.as_bytes());
        Ok(Self {
            key,
            token: keyed_hash(&key, secret.as_bytes()),
            session_key: derive_key("tower-throttle v1 admin session", secret.as_bytes()),
            ended: Mutex::default(),
        })
    }

    /// Returns whether this is the secret. Hashes are compared, in constant time, so that the time
    /// reveals nothing of the secret.
    pub(crate) fn is_token(&self, presented: &[u8]) -> bool {
        keyed_hash(&self.key, presented) == self.token
    }

    /// Returns the cookie of a new session, for `Set-Cookie`.
    pub(crate) fn begin_session(&self, now_ms: u64) -> HeaderValue {
        let end = now_ms.saturating_add(u64::from(LIFETIME_S) * 1_000);
        let mac = self.mac(&end.to_string());
        set(format!("{end}.{mac}"), LIFETIME_S)
    }

    /// Ends the session of a request in this process, and returns a cookie that removes it.
    pub(crate) fn end_session(&self, headers: &HeaderMap, now_ms: u64) -> HeaderValue {
        if let Some(end_ms) = self.find_session(headers, now_ms) {
            let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            ended.insert(end_ms);
            while ended.len() > MOST_ENDED || ended.first().is_some_and(|first| *first <= now_ms) {
                ended.pop_first();
            }
        }
        set(String::new(), 0)
    }

    /// Returns when the session of a request ends, in milliseconds since the epoch. Other cookies
    /// of the name are ignored: any page of the same host can set one for a shorter path.
    pub(crate) fn find_session(&self, headers: &HeaderMap, now_ms: u64) -> Option<u64> {
        let fields = headers.get_all(COOKIE).iter();
        let texts = fields.map(|field| String::from_utf8_lossy(field.as_bytes()).into_owned());
        let cookies = texts.flat_map(|text| Cookie::split_parse(text).flatten());
        let own = cookies.filter(|cookie| cookie.name() == NAME);
        let mut valid = own.filter_map(|cookie| self.end_of(cookie.value()));
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        valid.find(|end_ms| *end_ms > now_ms && !ended.contains(end_ms))
    }

    /// Returns the end of a session that has a right MAC.
    fn end_of(&self, value: &str) -> Option<u64> {
        let (end, mac) = value.split_once('.')?;
        // Hashes are compared in constant time.
        let is_right = self.mac(end) == Hash::from_hex(mac).ok()?;
        end.parse().ok().filter(|_| is_right)
    }

    fn mac(&self, end: &str) -> Hash {
        keyed_hash(&self.session_key, end.as_bytes())
    }
}

/// Returns the token of a request that presents one: by `Authorization: Bearer ..`.
pub(crate) fn presented(headers: &HeaderMap) -> Option<&str> {
    let field = only(headers, "authorization").ok()??;
    let (scheme, token) = field.split_at_checked("Bearer ".len())?;
    let is_bearer = scheme.eq_ignore_ascii_case("Bearer ");
    is_bearer.then(|| token.trim())
}

/// Returns a cookie, for `Set-Cookie`.
///
/// It has no `Path`: then it is that of the request, up to its last slash. That is where the router is,
/// as the browser sees it. A proxy may have shown it another path than this process sees. So the paths
/// that set and remove the cookie are at the top of the router.
#[expect(clippy::expect_used, reason = "numbers and hashes are ASCII")]
fn set(value: String, seconds: u32) -> HeaderValue {
    let cookie = Cookie::build((NAME, value))
        .max_age(cookie::time::Duration::seconds(seconds.into()))
        .http_only(true)
        .secure(true)
        .same_site(SameSite::Strict);
    HeaderValue::try_from(cookie.build().to_string()).expect("numbers and hashes are ASCII")
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::unwrap_used)]
mod tests {
    use http::{HeaderMap, HeaderValue, header::COOKIE};

    use super::{Bearer, LIFETIME_S};

    const NOW_MS: u64 = 1_795_242_000_000;

    fn bearer() -> Bearer {
        Bearer::new("a-secret-of-a-test").unwrap()
    }

    fn begun() -> String {
        let cookie = bearer().begin_session(NOW_MS);
        let (pair, attributes) = cookie.to_str().unwrap().split_once("; ").unwrap();
        assert_eq!(
            attributes,
            "HttpOnly; SameSite=Strict; Secure; Max-Age=43200"
        );
        pair.to_owned()
    }

    fn find(fields: &[&[u8]], now_ms: u64) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(COOKIE, HeaderValue::from_bytes(field).unwrap());
        }
        bearer().find_session(&headers, now_ms)
    }

    #[test]
    fn a_session_is_found_among_other_cookies_and_ends() {
        let cookie = begun();
        let end = NOW_MS + u64::from(LIFETIME_S) * 1_000;
        let alone = cookie.as_bytes();
        let among = format!("a=b; tower_throttle=1.2;tower_throttle; =;;{cookie} ; c=\"d");
        let hostile = [b"x=\xff\xfe; tower_throttle=\xff; ", alone].concat();
        for fields in [
            vec![alone],
            vec![among.as_bytes()],
            vec![b"tower_throttle=", alone],
            vec![&hostile],
        ] {
            assert_eq!(find(&fields, NOW_MS), Some(end), "{fields:?}");
            assert_eq!(find(&fields, end - 1), Some(end), "{fields:?}");
            assert_eq!(find(&fields, end), None, "{fields:?}");
        }
    }

    #[test]
    fn a_session_that_was_changed_is_none() {
        let cookie = begun();
        let (end, mac) = cookie.split_once('=').unwrap().1.split_once('.').unwrap();
        assert!(find(&[format!("tower_throttle={end}.{mac}").as_bytes()], NOW_MS).is_some());
        let later = end.parse::<u64>().unwrap() + 1;
        let cut = mac.get(1..).unwrap();
        let zeros = "0".repeat(64);
        for value in [
            format!("{later}.{mac}"),
            format!("0{end}.{mac}"),
            format!("+{end}.{mac}"),
            format!("{end}.{cut}"),
            format!("{end}.{mac}0"),
            format!("{end}.{zeros}"),
            format!("9999999999999.{}", blake3::hash(b"9999999999999")),
            end.to_string(),
            format!(".{mac}"),
            format!("{end}.{mac}.{mac}"),
            format!("\"{end}.{mac}\""),
            String::new(),
        ] {
            let field = format!("tower_throttle={value}");
            assert_eq!(find(&[field.as_bytes()], NOW_MS), None, "{field}");
        }
        for name in ["Tower_throttle", "tower_throttle2", "xtower_throttle"] {
            let field = format!("{name}={end}.{mac}");
            assert_eq!(find(&[field.as_bytes()], NOW_MS), None, "{field}");
        }
    }

    #[test]
    fn a_session_that_was_ended_is_none_in_this_process() {
        let (here, elsewhere) = (bearer(), bearer());
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, here.begin_session(NOW_MS));
        assert!(here.find_session(&headers, NOW_MS).is_some());
        let removed = here.end_session(&headers, NOW_MS);
        assert!(removed.to_str().unwrap().contains("Max-Age=0"));
        assert_eq!(here.find_session(&headers, NOW_MS), None);
        assert!(elsewhere.find_session(&headers, NOW_MS).is_some());
        // Another session continues.
        headers.insert(COOKIE, here.begin_session(NOW_MS + 1));
        assert!(here.find_session(&headers, NOW_MS).is_some());
        // It is forgotten once it would have ended.
        let later = NOW_MS + u64::from(LIFETIME_S) * 1_000;
        here.end_session(&headers, later);
        assert!(here.ended.lock().unwrap().len() == 1);
    }

    #[test]
    fn a_session_under_another_secret_is_none() {
        let others = Bearer::new("another-secret-of-a-test").unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, others.begin_session(NOW_MS));
        assert!(others.find_session(&headers, NOW_MS).is_some());
        assert_eq!(bearer().find_session(&headers, NOW_MS), None);
    }
}
