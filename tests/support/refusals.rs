//! Servers that read, and refuse to write.

use super::{RedisServer, eventually, port::Port};

/// How a server comes to refuse to write, with the word of its error, and how it writes again. The
/// user `app` is the one that may lose a right.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub word: &'static str,
    refuse: String,
    permit: &'static str,
}

/// Returns all of them, for a server that evicts nothing. No server listens at the port `unused`.
pub fn all(unused: &Port) -> [Refusal; 5] {
    let refusal = Refusal::new;
    [
        refusal("OOM", "CONFIG|SET|maxmemory|1", "CONFIG|SET|maxmemory|0"),
        refusal(
            "NOPERM",
            "ACL|SETUSER|app|-psetex",
            "ACL|SETUSER|app|+psetex",
        ),
        refusal(
            "READONLY",
            &format!("REPLICAOF|127.0.0.1|{unused}"),
            "REPLICAOF|NO|ONE",
        ),
        refusal(
            "NOREPLICAS",
            "CONFIG|SET|min-replicas-to-write|1",
            "CONFIG|SET|min-replicas-to-write|0",
        ),
        refusal("MISCONF", "CONFIG|SET|save|3600 1", "CONFIG|SET|save|"),
    ]
}

fn run(server: &RedisServer, line: &str) {
    server.command(&line.split('|').collect::<Vec<_>>());
}

impl Refusal {
    /// Creates one from two commands, whose words have bars between them.
    pub fn new(word: &'static str, refuse: &str, permit: &'static str) -> Self {
        Self {
            word,
            refuse: refuse.to_owned(),
            permit,
        }
    }

    /// Has the server refuse to write. Returns whether this version refuses scripts, too.
    pub fn begin(&self, server: &RedisServer) -> bool {
        run(server, &self.refuse);
        if self.word == "MISCONF" {
            std::fs::remove_dir_all(server.folder()).expect("its folder");
            server.command(&["BGSAVE"]);
            eventually("a save that failed", || {
                let info = server.command(&["INFO", "persistence"]);
                info.contains("rdb_last_bgsave_status:err")
            });
        }
        self.word != "NOREPLICAS" || RedisServer::holds_scripts_to_min_replicas()
    }

    /// Has it write again.
    pub fn end(&self, server: &RedisServer) {
        run(server, self.permit);
    }
}
