package testservice

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// WaitForJetStream asks until JetStream answers at all.
func (c *Client) WaitForJetStream(t testing.TB, nc *nats.Conn) {
	t.Helper()
	var err error
	for end := time.Now().Add(startDeadline); time.Now().Before(end); time.Sleep(pollEvery) {
		if _, err = nc.Request("$JS.API.INFO", nil, time.Second); err == nil {
			return
		}
	}
	t.Fatalf("JetStream does not answer: %v", err)
}
