//go:build tools

// Package tools names the programs that this module is here for, so that go mod tidy keeps them:
// a certificate authority for tests, and its DNS server. .ci/run builds them, and
// crates/weft-server/tests/it/acme runs them.
package tools

import (
	_ "github.com/letsencrypt/pebble/v2/cmd/pebble"
	_ "github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv"
)
