// Package ntf stands in for the tester that the suites of nats.go ask for servers. Servers are
// started by the client package beside this one, so all that is left here is the address which
// the suites dial once, to see which server they talk to.
package ntf

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const startDeadline = 60 * time.Second

type PortRange struct{ Low, High int }

type Options struct {
	AdvertiseHost string
	PortRange     PortRange
}

type Service struct {
	port    int
	command *exec.Cmd
}

func New(_ context.Context, _ Options) (*Service, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	command := exec.Command("nats-server", "-a", "127.0.0.1", "-p", fmt.Sprint(port))
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getenv("SUITE_QUIET") != "" {
		command.Stderr = nil
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(startDeadline); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		probe, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			probe.Close()
			return &Service{port, command}, nil
		}
	}
	command.Process.Kill()
	return nil, fmt.Errorf("nats-server did not listen on port %d", port)
}

func (s *Service) Port() int { return s.port }

func (s *Service) Close() {
	s.command.Process.Kill()
	s.command.Wait()
}
