package netstacktest

import (
	"testing"

	"go.uber.org/goleak"
)

// Main runs a package's tests and fails if goroutines are left.
func Main(m *testing.M) { goleak.VerifyTestMain(m) }
