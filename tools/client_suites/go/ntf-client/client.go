// Package testservice lets the suites of nats.go run against whichever nats-server is first in
// the PATH. It has the names those suites call, and starts each server as a process of its own
// instead of asking a tester for it.
package testservice

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

const (
	startDeadline  = 60 * time.Second
	stopDeadline   = 10 * time.Second
	reloadDeadline = 5 * time.Second
	pollEvery      = 5 * time.Millisecond
)

type Client struct{}

func New(testing.TB, string) *Client { return &Client{} }

func (c *Client) Close(testing.TB) {}

// An Instance is one server or one cluster, owned by the test that made it.
type Instance struct {
	ID      string
	Servers []*ManagedServer
	TLS     *TLSMaterial

	dir   string
	tls   *tlsSettings
	certs *certFiles
}

type ManagedServer struct {
	Name    string
	Cluster string
	URL     string
	Port    int
	Ports   map[string]int

	dir, config string
	jetStream   bool
	routePort   int
	routes      []string
	command     *exec.Cmd
	log         *os.File
	ended       chan struct{}
}

func (c *Client) CreateServer(t testing.TB, jetStream bool, opts ...CreateOption) *Instance {
	t.Helper()
	return create(t, 1, jetStream, opts)
}

func (c *Client) CreateCluster(t testing.TB, servers int, jetStream bool, opts ...CreateOption) *Instance {
	t.Helper()
	return create(t, servers, jetStream, opts)
}

func create(t testing.TB, servers int, jetStream bool, opts []CreateOption) *Instance {
	t.Helper()
	dir, err := os.MkdirTemp("", "client-suite-")
	check(t, err)
	set := applied(opts)
	inst := &Instance{ID: filepath.Base(dir), dir: dir, tls: set.tls}
	t.Cleanup(func() { inst.Destroy(t) })
	if set.tls != nil {
		inst.TLS, inst.certs, err = makeCertificates(dir, set.tls)
		check(t, err)
	}
	clusterName := ""
	if servers > 1 {
		clusterName = inst.ID
	}
	var routes []string
	for i := range servers {
		s := &ManagedServer{
			Name: fmt.Sprintf("%s-n%d", inst.ID, i+1), Port: freePort(t), Ports: map[string]int{},
			dir: filepath.Join(dir, fmt.Sprint(i+1)), jetStream: jetStream, Cluster: clusterName,
		}
		check(t, os.Mkdir(s.dir, 0o700))
		s.config = filepath.Join(s.dir, "server.conf")
		s.URL = fmt.Sprintf("nats://localhost:%d", s.Port)
		if set.webSocket != "" {
			s.Ports["websocket"] = freePort(t)
		}
		if set.leafNode != "" {
			s.Ports["leafnode"] = freePort(t)
		}
		s.routePort = freePort(t)
		routes = append(routes, fmt.Sprintf("\"nats://localhost:%d\"", s.routePort))
		inst.Servers = append(inst.Servers, s)
	}
	for _, s := range inst.Servers {
		if servers > 1 {
			s.routes = routes
		}
		s.write(t, set, inst.certs)
		s.launch(t)
	}
	for _, s := range inst.Servers {
		s.awaitListening(t)
	}
	return inst
}

func applied(opts []CreateOption) *settings {
	set := &settings{}
	for _, opt := range opts {
		opt(set)
	}
	return set
}

func (s *ManagedServer) write(t testing.TB, set *settings, certs *certFiles) {
	t.Helper()
	text, err := s.render(set, certs)
	check(t, err)
	check(t, os.WriteFile(s.config, []byte(text), 0o600))
}

func (s *ManagedServer) launch(t testing.TB) {
	t.Helper()
	log, err := os.Create(filepath.Join(s.dir, "log"))
	check(t, err)
	s.log = log
	s.command = exec.Command("nats-server", "-c", s.config)
	s.command.Stdout, s.command.Stderr = log, log
	s.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	check(t, s.command.Start())
	s.ended = make(chan struct{})
	go func(command *exec.Cmd, ended chan struct{}) {
		command.Wait()
		close(ended)
	}(s.command, s.ended)
}

// awaitListening waits for the server's own word that it is ready, since a port may answer
// before everything behind it does.
func (s *ManagedServer) awaitListening(t testing.TB) {
	t.Helper()
	s.awaitLog(t, "Server is ready", 1, startDeadline)
}

func (s *ManagedServer) awaitLog(t testing.TB, words string, times int, deadline time.Duration) {
	t.Helper()
	path := filepath.Join(s.dir, "log")
	for end := time.Now().Add(deadline); ; time.Sleep(pollEvery) {
		text, _ := os.ReadFile(path)
		if bytes.Count(text, []byte(words)) >= times {
			return
		}
		select {
		case <-s.ended:
			text, _ := os.ReadFile(path)
			t.Fatalf("nats-server ended:\n%s", text)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("nats-server did not say %q:\n%s", words, text)
		}
	}
}

func (s *ManagedServer) stop(how os.Signal) {
	if s.command == nil {
		return
	}
	s.command.Process.Signal(how)
	select {
	case <-s.ended:
	case <-time.After(stopDeadline):
		s.command.Process.Kill()
		<-s.ended
	}
	s.command = nil
	s.log.Close()
}

func (i *Instance) StopServer(t testing.TB, s *ManagedServer) { s.stop(syscall.SIGTERM) }

func (i *Instance) StartServer(t testing.TB, s *ManagedServer) {
	t.Helper()
	s.launch(t)
	s.awaitListening(t)
}

// UpdateServer writes the configuration anew from these options alone, keeping the certificates.
func (i *Instance) UpdateServer(t testing.TB, s *ManagedServer, opts ...CreateOption) {
	t.Helper()
	set := applied(opts)
	if set.tls == nil {
		set.tls = i.tls
	}
	s.write(t, set, i.certs)
}

func (i *Instance) ReloadServer(t testing.TB, s *ManagedServer) {
	t.Helper()
	path := filepath.Join(s.dir, "log")
	text, _ := os.ReadFile(path)
	seen := bytes.Count(text, []byte("Reloaded server configuration"))
	check(t, s.command.Process.Signal(syscall.SIGHUP))
	s.awaitLog(t, "Reloaded server configuration", seen+1, reloadDeadline)
}

// Destroy may be called twice: by the test, and when it ends.
func (i *Instance) Destroy(t testing.TB) {
	for _, s := range i.Servers {
		s.stop(syscall.SIGKILL)
	}
	if t.Failed() && os.Getenv("SUITE_KEEP") != "" {
		t.Logf("kept %s", i.dir)
		return
	}
	os.RemoveAll(i.dir)
}

func freePort(t testing.TB) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
