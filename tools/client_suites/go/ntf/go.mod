module github.com/synadia-io/orbit.go/ntf

go 1.25
