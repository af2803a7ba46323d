//! `explain`: what a file does with one request.

use std::{
    iter,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use clap::Args;
use http::{HeaderName, HeaderValue, Method, Request, Uri, header::HOST};
use serde_json::{Value, json};
use tower_throttle::{
    Key, List, RequestHead,
    control::{Caller, Mode},
    inspect::ExplainedPolicy,
    key::{KeyError, PeerAddr},
};
use tower_throttle_config::{FoundCondition, FoundPolicy, ReaderName};

use crate::{
    answer::{Answer, lines},
    error::Result,
    readers::{key_of, parse_value, read_file},
};

#[derive(Args, Debug)]
pub(crate) struct Explain {
    /// The file, in TOML.
    file: PathBuf,
    /// The layer that the request passes through. Default: the only one, or `default`.
    #[arg(long, value_name = "NAME")]
    layer: Option<String>,
    /// The method of the request.
    #[arg(long, default_value = "GET")]
    method: Method,
    /// The path of the request, with its query.
    #[arg(long, default_value = "/")]
    path: Uri,
    /// The host of the request.
    #[arg(long)]
    host: Option<HeaderValue>,
    /// A header of the request. Give it several times for several.
    #[arg(long = "header", value_name = "NAME:VALUE", value_parser = parse_header)]
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The address that the request comes from: that of the client, or of the last proxy.
    #[arg(long, value_name = "IP")]
    peer: Option<IpAddr>,
    /// What a reader of the application returns: `key:tenant=42`, `quota:plan=paid`,
    /// `when:internal=false`, `cost:size=5`. Give it several times for several.
    #[arg(long = "reader", value_name = "KIND:NAME=VALUE", value_parser = parse_value)]
    readers: Vec<(ReaderName, String)>,
}

fn parse_header(text: &str) -> Result<(HeaderName, HeaderValue)> {
    let (name, value) = text.split_once(':').ok_or("write NAME:VALUE")?;
    Ok((name.trim().parse()?, value.trim().parse()?))
}

impl Explain {
    pub(crate) fn run(&self) -> Result<Answer> {
        let config = read_file(&self.file, &self.readers)?;
        let layers = config.names().layers;
        let layer = match (&self.layer, &*layers) {
            (Some(name), _) => name,
            (None, [only]) => only,
            (None, _) => "default",
        };
        // The store names keys. It is not asked, so the server need not be there.
        let limits = config.redis_url("redis://127.0.0.1:1/").build()?;
        let explained = limits.explain(layer, &RequestHead::from(&self.request()))?;
        let found = &explained.layer;
        let address_problem = found.list_error.as_ref();
        let address_problem = address_problem.map(|error| problem(error, "peer"));
        let state = match (found.applies, found.list, &address_problem) {
            (false, ..) => "passes the request on".to_owned(),
            (_, _, Some(problem)) => {
                format!("denies the request, as lists need an address: {problem}")
            }
            (_, Some(list), _) => format!("the caller is on the {} list", list.name()),
            _ => "asks its policies".to_owned(),
        };
        let is_asked = found.applies && found.list.is_none() && found.list_error.is_none();
        let mut is_limited = found.applies && !is_asked && found.list != Some(List::Allow);
        let mut text = format!("layer {layer:?}: {state}\n");
        let conditions = conditions(&explained.conditions, &mut text);
        let mut policies = Vec::new();
        let in_order = found.policies.iter().zip(&explained.policies);
        for (policy, in_file) in in_order.filter(|_| is_asked) {
            let answer = self.policy(policy, in_file);
            text += &answer.text;
            policies.push(answer.json);
            is_limited |= answer.is_fine;
        }
        let json = json!({
            "layer": layer,
            "applies": found.applies,
            "conditions": conditions,
            "list": found.list.map(List::name),
            "address_problem": address_problem,
            "policies": policies,
        });
        Ok(Answer::fine(text, json).fine_if(is_limited))
    }

    fn request(&self) -> Request<()> {
        let mut request = Request::new(());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.path.clone();
        if let Some(host) = &self.host {
            request.headers_mut().insert(HOST, host.clone());
        }
        for (name, value) in &self.headers {
            request.headers_mut().append(name, value.clone());
        }
        if let Some(peer) = self.peer {
            let peer = PeerAddr(SocketAddr::new(peer, 0));
            request.extensions_mut().insert(peer);
        }
        request
    }

    /// Explains one policy. It is fine if the policy limits the request.
    fn policy(&self, policy: &ExplainedPolicy, in_file: &FoundPolicy) -> Answer {
        let applies = policy.caller.is_some() && !policy.is_exempt;
        let denies = policy.denies_missing_key;
        let what = match (applies, denies) {
            (true, _) => "applies",
            (_, true) if policy.mode == Mode::Enforce => "denies the request, which lacks its key",
            (_, true) => "would deny the request, which lacks its key",
            _ if policy.is_exempt => "is not asked: its key is on the allow list",
            _ => "does not apply",
        };
        let mut text = format!("policy {:?}: {what}\n", policy.name);
        let conditions = conditions(&in_file.conditions, &mut text);
        let (mut keys, mut found) = (Vec::new(), None);
        for one in &in_file.keys {
            let error = one.key.as_ref().err();
            let problem = error.map(|error| problem(error, &one.text));
            // The keys after the first that is found are not asked.
            if policy.applies && found.is_none() {
                let found = problem.as_deref().unwrap_or("found");
                text += &format!("  {:<12} {}: {found}\n", "reads", one.text);
            }
            found = found.or(one.key.as_ref().ok());
            keys.push(json!({ "key": one.text, "found": problem.is_none(), "problem": problem }));
        }
        // The key of a list has more in it than the value.
        let key = policy.caller.as_ref().map(|key| found.unwrap_or(key));
        let json = json!({
            "policy": policy.name,
            "applies": applies,
            "denies_missing_key": denies,
            "conditions": conditions,
            "keys": keys,
            "key": key.and_then(|key| self.typed(key)),
            "fingerprint": policy.fingerprint.map(|fingerprint| fingerprint.to_string()),
            "redis_key": policy.storage_key,
            "cost": policy.cost,
            "quota": policy.quota.to_string(),
            "mode": policy.mode.name(),
        });
        if applies {
            let names = ["fingerprint", "key", "redis_key", "cost", "quota", "mode"];
            text += &lines(&json, &names);
        }
        Answer::fine(text, json).fine_if(applies || denies)
    }

    /// Returns a key as the user typed it. No other is shown.
    fn typed(&self, key: &Key) -> Option<String> {
        if *key == Key::everyone() {
            return Some("everyone".to_owned());
        }
        let request = self.request();
        let headers = request.headers().values();
        let headers = headers.filter_map(|value| value.to_str().ok());
        let mut readers = self.readers.iter().map(|(_, value)| &**value);
        if let Some(value) = readers.find(|value| key_of(value).is_ok_and(|of| of == *key)) {
            return Some(value.to_owned());
        }
        let peer = self.peer.map(|peer| peer.to_string());
        let texts = headers.chain(peer.as_deref());
        let mut parts =
            texts.flat_map(|text| iter::once(text).chain(text.split([',', ';', ' ', '='])));
        let is_key = |text: &&str| {
            let address = Caller::parse(&[format!("ip:{text}")]);
            let address = address.ok().and_then(|caller| caller.key());
            Key::from(*text) == *key || address.as_ref() == Some(key)
        };
        parts.find(is_key).map(str::to_owned)
    }
}

/// Explains why a key is not found, in the words of this command.
fn problem(error: &KeyError, key: &str) -> String {
    if key.starts_with("\"reader:") {
        return "unknown here; say what it returns with `--reader`".to_owned();
    }
    match error.is_missing() || error.is_ambiguous() {
        true => error.to_string(),
        // An application would have to pass the address on.
        false => "the client's address is unknown here; say it with `--peer`".to_owned(),
    }
}

/// Adds conditions to a text for people, and returns them for programs.
fn conditions(conditions: &[FoundCondition], text: &mut String) -> Vec<Value> {
    let conditions = conditions.iter().map(|condition| {
        let holds = match condition.holds {
            Some(true) => "holds",
            Some(false) => "does not hold",
            None => "is unclear, so the limit applies",
        };
        *text += &format!("  {:<12} {}: {holds}\n", "when", condition.text);
        json!({ "condition": condition.text, "holds": condition.holds })
    });
    conditions.collect()
}
