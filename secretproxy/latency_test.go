package secretproxy

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// streams are live answers as servers send them: tokens of a language model, a watch of a cluster, measurements.
func streams(n int) map[string][]string {
	r := rand.New(rand.NewPCG(5, 6))
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_/+"
	word := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = letters[r.IntN(len(letters))]
		}
		return string(b)
	}
	out := map[string][]string{}
	for i := range n {
		out["text/event-stream"] = append(out["text/event-stream"], fmt.Sprintf(
			"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\" %s\\n\"}}\n\n", word(1+r.IntN(14))))
		out["application/x-ndjson"] = append(out["application/x-ndjson"], fmt.Sprintf(
			"{\"type\":\"MODIFIED\",\"object\":{\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\",\"uid\":\"%s\",\"resourceVersion\":\"%d\"},\"status\":{\"message\":\"%s\"}}}\n", word(20), word(36), i, strings.Repeat(word(40)+" ", r.IntN(60))))
		message := make([]byte, r.IntN(3000))
		for i := range message {
			message[i] = byte(r.Uint32())
		}
		out["application/grpc+proto"] = append(out["application/grpc+proto"], string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))))+string(message))
	}
	return out
}

// TestMaskingDelaysNoMessage: what masking adds to the way of each message of a live stream, over the proxy without a
// secret. MSB_LATENCY is the number of messages of each stream, for which p50 and p99 must hold (make bench-latency).
func TestMaskingDelaysNoMessage(t *testing.T) {
	t.Parallel()
	n, measured := 40, false
	if text := os.Getenv("MSB_LATENCY"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
		measured = true
	}
	for contentType, messages := range streams(n) {
		passed, masked := newLine(t, contentType), newLine(t, contentType, withSecret(secretIn(t, header("Authorization"))))
		var without, with []time.Duration
		for _, m := range messages { // in turn, so that both have the machine as it is
			without, with = append(without, passed.way(t, m)), append(with, masked.way(t, m))
		}
		slices.Sort(without)
		slices.Sort(with)
		p50, p99 := with[n/2]-without[n/2], with[n*99/100]-without[n*99/100]
		t.Logf("%s: p50 %v, of which masking %v; p99 %v, of which masking %v", contentType, with[n/2], p50, with[n*99/100], p99)
		if measured && (p50 > time.Millisecond || p99 > 5*time.Millisecond) {
			t.Errorf("%s: masking adds more than 1 ms to the median or 5 ms to the 99th percentile", contentType)
		}
	}
}

// line is a live stream through the proxy.
type line struct {
	next chan string
	sent chan time.Time
	read *bufio.Reader
}

func newLine(t *testing.T, contentType string, options ...option) *line {
	t.Helper()
	l := &line{next: make(chan string), sent: make(chan time.Time, 1)}
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", contentType)
		flusher := http.NewResponseController(rw)
		_ = flusher.Flush()
		for {
			select {
			case message := <-l.next:
				l.sent <- time.Now()
				_, _ = io.WriteString(rw, message)
				_ = flusher.Flush()
			case <-r.Context().Done():
				return
			}
		}
	}, options...)
	resp, err := w.client(apiHost, apiAddr, true).Do(request(t, "GET", "https://"+apiHost+"/", nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	l.read = bufio.NewReader(resp.Body)
	return l
}

// way sends a message and returns how long it took until the guest had all of it.
func (l *line) way(t *testing.T, message string) time.Duration {
	t.Helper()
	l.next <- message
	got := make([]byte, len(message))
	if _, err := io.ReadFull(l.read, got); err != nil || string(got) != message {
		t.Fatalf("got %q (%v), want %q", got, err, message)
	}
	return time.Since(<-l.sent)
}
