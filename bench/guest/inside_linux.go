package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// insideVerb makes this program the client: inside DIRECTORY NAMESERVER NUMBER. It prints timings as JSON.
const insideVerb = "inside"

// What is measured.
const (
	kindName = "name"
	kindNew  = "https, new connection"
	kindKept = "https, kept connection"
)

var kinds = []string{kindName, kindNew, kindKept}

// mostNames are asked for in a round: msb asks for 1,024 below one wildcard in ten minutes.
const mostNames = 100

// timings are those of each kind.
type timings map[string]*timing

// timing is how long each took, in seconds, and how much of a processor the client's process took for one.
type timing struct {
	Seconds []float64
	CPU     float64
}

// measured calls do n times, after once that doesn't count.
func measured(n int, do func() error) (*timing, error) {
	t := &timing{}
	if err := do(); err != nil {
		return nil, err
	}
	before, err := processorTime()
	for range n {
		if err != nil {
			return nil, err
		}
		began := time.Now()
		err = do()
		t.Seconds = append(t.Seconds, time.Since(began).Seconds())
	}
	after, cpuErr := processorTime()
	t.CPU = (after - before).Seconds() / float64(n)
	return t, errors.Join(err, cpuErr)
}

func processorTime() (time.Duration, error) {
	var u unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}

func inside(args []string) error {
	if len(args) != 3 {
		return errors.New("want the authority's file, the name server's address, a number")
	}
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	got, err := timeAll(args[0], args[1], n)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(got)
}

// timeAll measures every kind. API_TOKEN is what the requests bring: a placeholder for the value that the server gets, or the value.
func timeAll(roots, server string, n int) (timings, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if pem, err := os.ReadFile(roots); err == nil {
		pool.AppendCertsFromPEM(pem)
	}
	got := timings{}
	resolver := dns.Client{Timeout: 10 * time.Second}
	asked := 0
	run := strconv.FormatInt(time.Now().UnixNano(), 36) // asked in no earlier round
	got[kindName], err = measured(min(n, mostNames), func() error {
		asked++
		question := new(dns.Msg).SetQuestion(fmt.Sprintf("n%d-%s.%s", asked, run, zone), dns.TypeA)
		answer, _, err := resolver.Exchange(question, net.JoinHostPort(server, "53"))
		if err == nil && len(answer.Answer) != 1 {
			err = fmt.Errorf("no answer: %s", dns.RcodeToString[answer.Rcode])
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kindName, err)
	}
	// msb lets a request through to an address that it gave out for the request's name.
	if _, _, err := resolver.Exchange(new(dns.Msg).SetQuestion(apiHost+".", dns.TypeA), net.JoinHostPort(server, "53")); err != nil {
		return nil, err
	}
	for kind, fresh := range map[string]bool{kindNew: true, kindKept: false} {
		transport := &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, DisableKeepAlives: fresh,
			// The name is known before: it has a figure of its own.
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, worldAddress+":443")
			},
		}
		client := http.Client{Transport: transport, Timeout: 30 * time.Second}
		got[kind], err = measured(n, func() error { return request(&client) })
		transport.CloseIdleConnections()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
	}
	return got, nil
}

// request fails unless the server got the secret's value.
func request(client *http.Client) error {
	r, err := http.NewRequest(http.MethodGet, "https://"+apiHost+"/", nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+os.Getenv("API_TOKEN"))
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && string(text) != "the value" {
		err = fmt.Errorf("the server got %.200q (%s)", text, answer.Status)
	}
	return err
}
