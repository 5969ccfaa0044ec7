//go:build tools

// Package tools names the programs that this module is here for, so that go mod tidy keeps them: the
// client and the server with which implementations of gRPC test each other. .ci/run builds them, and
// crates/weft-server/tests/it/http2_upstream runs them.
package tools

import (
	_ "google.golang.org/grpc/interop/client"
	_ "google.golang.org/grpc/interop/server"
)
