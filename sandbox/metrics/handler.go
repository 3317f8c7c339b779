package metrics

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"

	"github.com/msb-project/msb/sandbox"
)

// maxScrapes is how many scrapes may be under way: each asks every supervisor.
const maxScrapes = 4

// Handler answers GET /metrics with the figures of the sandboxes of home that run. A request that names another host than
// an address, or localhost, is refused: a web page that leads its own name to this machine would read them.
func Handler(home *sandbox.Home) http.Handler { return handlerOf(newCollector(home)) }

func handlerOf(c *collector) http.Handler {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	figures := promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes, Timeout: 2 * collectWait, ErrorHandling: promhttp.HTTPErrorOnError,
	})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if !addressed(r.Host) {
			http.Error(w, "msb metrics answers by address only: http://127.0.0.1:PORT/metrics", http.StatusMisdirectedRequest)
			return
		}
		figures.ServeHTTP(w, r)
	})
	return mux
}

// addressed reports whether a Host header names an address or localhost.
func addressed(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || strings.EqualFold(host, "localhost")
}

// Write writes the figures once, as OpenMetrics.
func Write(w io.Writer, home *sandbox.Home) error {
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(newCollector(home)); err != nil {
		return err
	}
	families, err := registry.Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToOpenMetrics(w, f); err != nil {
			return err
		}
	}
	_, err = expfmt.FinalizeOpenMetrics(w)
	return err
}

// errListen is wrapped by errors about an address to listen at.
var errListen = errors.New("can't listen there")

// ParseListen reads PORT, :PORT or ADDRESS:PORT. Without an address it is loopback: who can reach this machine must not
// read what its sandboxes do because an address was left out.
func ParseListen(s string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port = "", s
	}
	if host == "" || host == "localhost" {
		host = "127.0.0.1"
	}
	n, portErr := strconv.ParseUint(port, 10, 16)
	addr, err := netip.ParseAddr(host)
	if err != nil || portErr != nil {
		return netip.AddrPort{}, fmt.Errorf("%w: %q; write PORT for 127.0.0.1, or ADDRESS:PORT, such as 9464 or [::1]:9464", errListen, s)
	}
	return netip.AddrPortFrom(addr, uint16(n)), nil
}
