package gateway_test

import (
	"slices"
	"testing"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/gateway/gatewaytest"
)

func TestI4_SpoofedFramesAreAudited(t *testing.T) {
	w := gatewaytest.Start(t, "")
	link := w.Gateway.Link()
	frame := slices.Concat(link.GatewayMAC, []byte{2, 9, 9, 9, 9, 9}, []byte{8, 0}, make([]byte, 46))
	const n = 5
	for range n {
		w.Guest.Inject(frame)
	}
	// The guest's next exchange is behind the frames on the link.
	w.Resolve("localhost", 1)
	if err := w.Gateway.Close(); err != nil {
		t.Fatal(err)
	}
	var got uint64
	for _, e := range w.Audit.Events(audit.LinkDrop) {
		got += e.Count
	}
	if got != n {
		t.Errorf("%d frames in the audit's drops, want %d: %+v", got, n, w.Audit.Events(audit.LinkDrop))
	}
}
