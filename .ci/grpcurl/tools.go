//go:build tools

// Package tools names the program that this module is here for, so that go mod tidy keeps it: a client of
// server reflection. .ci/run builds it, and tests/frameworks/grpc runs it.
package tools

import (
	_ "github.com/fullstorydev/grpcurl/cmd/grpcurl"
)
