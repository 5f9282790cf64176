package testservice

import (
	"fmt"
	"strings"
	texttemplate "text/template"
	"time"
)

const defaultAccounts = `accounts {
  USERS1 { jetstream: enabled, users: [ { user: user1, password: password } ] }
  USERS2 { jetstream: enabled, users: [ { user: user2, password: password } ] }
  $SYS { users: [ { user: system, password: password } ] }
}`

// render writes the configuration of one server. Bodies the suites hand over are templates that
// may name the ports and the certificate of the server.
func (s *ManagedServer) render(set *settings, certs *certFiles) (string, error) {
	var text strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	line("server_name: %q\nlisten: \"localhost:%d\"", s.Name, s.Port)
	line("lame_duck_duration: 30s\nlame_duck_grace_period: 1s")
	if s.jetStream {
		line("jetstream {\n  store_dir: %q\n  %s\n}", s.dir, set.jetStream)
	}
	line("%s", or(set.accounts, defaultAccounts))
	line("%s", or(set.systemAccount, `system_account: "$SYS"`))
	line("%s", or(set.authorization, "no_auth_user: user1"))
	if certs != nil {
		line("tls {\n  cert_file: %q\n  key_file: %q", certs.CertFile, certs.KeyFile)
		if set.tls.mutual {
			line("  ca_file: %q\n  verify: true", certs.CAFile)
		}
		if set.tls.handshakeFirst {
			line("  handshake_first: true")
		}
		if wait := max(set.tls.timeout, set.tlsTimeout); wait > 0 {
			line("  timeout: %q", time.Duration.String(wait))
		}
		line("}")
	}
	if len(s.routes) > 0 {
		line("client_advertise: \"localhost:%d\"", s.Port)
		line("cluster {\n  name: %q\n  listen: \"localhost:%d\"\n  routes: [%s]\n}",
			s.Cluster, s.routePort, strings.Join(s.routes, ", "))
	}
	line("%s\n%s\n%s", set.webSocket, set.leafNode, set.top)

	parsed, err := texttemplate.New("config").Parse(text.String())
	if err != nil {
		return "", err
	}
	var out strings.Builder
	err = parsed.Execute(&out, map[string]any{"Ports": s.Ports, "TLS": certs})
	return out.String(), err
}

func or(body, fallback string) string {
	if body == "" {
		return fallback
	}
	return body
}
