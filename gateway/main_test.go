package gateway_test

import (
	"testing"

	"github.com/msb-project/msb/netstack/netstacktest"
)

func TestMain(m *testing.M) { netstacktest.Main(m) }
