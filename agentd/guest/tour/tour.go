//go:build linux

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// silence is how long a refusal may take before it counts as silence: a
// gateway that refuses does so at once.
const silence = 4 * time.Second

type row struct {
	what  string
	ok    bool
	found string
}

type tour struct {
	dialer   *net.Dialer
	client   *http.Client
	echoURL  string
	resolver netip.AddrPort
	token    string
	backend  string
}

func (t *tour) rows(ctx context.Context) []row {
	return []row{
		t.machine(),
		t.allowed(ctx),
		t.refused(ctx, "private", "10.0.0.1:80"),
		t.refused(ctx, "metadata", "169.254.169.254:80"),
		t.name(ctx),
		t.secret(ctx),
	}
}

func (t *tour) machine() row {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return row{"machine", false, err.Error()}
	}
	found := fmt.Sprintf("%s %s on %s", unix.ByteSliceToString(u.Sysname[:]),
		unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Machine[:]))
	if t.backend != "" {
		found += ", in a microVM of its own (" + t.backend + ")"
	}
	return row{"machine", true, found}
}

func (t *tour) allowed(ctx context.Context) row {
	begin := time.Now()
	e, err := t.echo(ctx, "")
	if err != nil {
		return row{"allowed name", false, err.Error()}
	}
	return row{"allowed name", true, fmt.Sprintf("%s answered in %s over %s", t.echoURL, since(begin), e.Proto)}
}

// refused expects an error that comes at once: a timeout is no refusal.
func (t *tour) refused(ctx context.Context, what, addr string) row {
	begin := time.Now()
	conn, err := t.dialer.DialContext(ctx, "tcp", addr)
	if err == nil {
		conn.Close()
		return row{what, false, addr + " is reachable"}
	}
	if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
		return row{what, false, fmt.Sprintf("%s was not refused: silence for %s", addr, since(begin))}
	}
	return row{what, true, fmt.Sprintf("%s refused in %s: %s", addr, since(begin), cause(err))}
}

func (t *tour) name(ctx context.Context) row {
	const host = "example.com"
	begin := time.Now()
	answer, err := query(ctx, t.dialer, t.resolver, host)
	switch {
	case err != nil:
		return row{"other name", false, fmt.Sprintf("https://%s: asking the resolver: %s", host, err)}
	case answer.found:
		return row{"other name", false, fmt.Sprintf("https://%s: the name resolves", host)}
	}
	return row{"other name", true, fmt.Sprintf("https://%s refused in %s: %s", host, since(begin), answer)}
}

// secret shows that the service received something else than this guest sent.
func (t *tour) secret(ctx context.Context) row {
	if t.token == "" {
		return row{"secret", false, "DEMO_TOKEN is not set"}
	}
	sent := "Bearer " + t.token
	e, err := t.echo(ctx, sent)
	if err != nil {
		return row{"secret", false, err.Error()}
	}
	got := e.HeaderSHA256["Authorization"]
	sum := sha256.Sum256([]byte(sent))
	switch {
	case got == "":
		return row{"secret", false, "the service did not say what it received"}
	case got == hex.EncodeToString(sum[:]):
		return row{"secret", false, "the service received what this guest sent: nothing was put in its place"}
	}
	return row{"secret", true, fmt.Sprintf("the service received the real value (sha256 %.12s…); this guest only ever saw %s (sha256 %.12s…)",
		got, t.token, hex.EncodeToString(sum[:]))}
}

// echoAnswer is what the gateway's built-in echo service says.
type echoAnswer struct {
	Proto        string              `json:"proto"`
	Headers      map[string][]string `json:"headers"`
	HeaderSHA256 map[string]string   `json:"header_sha256"`
}

// maxAnswerBytes bounds what is read of an answer.
const maxAnswerBytes = 1 << 20

func (t *tour) echo(ctx context.Context, authorization string) (*echoAnswer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.echoURL, nil)
	if err != nil {
		return nil, err
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	resp, err := t.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s: %s", t.echoURL, resp.Status, strings.TrimSpace(string(body)))
	}
	var e echoAnswer
	if err := json.Unmarshal(body, &e); err != nil {
		return nil, fmt.Errorf("%s: %w", t.echoURL, err)
	}
	return &e, nil
}

func since(t time.Time) string {
	d := time.Since(t)
	if d < time.Millisecond {
		return "under 1 ms"
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

// cause is the innermost error: the address is in the row already.
func cause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
