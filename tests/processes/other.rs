//! Another process of this program.

use std::{
    io::{BufRead, BufReader, Lines, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// It ends, or is killed when this is dropped.
pub(crate) struct Other {
    child: Child,
    input: Option<ChildStdin>,
    output: Option<Lines<BufReader<ChildStdout>>>,
}

impl Other {
    /// Starts a process that does what these arguments say.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .arg("--other-process")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("another process");
        let input = child.stdin.take();
        let output = child
            .stdout
            .take()
            .map(|output| BufReader::new(output).lines());
        Self {
            child,
            input,
            output,
        }
    }

    pub(crate) fn tell(&mut self, line: &str) {
        let input = self.input.as_mut().expect("its input");
        writeln!(input, "{line}").expect("it reads");
    }

    /// Returns the next line that it prints.
    pub(crate) fn line(&mut self) -> String {
        let output = self.output.as_mut().expect("its output");
        output.next().expect("a line").expect("text")
    }

    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.line()
    }

    /// Returns all lines that it prints from now on.
    pub(crate) fn take_lines(&mut self) -> Lines<BufReader<ChildStdout>> {
        self.output.take().expect("its output")
    }

    /// Waits for its end: it reads no more, or is killed.
    pub(crate) fn end(&mut self, is_killed: bool) {
        if is_killed {
            self.child.kill().expect("a kill");
        }
        drop(self.input.take());
        let status = self.child.wait().expect("an end");
        assert_eq!(status.success(), !is_killed);
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
