package testservice

import "time"

// A CreateOption changes what a server is made from. Each helper fills one place of the
// configuration in config.go; what is not filled has a default there.
type CreateOption func(*settings)

type settings struct {
	accounts, systemAccount, authorization string
	webSocket, leafNode, jetStream, top    string
	tls                                    *tlsSettings
	tlsTimeout                             time.Duration
}

type tlsSettings struct {
	mutual, handshakeFirst bool
	names                  []string
	timeout                time.Duration
}

type TLSOpt func(*tlsSettings)

func WithAccounts(body string) CreateOption      { return func(s *settings) { s.accounts = body } }
func WithSystemAccount(body string) CreateOption { return func(s *settings) { s.systemAccount = body } }
func WithAuthorization(body string) CreateOption { return func(s *settings) { s.authorization = body } }
func WithWebSocket(body string) CreateOption     { return func(s *settings) { s.webSocket = body } }
func WithLeafNode(body string) CreateOption      { return func(s *settings) { s.leafNode = body } }
func WithJetStream(body string) CreateOption     { return func(s *settings) { s.jetStream = body } }
func WithTopLevel(body string) CreateOption      { return func(s *settings) { s.top = body } }
func WithDescription(string) CreateOption        { return func(*settings) {} }
func WithTLSTimeout(d time.Duration) CreateOption {
	return func(s *settings) { s.tlsTimeout = d }
}

func WithGeneratedTLS(opts ...TLSOpt) CreateOption {
	return func(s *settings) {
		s.tls = &tlsSettings{mutual: true, names: []string{"localhost", "127.0.0.1", "::1"}}
		for _, opt := range opts {
			opt(s.tls)
		}
	}
}

func TLSServerOnly() TLSOpt             { return func(s *tlsSettings) { s.mutual = false } }
func TLSMutual() TLSOpt                 { return func(s *tlsSettings) { s.mutual = true } }
func TLSHandshakeFirst() TLSOpt         { return func(s *tlsSettings) { s.handshakeFirst = true } }
func TLSSANs(names ...string) TLSOpt    { return func(s *tlsSettings) { s.names = names } }
func TLSTimeout(d time.Duration) TLSOpt { return func(s *tlsSettings) { s.timeout = d } }
