//go:build tools

// Package tools names the program that this module is here for, so that go mod tidy keeps it.
// .ci/run builds it, and crates/weft/tests/outside.rs runs it.
package tools

import _ "github.com/summerwind/h2spec/cmd/h2spec"
