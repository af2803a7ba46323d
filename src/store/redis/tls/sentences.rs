//! What is wrong with a TLS handshake, in sentences.

/// Returns what is wrong with a TLS handshake, and what to do. `error`: the error of rustls, as fred
/// shows it.
pub(crate) fn explained(error: &str) -> Option<String> {
    // `InvalidCertificate(UnknownIssuer)`, `AlertReceived(CertificateRequired)`
    let sentence = SENTENCES.iter().find(|(part, _)| error.contains(part));
    let (part, sentence) = sentence?;
    let names = error.split_once("presented: [").map(|(_, names)| names);
    let names = names.and_then(|names| names.split(']').next());
    let names = names.map(plain);
    Some(match names.filter(|_| *part == WRONG_NAME) {
        Some(names) => format!("{sentence} (the certificate names {names})"),
        None => (*sentence).to_owned(),
    })
}

/// Returns `one, two` for `"DnsName(\"one\")", "DnsName(\"two\")"`.
fn plain(names: &str) -> String {
    let names = names.split(", ").map(|name| {
        let name = name.split_once('(').map_or(name, |(_, name)| name);
        name.replace(['"', '\\', ')'], "")
    });
    names.collect::<Vec<_>>().join(", ")
}

const WRONG_NAME: &str = "(NotValidForName";

/// A part of an error, and the sentence for it.
const SENTENCES: &[(&str, &str)] = &[
    (
        "(UnknownIssuer",
        "TLS: no trusted authority has signed the server's certificate; trust its authority with \
         `tls_authorities`",
    ),
    (
        "(BadSignature",
        "TLS: the server's certificate is not signed by the trusted authority of that name; trust \
         the one that signed it with `tls_authorities`",
    ),
    (
        WRONG_NAME,
        "TLS: the server's certificate is for another name; connect by a name in it, or set \
         `tls_server_name`",
    ),
    (
        "CaUsedAsEndEntity",
        "TLS: the server uses the certificate of an authority (CA:TRUE, the default of \
         `openssl req -x509`); give it one of its own that this authority has signed, or one with \
         `-addext basicConstraints=critical,CA:FALSE`",
    ),
    (
        "(Expired",
        "TLS: the server's certificate has expired; renew it",
    ),
    (
        "(NotValidYet",
        "TLS: the server's certificate is not valid yet; compare the clocks of both machines",
    ),
    (
        "UnsupportedCertVersion",
        "TLS: the server's certificate has version 1; make one with a subjectAltName",
    ),
    (
        "InvalidCertificate(",
        "TLS: the server's certificate cannot be used",
    ),
    (
        "(CertificateRequired)",
        "TLS: the server asks for a certificate of the client; set `tls_client_certificate`",
    ),
    (
        "(UnknownCA)",
        "TLS: the server does not trust the authority of the client's certificate; use one that its \
         `tls-ca-cert-file` has signed",
    ),
    (
        "(CertificateExpired)",
        "TLS: the client's certificate has expired; renew it",
    ),
    (
        "InvalidContentType",
        "TLS: the port does not speak TLS; write redis:// in the URL, or use the server's `tls-port`",
    ),
];
