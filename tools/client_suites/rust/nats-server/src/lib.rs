//! What the suites of async-nats and nats (Rust) call to get servers. Their archives have the tests
//! and the configurations, not this. Each server is a process: whichever `nats-server` is first in
//! the `PATH`, with a store of its own, gone when the value is dropped.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const START_DEADLINE: Duration = Duration::from_secs(20);
const POLL_EVERY: Duration = Duration::from_millis(5);
const CLUSTER_SERVERS: usize = 3;
const LISTENING: &str = "Listening for client connections on ";
const READY: &str = "Server is ready";

static MADE: AtomicUsize = AtomicUsize::new(0);

pub struct Server {
    arguments: Vec<String>,
    dir: PathBuf,
    port: u16,
    tls: bool,
    process: Child,
}

pub struct Cluster {
    pub servers: Vec<Server>,
}

pub fn run_basic_server() -> Server {
    run_server_with_port("", None)
}

pub fn run_server(config: &str) -> Server {
    run_server_with_port(config, None)
}

pub fn run_server_with_port(config: &str, port: Option<&str>) -> Server {
    let mut arguments = vec!["-p".into(), port.unwrap_or("-1").into()];
    if !config.is_empty() {
        arguments.extend(["-c".into(), config.into()]);
    }
    Server::launch(arguments, names_tls(config)).awaited()
}

pub fn run_cluster(config: &str) -> Cluster {
    let ports: Vec<u16> = (0..CLUSTER_SERVERS).map(|_| free_port()).collect();
    let routes: Vec<String> = ports.iter().map(|p| format!("nats://127.0.0.1:{p}")).collect();
    let launched: Vec<Server> = ports
        .iter()
        .map(|port| {
            let name = format!("node{port}");
            let listen = format!("nats://127.0.0.1:{port}");
            let routes = routes.join(",");
            let arguments = [
                "-a", "127.0.0.1", "-p", "-1", "-c", config, "--name", &name,
                "--cluster_name", "suite", "--cluster", &listen, "--routes", &routes,
            ];
            Server::launch(arguments.map(String::from).to_vec(), names_tls(config))
        })
        .collect();
    Cluster { servers: launched.into_iter().map(Server::awaited).collect() }
}

pub fn set_lame_duck_mode(server: &Server) {
    // The signal of the reference: what `nats-server --signal ldm` sends.
    let sent = Command::new("kill").args(["-USR2", &server.process.id().to_string()]).status();
    assert!(sent.expect("kill cannot be run").success());
}

impl Server {
    fn launch(arguments: Vec<String>, tls: bool) -> Server {
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("rust-suite-{}-{made}", std::process::id()));
        fs::create_dir_all(&dir).expect("no directory for a server");
        let process = spawn(&arguments, &dir);
        Server { arguments, dir, port: 0, tls, process }
    }

    /// Wait for the server's own word: a port may answer before all that is behind it does.
    fn awaited(mut self) -> Server {
        let end = Instant::now() + START_DEADLINE;
        loop {
            let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            if log.contains(READY) {
                self.port = listening_port(&log).expect("a log that names no port");
                return self;
            }
            let ended = self.process.try_wait().expect("a server that cannot be asked");
            assert!(ended.is_none() && Instant::now() < end, "nats-server did not start: {log}");
            thread::sleep(POLL_EVERY);
        }
    }

    /// Kill it and start it again over its store; the tests reconnect by themselves.
    pub fn restart(&mut self) {
        self.stop();
        self.process = spawn(&self.arguments, &self.dir);
    }

    pub fn client_port(&self) -> u16 {
        self.port
    }

    pub fn client_url(&self) -> String {
        self.url("")
    }

    pub fn client_url_with(&self, user: &str, password: &str) -> String {
        self.url(&format!("{user}:{password}@"))
    }

    pub fn client_url_with_token(&self, token: &str) -> String {
        self.url(&format!("{token}@"))
    }

    fn url(&self, login: &str) -> String {
        // The certificates of the suites are for the name, not for the address.
        let (scheme, host) = if self.tls { ("tls", "localhost") } else { ("nats", "127.0.0.1") };
        format!("{scheme}://{login}{host}:{}", self.port)
    }

    fn stop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Cluster {
    pub fn client_url(&self) -> String {
        self.servers[0].client_url()
    }
}

fn spawn(arguments: &[String], dir: &Path) -> Child {
    let log = dir.join("log");
    let _ = fs::remove_file(&log);
    Command::new("nats-server")
        .args(arguments)
        .arg("--store_dir")
        .arg(dir.join("store"))
        .arg("--log")
        .arg(log)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("nats-server is not in the PATH")
}

fn listening_port(log: &str) -> Option<u16> {
    let line = log.lines().find(|line| line.contains(LISTENING))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

/// Whether clients are to speak TLS: a `tls` block that is not inside another one.
fn names_tls(config: &str) -> bool {
    let text = fs::read_to_string(config).unwrap_or_default();
    text.lines().any(|line| line.starts_with("tls"))
}

fn free_port() -> u16 {
    let probe = TcpListener::bind("127.0.0.1:0").expect("no free port");
    probe.local_addr().expect("a port without address").port()
}
