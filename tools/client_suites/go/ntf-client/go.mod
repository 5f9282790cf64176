module github.com/synadia-io/orbit.go/ntf-client

go 1.25

require github.com/nats-io/nats.go v1.55.0

